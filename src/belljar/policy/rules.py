"""Policy files: from TOML to checked rules. policies/README.md explains them; their schema is policy.schema.json."""

import fnmatch
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from belljar import tables
from belljar.errors import PolicyError, suggestion
from belljar.records import record

from . import expressions
from .toml_files import parse_toml, policies_directory, read_text
from .verdict import Effect

_MATCHES = ("effect", "path", "program", "target", "regex")


@record
class Rule:
    """One rule: what it matches, what it decides, and a reason that tells a model what to do."""

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
        return bool(self.regex) and not (
            self.effect or self.path or self.program or self.target
        )

    def may_match(self, kinds: frozenset[str]) -> bool:
        """Whether it can match effects of these kinds."""
        return not self.effect or any(
            of == kind or of.startswith(kind + ".")
            for kind in self.effect
            for of in kinds
        )

    def matches(self, effect: Effect) -> bool:
        return bool(
            (
                not self.effect
                or any(
                    effect.kind == one or effect.kind.startswith(one + ".")
                    for one in self.effect
                )
            )
            and (not self.path or effect.path_class in self.path)
            and (not self.program or effect.program.lower() in self.program)
            and self.flags <= effect.flags
            and not self.without & effect.flags
            and (not self.any_flags or self.any_flags & effect.flags)
            and (not self.target or expressions.search(self.target, effect.target))
        )


@record
class Allow:
    """An exception: it allows what a rule refuses. The verdict shows its reason."""

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
        if self.path and not any(
            inside(effect.target, pattern) for pattern in self.path
        ):
            return False
        hosts = (
            re.findall(r"(?:^|[@/\s])((?:[\w-]+\.)+[\w-]+)", effect.target)
            if self.host
            else []
        )
        return not self.host or any(
            reaches(pattern, host) for pattern in self.host for host in hosts
        )


@record
class RuleFile:
    """One policy file."""

    name: str
    rules: tuple[Rule, ...]
    description: str = ""
    ask_at: str = "critical"
    ask: str = "ask"
    judge: bool = True
    """False: commands run without being looked at, unless another file of the policy judges."""
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
    return parse_rules(read_text(path), str(path))


def parse_rules(text: str, source: str) -> RuleFile:
    data = parse_toml(text, source)
    if not tables.ships(text):
        _check(data, text, source)
    return _file(data, text, source)


def _check(data: dict[str, Any], text: str, source: str) -> None:
    from .schema import first_problem

    schema_problem = first_problem(data, "policy")
    where, problem = schema_problem if any(schema_problem) else _contradiction(data)
    if problem:
        raise _wrong(source, text, where, problem)


def _wrong(source: str, text: str, where: str, problem: str) -> PolicyError:
    from belljar.toml_schema import line_of

    return PolicyError(f"{source}:{line_of(text, where)}: {problem}")


def _contradiction(data: dict[str, Any]) -> tuple[str, str]:
    """What a schema cannot find: rules that contradict themselves or match nothing, ids that are used twice."""
    names: set[str] = set()
    for at, rule in enumerate(data.get("rule", ())):
        where = f"rule[{at}]"
        name = f"rule {rule['id']}"
        if name in names:
            return where, f"the id {rule['id']} is used twice"
        names.add(name)
        if not set(_MATCHES) & set(rule):
            return where, f"{name} matches nothing: give {', '.join(_MATCHES)}"
        if (
            "risk" in rule
            and "decision" in rule
            and (rule["decision"] == "deny") != (rule["risk"] == "blocked")
        ):
            return where, f"{name}: risk 'blocked' and decision 'deny' go together"
        for key in ("regex", "target"):
            if problem := expressions.fault(rule.get(key, "")):
                return (
                    f"{where}.{key}",
                    f"{name}: {key} is not a regular expression: {problem}",
                )
    for at, allow in enumerate(data.get("allow", ())):
        if not set(allow) - {"reason"}:
            return (
                f"allow[{at}]",
                "an [[allow]] needs a rule, program, path or host that it is for",
            )
    network = data.get("network", {})
    for host in network.get("allow", ()) if "ceiling" in network else ():
        if not any(reaches(limit, host) for limit in network["ceiling"]):
            return (
                "network.allow",
                f"network.allow names {host}, which is beyond the file's own ceiling",
            )
    return "", ""


