"""Policy files: TOML in, checked rules out. The manual of the format is policies/README.md."""

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from belljar.errors import PolicyError

from .effects import DECISIONS, RISKS, Effect
from .layers import HOST, Allow
from .quoting import listed

_POLICY_KEYS = {*listed("name description extends ask_at ask allow_programs default_risk knowledge")}
_ALLOW_KEYS = {*listed("rule program path host reason")}
_RULE_KEYS = {
    *listed(
        "id effect path flags any_flags without program target regex ignore_case risk decision reason match not_match"
    )
}
_PATHS = {*listed("root system home workspace_root workspace scratch secret device kernel exec_hook elsewhere unknown")}


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: what it matches, what it means, and a reason that a model can act on."""

    id: str
    risk: str
    reason: str
    decision: str = ""
    effect: tuple[str, ...] = ()
    path: frozenset[str] = frozenset()
    flags: frozenset[str] = frozenset()
    any_flags: frozenset[str] = frozenset()
    without: frozenset[str] = frozenset()
    program: frozenset[str] = frozenset()
    target: re.Pattern[str] | None = None
    regex: re.Pattern[str] | None = None
    match: tuple[str, ...] = ()
    not_match: tuple[str, ...] = ()

    @property
    def only_text(self) -> bool:
        return self.regex is not None and not (self.effect or self.path or self.program or self.target)

    def speaks_of(self, kinds: frozenset[str]) -> bool:
        """Whether it could match effects of these kinds at all."""
        return not self.effect or any(of == kind or of.startswith(kind + ".") for kind in self.effect for of in kinds)

    def matches(self, effect: Effect) -> bool:
        if self.effect and not any(effect.kind == kind or effect.kind.startswith(kind + ".") for kind in self.effect):
            return False
        if (self.path and effect.path_class not in self.path) or (
            self.program and effect.program.lower() not in self.program
        ):
            return False
        if (
            not self.flags <= effect.flags
            or self.without & effect.flags
            or (self.any_flags and not self.any_flags & effect.flags)
        ):
            return False
        return self.target is None or self.target.search(effect.target) is not None


@dataclass(frozen=True, slots=True)
class RuleFile:
    """What one file says."""

    name: str
    rules: tuple[Rule, ...]
    ask_at: str = "critical"
    ask: str = "ask"
    extends: str = ""
    allow_programs: frozenset[str] = frozenset()
    default_risk: str = "low"
    knowledge: tuple[str, ...] = ()
    allows: tuple[Allow, ...] = ()
    network_allow: tuple[str, ...] | None = None
    network_ceiling: tuple[str, ...] | None = None
    text: str = ""
    source: str = ""


def read_rules(path: Path) -> RuleFile:
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PolicyError(f"{path}: cannot be read: {error}") from error
    return parse_rules(text, str(path))


def parse_rules(text: str, source: str) -> RuleFile:
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise PolicyError(f"{source}: {error}") from error
    return _Reader(text, source).file(data)


class _Reader:
    """Turns parsed TOML into rules; every complaint names file, line and reason."""

    def __init__(self, text: str, source: str) -> None:
        self.text, self.source = text, source
        self.starts = [number for number, line in enumerate(text.splitlines(), 1) if line.strip() == "[[rule]]"]

    def file(self, data: dict[str, Any]) -> RuleFile:
        self._known(set(data), {"policy", "rule", "allow", "network"}, 1, "table")
        head = data.get("policy", {})
        if not isinstance(head, dict) or not isinstance(head.get("name"), str):
            raise self._error(1, "a [policy] table with a name is needed")
        self._known(set(head), _POLICY_KEYS, self._line("[policy]"), "key")
        ask_at = self._choice(head, "ask_at", (*RISKS, "never"), "critical", self._line("ask_at"))
        rules = data.get("rule", [])
        if not isinstance(rules, list):
            raise self._error(self._line("[rule"), "rules are written [[rule]]")
        found = tuple(
            self._rule(rule, self.starts[index] if index < len(self.starts) else 1) for index, rule in enumerate(rules)
        )
        self._unique(found)
        return RuleFile(
            name=head["name"],
            rules=found,
            ask_at=ask_at,
            ask=self._choice(head, "ask", ("ask", "deny"), "ask", self._line("ask")),
            extends=self._string(head, "extends", self._line("extends")),
            allow_programs=frozenset(
                word.lower() for word in self._strings(head, "allow_programs", self._line("allow_programs"))
            ),
            default_risk=self._choice(head, "default_risk", RISKS[:4], "low", self._line("default_risk")),
            knowledge=tuple(self._beside(path) for path in self._strings(head, "knowledge", self._line("knowledge"))),
            allows=tuple(self._allow(one) for one in self._tables(data, "allow")),
            network_allow=self._hosts(data, "allow"),
            network_ceiling=self._hosts(data, "ceiling"),
            text=self.text,
            source=self.source,
        )

    def _beside(self, path: str) -> str:
        """A knowledge file's name is meant from where the policy file is."""
        return str(Path(self.source).parent / Path(path).expanduser())

    def _tables(self, data: dict[str, Any], name: str) -> list[dict[str, Any]]:
        found = data.get(name, [])
        if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
            raise self._error(self._line(f"[{name}"), f"{name}s are written [[{name}]]")
        return found

    def _allow(self, data: dict[str, Any]) -> Allow:
        line = self._line("[[allow]]")
        self._known(set(data), _ALLOW_KEYS, line, "key")
        reason = self._string(data, "reason", line)
        if not reason.strip() or not set(data) - {"reason"}:
            raise self._error(line, "an [[allow]] needs a reason, and a rule, program, path or host that it is for")
        rule, program, path, host = (self._strings(data, key, line) for key in ("rule", "program", "path", "host"))
        return Allow(reason, frozenset(rule), frozenset(program), tuple(path), tuple(host), self.source)

    def _hosts(self, data: dict[str, Any], key: str) -> tuple[str, ...] | None:
        table, line = data.get("network", {}), self._line("[network]")
        if not isinstance(table, dict):
            raise self._error(line, "the network's settings are written [network]")
        self._known(set(table), {"allow", "ceiling"}, line, "key")
        hosts = self._strings(table, key, line)
        for host in hosts:
            if not HOST.fullmatch(host) or not 0 < int(host.partition(":")[2] or 1) < 65536:
                raise self._error(
                    line, f"network.{key}: {host!r} is no host, such as 'api.example.com' or '*.example.net:8443'"
                )
        return tuple(host.lower() for host in hosts) if key in table else None

    def _rule(self, data: dict[str, Any], line: int) -> Rule:
        self._known(set(data), _RULE_KEYS, line, "key")
        identity = self._string(data, "id", line)
        if not re.fullmatch(r"[a-z0-9]+([.-][a-z0-9]+)*", identity):
            raise self._error(line, f"a rule needs an id such as 'delete.root', not {identity!r}")
        if not self._string(data, "reason", line):
            raise self._error(line, f"rule {identity} needs a reason")
        if not {"effect", "regex", "program", "path", "target"} & set(data):
            raise self._error(line, f"rule {identity} matches nothing: give effect, path, program, target or regex")
        risk = self._choice(data, "risk", RISKS, "", line)
        decision = self._choice(data, "decision", DECISIONS, "", line)
        if (decision == "deny") != (risk == "blocked") and decision and risk:
            raise self._error(line, f"rule {identity}: risk 'blocked' and decision 'deny' go together")
        paths = self._strings(data, "path", line)
        self._known(set(paths), _PATHS, line, "path class")
        return Rule(
            id=identity,
            risk="blocked" if decision == "deny" else risk or "medium",
            decision=decision,
            reason=data["reason"],
            effect=tuple(self._strings(data, "effect", line)),
            path=frozenset(paths),
            flags=frozenset(self._strings(data, "flags", line)),
            any_flags=frozenset(self._strings(data, "any_flags", line)),
            without=frozenset(self._strings(data, "without", line)),
            program=frozenset(word.lower() for word in self._strings(data, "program", line)),
            target=self._regex(data, "target", line),
            regex=self._regex(data, "regex", line),
            match=tuple(self._strings(data, "match", line)),
            not_match=tuple(self._strings(data, "not_match", line)),
        )

    def _unique(self, rules: tuple[Rule, ...]) -> None:
        seen: set[str] = set()
        for index, rule in enumerate(rules):
            if rule.id in seen:
                raise self._error(
                    self.starts[index] if index < len(self.starts) else 1, f"the id {rule.id} is used twice"
                )
            seen.add(rule.id)

    def _known(self, given: set[str], allowed: set[str], line: int, what: str) -> None:
        unknown = sorted(given - allowed)
        if unknown:
            raise self._error(line, f"unknown {what} {unknown[0]!r}")

    def _string(self, data: dict[str, Any], key: str, line: int) -> str:
        value = data.get(key, "")
        if not isinstance(value, str):
            raise self._error(line, f"{key} is text, not {value!r}")
        return value

    def _strings(self, data: dict[str, Any], key: str, line: int) -> list[str]:
        value = data.get(key, [])
        value = [value] if isinstance(value, str) else value
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self._error(line, f"{key} is a list of text")
        return value

    def _choice(self, data: dict[str, Any], key: str, choices: tuple[str, ...], default: str, line: int) -> str:
        value = data.get(key, default)
        if value != default and value not in choices:
            raise self._error(line, f"{key} is one of {', '.join(choices)}, not {value!r}")
        return str(value)

    def _regex(self, data: dict[str, Any], key: str, line: int) -> re.Pattern[str] | None:
        text = self._string(data, key, line)
        try:
            return re.compile(text, re.I if data.get("ignore_case") else 0) if text else None
        except re.error as error:
            raise self._error(line, f"{key} is not a regular expression: {error}") from error

    def _line(self, start: str) -> int:
        return next(
            (number for number, line in enumerate(self.text.splitlines(), 1) if line.strip().startswith(start)), 1
        )

    def _error(self, line: int, reason: str) -> PolicyError:
        return PolicyError(f"{self.source}:{line}: {reason}")
