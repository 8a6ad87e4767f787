"""Policy files: TOML in, checked rules out. Their manual is policies/README.md, their schema policy.schema.json.

The files that the operator named are trusted; whatever is laid on top of them may only tighten.
"""

import fnmatch
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from belljar import tables
from belljar.errors import PolicyError, suggestion
from belljar.records import record

from . import expressions
from .knowledge import policies_directory
from .verdict import Effect

_MATCHES = ("effect", "path", "program", "target", "regex")


@record
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
    target: str = ""
    regex: str = ""
    match: tuple[str, ...] = ()
    not_match: tuple[str, ...] = ()

    @property
    def only_text(self) -> bool:
        return bool(self.regex) and not (self.effect or self.path or self.program or self.target)

    def speaks_of(self, kinds: frozenset[str]) -> bool:
        """Whether it could match effects of these kinds at all."""
        return not self.effect or any(of == kind or of.startswith(kind + ".") for kind in self.effect for of in kinds)

    def matches(self, effect: Effect) -> bool:
        return bool(
            (not self.effect or any(effect.kind == one or effect.kind.startswith(one + ".") for one in self.effect))
            and (not self.path or effect.path_class in self.path)
            and (not self.program or effect.program.lower() in self.program)
            and self.flags <= effect.flags
            and not self.without & effect.flags
            and (not self.any_flags or self.any_flags & effect.flags)
            and (not self.target or expressions.search(self.target, effect.target))
        )


@record
class Allow:
    """An exception: what it names is allowed although a rule says otherwise, for a reason that shows in the verdict."""

    reason: str
    rule: frozenset[str] = frozenset()
    program: frozenset[str] = frozenset()
    path: tuple[str, ...] = ()
    host: tuple[str, ...] = ()
    source: str = ""

    def covers(self, rule: str, effect: Effect) -> bool:
        another = self.program and not self.program & {effect.program, *effect.trail}
        if another or (self.rule and rule not in self.rule):
            return False
        if self.path and not any(inside(effect.target, pattern) for pattern in self.path):
            return False
        hosts = re.findall(r"(?:^|[@/\s])((?:[\w-]+\.)+[\w-]+)", effect.target) if self.host else []
        return not self.host or any(reaches(pattern, host) for pattern in self.host for host in hosts)


@record
class RuleFile:
    """What one file says."""

    name: str
    rules: tuple[Rule, ...]
    description: str = ""
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

    @property
    def shipped(self) -> bool:
        return Path(self.source).parent == policies_directory()


def read_rules(path: Path) -> RuleFile:
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PolicyError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    return parse_rules(text, str(path))


def parse_rules(text: str, source: str) -> RuleFile:
    try:
        data = tables.parsed(text)
    except ValueError as error:  # of tomllib
        raise PolicyError(f"{source}: {error}") from error
    if not tables.ships(text):
        _check(data, text, source)
    return _file(data, text, source)


def _check(data: dict[str, Any], text: str, source: str) -> None:
    from .schema import complaint

    where, problem = complaint(data, "policy")
    if not problem:
        where, problem = _nonsense(data)
    if problem:
        raise _wrong(source, text, where, problem)


def _wrong(source: str, text: str, where: str, problem: str) -> PolicyError:
    from belljar.toml_schema import line_of

    return PolicyError(f"{source}:{line_of(text, where)}: {problem}")


def _nonsense(data: dict[str, Any]) -> tuple[str, str]:
    """What a schema cannot see: a rule that contradicts itself or matches nothing, an id that is used twice."""
    seen: set[str] = set()
    for at, rule in enumerate(data.get("rule", ())):
        where, told, identity = f"rule[{at}]", f"rule {rule['id']}", rule["id"]
        if identity in seen:
            return where, f"the id {identity} is used twice"
        seen.add(identity)
        if not set(_MATCHES) & set(rule):
            return where, f"{told} matches nothing: give {', '.join(_MATCHES)}"
        if "risk" in rule and "decision" in rule and (rule["decision"] == "deny") != (rule["risk"] == "blocked"):
            return where, f"{told}: risk 'blocked' and decision 'deny' go together"
        for key in ("regex", "target"):
            if problem := expressions.fault(rule.get(key, "")):
                return f"{where}.{key}", f"{told}: {key} is not a regular expression: {problem}"
    for at, allow in enumerate(data.get("allow", ())):
        if not set(allow) - {"reason"}:
            return f"allow[{at}]", "an [[allow]] needs a rule, program, path or host that it is for"
    network = data.get("network", {})
    for host in network.get("allow", ()) if "ceiling" in network else ():
        if not any(reaches(limit, host) for limit in network["ceiling"]):
            return "network.allow", f"network.allow names {host}, which is beyond the file's own ceiling"
    return "", ""


