"""Effects (what a command would do) and the verdict on them."""

import re
from dataclasses import field
from typing import Any, Literal

from belljar.records import record

from .marks import show
from .shellstate import ShellState
from .toml_files import file_and_line

RISKS = ("low", "medium", "high", "critical", "blocked")
DECISIONS = ("allow", "ask", "deny")


@record
class Effect:
    """One effect of a command. A rule for the kind `net` matches `net.fetch` too."""

    kind: str
    target: str = ""
    path_class: str = ""
    flags: frozenset[str] = frozenset()
    program: str = ""
    trail: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        shown = {
            "target": show(self.target),
            "flags": sorted(self.flags),
            "trail": list(self.trail),
        }
        return {
            "kind": self.kind,
            "path_class": self.path_class,
            "program": self.program,
            **shown,
        }

    def line(self) -> str:
        where = f" [{self.path_class}]" if self.path_class else ""
        flags = f" ({', '.join(sorted(self.flags))})" if self.flags else ""
        return f"{self.kind} {show(self.target)}{where}{flags}  via {' → '.join(self.trail) or self.program}"


@record
class Finding:
    """A rule that fired."""

    id: str
    decision: str
    risk: str
    reason: str

    def as_dict(self) -> dict[str, str]:
        return {
            "id": self.id,
            "decision": self.decision,
            "risk": self.risk,
            "reason": self.reason,
        }


@record
class Verdict:
    """A policy's decision on one command, and why.

    verdict = belljar.Policy.load("default").judge("rm -rf /")
    assert verdict.decision == "deny"
    """

    decision: str
    risk: str
    reason: str
    rules: tuple[Finding, ...]
    canonical: str
    digest: str = ""
    policy: str = ""
    effects: tuple[Effect, ...] = ()
    readings: tuple[str, ...] = field(
        default=(), compare=False, repr=False
    )  # commands, and their entries
    state_after: ShellState | None = field(default=None, compare=False, repr=False)
    about: Literal["command", "file", "host", "changes"] = (
        "command"  # what `canonical` is
    )

    @property
    def allowed(self) -> bool:
        return self.decision == "allow"

    def as_dict(self, effects: bool = False) -> dict[str, Any]:
        found: dict[str, Any] = {
            name: getattr(self, name)
            for name in ("decision", "risk", "reason", "canonical")
        }
        found["rules"] = [rule.as_dict() for rule in self.rules]
        return (
            {**found, "effects": [effect.as_dict() for effect in self.effects]}
            if effects
            else found
        )

    def commands(self) -> list[str]:
        """How each command was read: its words, and the entry with file and line."""
        file = re.compile(r"(?<=←  )(.+?) in (.+\.toml)$")
        return [
            file.sub(
                lambda m: f"{m[1]} in {file_and_line(m[2], f'program {m[1]}')}", one
            )
            for one in self.readings
        ]

    def explain(self, commands: bool = False) -> str:
        """The verdict as a text: decision, rules, effects, and with `commands` how each was read."""
        lines = [
            f"{self.decision} ({self.risk}): {self.reason}",
            f"policy {self.policy}",
        ]
        lines += (
            ["commands:", *(f"  {line}" for line in self.commands())]
            if commands
            else []
        )
        lines += (
            ["effects:"] + [f"  {effect.line()}" for effect in self.effects]
            if self.effects
            else ["no effects"]
        )
        lines += ["rules:"] if self.rules else []
        lines += [
            f"  rule {rule.id}: {rule.decision} ({rule.risk}): {rule.reason}"
            for rule in self.rules
        ]
        return "\n".join(lines)
