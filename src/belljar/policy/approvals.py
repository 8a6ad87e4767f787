"""Approvals: what a person agreed to, and which later commands that covers.

"once" covers the same command under the same policy (by digest). "session" also covers a command whose effects all have
the kind, path class and program of effects that were approved, for the same rules; outside the sandbox also the same
target. A question without effects (may this host be reached?) covers only itself.
"""

from dataclasses import dataclass, field

from .verdict import Effect, Verdict

Shape = tuple[str, str, str, str]
OUTSIDE = ("service.", "data.", "package.", "vcs.", "net.", "persist.")
"""Kinds of effects that reach beyond the sandbox, or what no file system could bring back."""


def _shapes(verdict: Verdict) -> frozenset[Shape]:
    return frozenset(map(_shape, verdict.effects))


def _shape(effect: Effect) -> Shape:
    """Inside, paths of one class and packages of one manager are alike. Outside, each thing is only itself: a yes to
    deleting one pod is none to deleting a namespace."""
    outside = effect.kind.startswith(OUTSIDE) or "destroys" in effect.flags
    return (
        effect.kind,
        effect.path_class,
        effect.program,
        effect.target if outside else "",
    )


@dataclass(slots=True, repr=False, eq=False)
class Approvals:
    """The approvals of one session."""

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
        """Whether an approval covers this verdict. A denial is never covered."""
        if verdict.decision != "ask":
            return verdict.decision == "allow"
        if verdict.digest in self.digests:
            return True
        if any(
            effect.kind in ("exec.unseen", "exec.unknown") and not effect.target
            for effect in verdict.effects
        ):
            return False
        return any(
            _asked(verdict) <= rules and _shapes(verdict) <= shapes
            for rules, shapes in self.shapes
        )


def _asked(verdict: Verdict) -> frozenset[str]:
    return frozenset(rule.id for rule in verdict.rules if rule.decision == "ask")