def check_ids(files: Sequence[RuleFile]) -> None:
    """An exception names a rule that is there, and a rule of one's own does not take the place of another."""
    ids: dict[str, str] = {"allowlist": "every policy", "text.refused": "every policy"}
    for file in reversed(files):
        for at, rule in enumerate(file.rules):
            if ids.setdefault(rule.id, file.name) != file.name:
                told = f"{ids[rule.id]} has a rule {rule.id} already; choose another id"
                raise _wrong(file.source, file.text, f"rule[{at}].id", told)
        for at, allow in enumerate(file.allows):
            for one in sorted(allow.rule - ids.keys()):
                told = f"there is no rule {one!r}; {suggestion(one, ids)}"
                raise _wrong(file.source, file.text, f"allow[{at}].rule", told)


def _file(data: dict[str, Any], text: str, source: str) -> RuleFile:
    head, network = data["policy"], data.get("network", {})
    keys = ("name", "description", "ask_at", "ask", "extends", "default_risk")
    plain = {key: head[key] for key in keys if key in head}
    hosts = {key: tuple(host.lower() for host in network[key]) for key in network}
    return RuleFile(
        **plain,
        rules=tuple(_rule(rule) for rule in data.get("rule", ())),
        allow_programs=frozenset(word.lower() for word in _texts(head, "allow_programs")),
        knowledge=tuple(str(Path(source).parent / Path(one).expanduser()) for one in _texts(head, "knowledge")),
        allows=tuple(_allow(one, source) for one in data.get("allow", ())),
        network_allow=hosts.get("allow"),
        network_ceiling=hosts.get("ceiling"),
        text=text,
        source=source,
    )


def _rule(data: dict[str, Any]) -> Rule:
    decision, case = data.get("decision", ""), "(?i)" if data.get("ignore_case") else ""
    sets: dict[str, Any] = {key: frozenset(_texts(data, key)) for key in ("path", "flags", "any_flags", "without")}
    lists: dict[str, Any] = {key: tuple(_texts(data, key)) for key in ("effect", "match", "not_match")}
    return Rule(
        id=data["id"],
        reason=data["reason"],
        decision=decision,
        risk="blocked" if decision == "deny" else data.get("risk", "medium"),
        program=frozenset(word.lower() for word in _texts(data, "program")),
        target=data.get("target", ""),
        regex=case + data["regex"] if "regex" in data else "",
        **sets,
        **lists,
    )


def _allow(data: dict[str, Any], source: str) -> Allow:
    rule, program, path, host = (_texts(data, key) for key in ("rule", "program", "path", "host"))
    return Allow(data["reason"], frozenset(rule), frozenset(program), tuple(path), tuple(host), source)


def _texts(data: dict[str, Any], key: str) -> list[str]:
    value = data.get(key, [])
    return [value] if isinstance(value, str) else value


def inside(path: str, pattern: str) -> bool:
    """Whether a path is the one that is named, below it (`/srv/data/**`), or of its shape."""
    if pattern.endswith("/**"):
        return path == pattern[:-3] or path.startswith(pattern[:-2])
    return fnmatch.fnmatchcase(path, pattern) and path.count("/") == pattern.count("/")


def reaches(pattern: str, host: str) -> bool:
    """Whether a host, or a narrower pattern, lies within a pattern: `*.example.net`, `api.example.com:8443`, `*`.
    A private address that a host may have (`pkg.example=10.0.0.5`) lies within a pattern that names it too."""
    (pattern, _, at), (host, _, addresses) = pattern.lower().partition("="), host.lower().partition("=")
    (name, _, port), (other, _, wanted) = pattern.partition(":"), host.partition(":")
    if (port and port != wanted) or not {*addresses.split(",")} <= {"", *at.split(",")}:
        return False
    return name in ("*", other) or (name.startswith("*.") and other.removeprefix("*").endswith(name[1:]))


def narrowed(ours: Iterable[str] | None, theirs: Iterable[str] | None) -> tuple[str, ...] | None:
    """The hosts that both lists let through; a list that is not given does not narrow the other."""
    if ours is None or theirs is None:
        return tuple(ours) if ours is not None else tuple(theirs) if theirs is not None else None
    first, second = list(ours), list(theirs)
    both = [one for one in first if any(reaches(other, one) for other in second)]
    return tuple(dict.fromkeys(both + [one for one in second if any(reaches(other, one) for other in first)]))
