"""From effects to a decision: find the rules that fire, apply the exceptions, take the strictest."""

from collections.abc import Callable
from dataclasses import dataclass, field

from . import expressions
from .marks import show
from .rules import Allow, Rule
from .verdict import RISKS, Effect, Finding

ORDER = {"allow": 0, "ask": 1, "deny": 2}
RISK = {risk: index for index, risk in enumerate(RISKS)}
_MAX_REMEMBERED = 500
_EXCEPTION, _HARMLESS = "Allowed by", "Nothing in it is against the policy."
Decided = tuple[str, str, str, tuple[Finding, ...]]


@dataclass(slots=True, repr=False, eq=False)
class Decider:
    rules: tuple[Rule, ...]
    decides: Callable[[Rule], str]  # without exceptions
    allows: tuple[Allow, ...]
    default_risk: str
    allow_programs: frozenset[str] | None
    _by_kinds: dict[frozenset[str], tuple[Rule, ...]] = field(default_factory=dict)

    def decide(self, text: str, effects: tuple[Effect, ...], staged: bool) -> Decided:
        found: dict[str, Finding] = {}
        for rule in self._relevant(frozenset(effect.kind for effect in effects)):
            if rule.id not in found and (
                not rule.regex or expressions.search(rule.regex, text)
            ):
                causes = [effect for effect in effects if rule.matches(effect)]
                if causes or rule.only_text:
                    found[rule.id] = self._finding(rule, causes, staged)
        self._check_allowlist(effects, found)
        findings = tuple(
            sorted(
                found.values(), key=lambda one: (-ORDER[one.decision], -RISK[one.risk])
            )
        )
        decision = max(
            (one.decision for one in findings), key=ORDER.__getitem__, default="allow"
        )
        risk = max(
            [self.default_risk, *(one.risk for one in findings)], key=RISK.__getitem__
        )
        excepted = [one.reason for one in findings if one.reason.startswith(_EXCEPTION)]
        reason = (
            findings[0].reason
            if decision != "allow"
            else "; ".join(excepted) or _HARMLESS
        )
        return decision, risk, reason, findings

    def _relevant(self, kinds: frozenset[str]) -> tuple[Rule, ...]:
        """The rules that can match effects of these kinds. Remembered: most commands have the same few kinds."""
        if kinds not in self._by_kinds:
            if len(self._by_kinds) > _MAX_REMEMBERED:
                self._by_kinds.clear()
            self._by_kinds[kinds] = tuple(
                rule for rule in self.rules if rule.may_match(kinds)
            )
        return self._by_kinds[kinds]

    def _finding(self, rule: Rule, causes: list[Effect], staged: bool) -> Finding:
        decision = self.decides(rule)
        if decision == "allow":
            return Finding(rule.id, decision, rule.risk, rule.reason)
        if staged and causes and all(map(_can_be_undone, causes)):
            reason = f"{rule.reason} The changes of this session are staged: they can be taken back."
            return Finding(rule.id, "allow", "high", reason)
        left, why = self._excepted(rule.id, causes)
        if why and not left:
            return Finding(rule.id, "allow", "critical", f"{_EXCEPTION} {why}")
        cause = next(iter(left), None) if not rule.regex else None
        reason = (
            f"{rule.reason} ({cause.kind}: {show(cause.target)[:120]})"
            if cause
            else rule.reason
        )
        return Finding(
            rule.id, decision, "blocked" if decision == "deny" else rule.risk, reason
        )

    def _excepted(self, rule: str, causes: list[Effect]) -> tuple[list[Effect], str]:
        """The effects that no exception covers, and the reason of an exception that covers one."""
        left = []
        why = ""
        for effect in causes:
            allow = next((one for one in self.allows if one.covers(rule, effect)), None)
            if allow is None:
                left.append(effect)
            else:
                why = f"{allow.source}: {allow.reason}"
        return left, why

    def _check_allowlist(
        self, effects: tuple[Effect, ...], found: dict[str, Finding]
    ) -> None:
        listed = self.allow_programs
        runs = [one for one in effects if listed is not None and one.kind == "exec"]
        unlisted = [one for one in runs if one.program.lower() not in (listed or ())]
        left, why = self._excepted("allowlist", unlisted)
        if left:
            found["allowlist"] = Finding(
                "allowlist", "deny", "blocked", _unlisted(left, listed or frozenset())
            )
        elif why:
            found["allowlist"] = Finding(
                "allowlist", "allow", "critical", f"{_EXCEPTION} {why}"
            )


def _unlisted(effects: list[Effect], listed: frozenset[str]) -> str:
    program = min(one.program for one in effects)
    first, _, rest = program.partition(" ")
    if rest and first.lower() in listed:
        arguments = ", ".join(f'"{show(word)}"' for word in rest.split())
        return (
            f"{show(program)!r} is no program: it is executed as it is, without a shell. Give the program alone as the "
            f'command, "{show(first)}", and its arguments one by one: [{arguments}].'
        )
    names = ", ".join(sorted(listed))
    return f"{show(program)} is not on this policy's list of programs; use one of: {names}."


def _can_be_undone(effect: Effect) -> bool:
    """Whether discarding staged changes undoes it: it changes files of the workspace."""
    changes = effect.kind in ("delete", "write", "chmod") and effect.path_class in (
        "workspace",
        "workspace_root",
    )
    return effect.kind == "vcs.discard" or (
        changes and not effect.flags & {"later", "sudo"}
    )