def check_ids(files: Sequence[RuleFile]) -> None:
    """PolicyError if an exception names a rule that does not exist, or two files have a rule with the same id."""
    ids: dict[str, str] = {"allowlist": "every policy", "text.refused": "every policy"}
    for file in reversed(files):
        for at, rule in enumerate(file.rules):
            if ids.setdefault(rule.id, file.name) != file.name:
                problem = (
                    f"{ids[rule.id]} has a rule {rule.id} already; choose another id"
                )
                raise _wrong(file.source, file.text, f"rule[{at}].id", problem)
        for at, allow in enumerate(file.allows):
            for one in sorted(allow.rule - ids.keys()):
                problem = f"there is no rule {one!r}; {suggestion(one, ids)}"
                raise _wrong(file.source, file.text, f"allow[{at}].rule", problem)


def _file(data: dict[str, Any], text: str, source: str) -> RuleFile:
    head = data["policy"]
    network = data.get("network", {})
    keys = ("name", "description", "ask_at", "ask", "judge", "extends", "default_risk")
    plain = {key: head[key] for key in keys if key in head}
    hosts = {key: tuple(host.lower() for host in network[key]) for key in network}
    return RuleFile(
        **plain,
        rules=tuple(_rule(rule) for rule in data.get("rule", ())),
        allow_programs=frozenset(
            word.lower() for word in _texts(head, "allow_programs")
        ),
        knowledge=tuple(
            str(Path(source).parent / Path(one).expanduser())
            for one in _texts(head, "knowledge")
        ),
        allows=tuple(_allow(one, source) for one in data.get("allow", ())),
        network_allow=hosts.get("allow"),
        network_ceiling=hosts.get("ceiling"),
        text=text,
        source=source,
    )


def _rule(data: dict[str, Any]) -> Rule:
    sets: dict[str, Any] = {
        key: frozenset(_texts(data, key))
        for key in ("path", "flags", "any_flags", "without")
    }
    lists: dict[str, Any] = {
        key: tuple(_texts(data, key)) for key in ("effect", "match", "not_match")
    }
    texts: dict[str, Any] = {
        key: data[key] for key in ("id", "reason", "decision", "target") if key in data
    }
    risk = "blocked" if data.get("decision") == "deny" else data.get("risk", "medium")
    program = frozenset(word.lower() for word in _texts(data, "program"))
    regex = (
        f"{'(?i)' if data.get('ignore_case') else ''}{data['regex']}"
        if "regex" in data
        else ""
    )
    return Rule(**texts, risk=risk, program=program, regex=regex, **sets, **lists)


def _allow(data: dict[str, Any], source: str) -> Allow:
    rule, program, path, host = (
        _texts(data, key) for key in ("rule", "program", "path", "host")
    )
    return Allow(
        data["reason"],
        frozenset(rule),
        frozenset(program),
        tuple(path),
        tuple(host),
        source,
    )


def _texts(data: dict[str, Any], key: str) -> list[str]:
    value = data.get(key, [])
    return [value] if isinstance(value, str) else value


def inside(path: str, pattern: str) -> bool:
    """Whether a path matches a pattern: `/srv/data/**` matches all below, `*` does not match a slash."""
    if pattern.endswith("/**"):
        return path == pattern[:-3] or path.startswith(pattern[:-2])
    return fnmatch.fnmatchcase(path, pattern) and path.count("/") == pattern.count("/")


def reaches(pattern: str, host: str) -> bool:
    """Whether a pattern such as `*.example.net:8443` admits a host; its private address only if the pattern has it."""
    (pattern, _, at), (host, _, addresses) = (
        pattern.lower().partition("="),
        host.lower().partition("="),
    )
    (name, _, port), (other, _, wanted) = pattern.partition(":"), host.partition(":")
    if (port and port != wanted) or not {*addresses.split(",")} <= {"", *at.split(",")}:
        return False
    return name in ("*", other) or (
        name.startswith("*.") and other.removeprefix("*").endswith(name[1:])
    )


def narrowed(
    ours: Iterable[str] | None, theirs: Iterable[str] | None
) -> tuple[str, ...] | None:
    """The hosts that both lists admit. None admits all."""
    if ours is None or theirs is None:
        if ours is not None:
            return tuple(ours)
        return tuple(theirs) if theirs is not None else None
    first = list(ours)
    second = list(theirs)
    both = [one for one in first if any(reaches(other, one) for other in second)]
    return tuple(
        dict.fromkeys(
            both
            + [one for one in second if any(reaches(other, one) for other in first)]
        )
    )
