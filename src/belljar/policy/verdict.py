"""The verdict: what may happen to a command, and why."""

from dataclasses import field
from typing import Any

from belljar.records import record

from .effects import Effect
from .shellstate import ShellState


@record
class Finding:
    """A rule that fired."""

    id: str
    decision: str
    risk: str
    reason: str

    def as_dict(self) -> dict[str, str]:
        return {"id": self.id, "decision": self.decision, "risk": self.risk, "reason": self.reason}


@record
class Verdict:
    """What a policy says of one command.

    verdict = belljar.Policy.load("default").judge("rm -rf /")
    assert verdict.decision == "deny"
    """

    decision: str
    risk: str
    reason: str
    rules: tuple[Finding, ...]
    canonical: str
    digest: str
    policy: str
    effects: tuple[Effect, ...] = ()
    seen: tuple[str, ...] = field(
        default=(), compare=False, repr=False
    )  # the commands, and the entries they were read by
    state_after: ShellState | None = field(default=None, compare=False, repr=False)

    @property
    def allowed(self) -> bool:
        return self.decision == "allow"

    def as_dict(self, effects: bool = False) -> dict[str, Any]:
        found: dict[str, Any] = {
            "decision": self.decision,
            "risk": self.risk,
            "reason": self.reason,
            "rules": [rule.as_dict() for rule in self.rules],
            "canonical": self.canonical,
        }
        return {**found, "effects": [effect.as_dict() for effect in self.effects]} if effects else found

    def explain(self, commands: bool = False) -> str:
        """The verdict for a person: decision, rules, the effects with the way to each, how commands were read."""
        lines = [f"{self.decision} ({self.risk}): {self.reason}", f"policy {self.policy}"]
        lines += ["commands:", *(f"  {line}" for line in self.seen)] if commands else []
        lines += ["effects:"] + [f"  {effect.line()}" for effect in self.effects] if self.effects else ["no effects"]
        lines += ["rules:"] if self.rules else []
        lines += [f"  rule {rule.id}: {rule.decision} ({rule.risk}): {rule.reason}" for rule in self.rules]
        return "\n".join(lines)
