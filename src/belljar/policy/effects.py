"""What a command would do: the vocabulary between the interpreter and the rules."""

from typing import Any

from belljar.records import record

from .marks import show

RISKS = ("low", "medium", "high", "critical", "blocked")
DECISIONS = ("allow", "ask", "deny")


@record
class Effect:
    """One effect. `kind` is dotted (`net.fetch`); a rule for `net` matches it too."""

    kind: str
    target: str = ""
    path_class: str = ""
    flags: frozenset[str] = frozenset()
    program: str = ""
    trail: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "target": show(self.target),
            "path_class": self.path_class,
            "flags": sorted(self.flags),
            "program": self.program,
            "trail": list(self.trail),
        }

    def line(self) -> str:
        where = f" [{self.path_class}]" if self.path_class else ""
        flags = f" ({', '.join(sorted(self.flags))})" if self.flags else ""
        return f"{self.kind} {show(self.target)}{where}{flags}  via {' → '.join(self.trail) or self.program}"
