"""Approvals: answers that a person gave, and what they cover.

"Once" covers the very same command under the very same policy, by digest. "Session" covers commands whose every asked
effect has the kind, path class and program of an effect that was approved; a question without effects (may this host be
reached?) is alike to no other. A prefix of a text never covers anything.
"""

from dataclasses import dataclass, field

from .verdict import Verdict

Shape = tuple[str, str, str]


def _shapes(verdict: Verdict) -> frozenset[Shape]:
    return frozenset((effect.kind, effect.path_class, effect.program) for effect in verdict.effects)


@dataclass(slots=True, repr=False, eq=False)
class Approvals:
    """What somebody said yes to, for a while."""

    digests: set[str] = field(default_factory=set)
    shapes: list[tuple[frozenset[str], frozenset[Shape]]] = field(default_factory=list)

    def remember(self, verdict: Verdict, scope: str = "once") -> None:
        if scope not in ("once", "session"):
            raise ValueError("an approval holds 'once' or for the 'session'")
        if verdict.decision != "ask":
            return
        if scope == "once" or not verdict.effects:
            self.digests.add(verdict.digest)
        else:
            self.shapes.append((_asked(verdict), _shapes(verdict)))

    def covers(self, verdict: Verdict) -> bool:
        """Whether a person already said yes to this. A denial is never covered."""
        if verdict.decision != "ask":
            return verdict.decision == "allow"
        if verdict.digest in self.digests:
            return True
        if any(effect.kind in ("exec.unseen", "exec.unknown") and not effect.target for effect in verdict.effects):
            return False
        return any(_asked(verdict) <= rules and _shapes(verdict) <= shapes for rules, shapes in self.shapes)


def _asked(verdict: Verdict) -> frozenset[str]:
    return frozenset(rule.id for rule in verdict.rules if rule.decision == "ask")
