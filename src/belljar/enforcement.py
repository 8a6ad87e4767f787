"""What the operator of this machine enforces: the tables [enforce] and [quota] of /etc/belljar/config.toml.

Sessions and hosts ask here themselves, so it binds every surface: the command line, MCP, the service, and Python
programs that use Belljar as it is. It cannot bind a program that changes Belljar in its own process, or users who can
talk to an engine directly: those need no Belljar to start a container.

    memory, cpus … timeout, lease      the most
    policy, network, changes …         exactly this (image, engine, runtime: one of these)
    root, debug, allow_home, yes       false: refused
    mounts, cache                      directories that may be mounted (or what is below them); names of caches
    audit, state                       how the trail is kept ("on" or "required"), and where (or below)
    trail                              where its records must arrive too, or nothing runs (collector, journald, syslog)

Where nothing is given, the enforced value is the default. Whatever is given otherwise is refused, never changed; only a
command's timeout is cut to the ceiling.

[quota] bounds what all sandboxes of one user take together: sessions, memory, cpus, disk. [quota.NAME] is for one user,
and replaces what [quota] says of the same name. Root has only what [quota.root] says. `sandbox/quota.py` counts.

[trail] is how audit trails are kept: `to` (more places for their records), rotate_size, rotate_age, keep, collector.
"""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Collection, Mapping
from dataclasses import field, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from belljar import limits as limiting
from belljar.ancestry import untrusted
from belljar.audit.elsewhere import COLLECTOR, opened
from belljar.audit.elsewhere import NAMES as PLACES
from belljar.errors import UsageError, suggestion
from belljar.limits import Limits
from belljar.options import FIELDS, SandboxOptions, parse_seconds
from belljar.records import record

if TYPE_CHECKING:
    from belljar.policy import Policy

OPERATOR = Path("/etc/belljar/config.toml")
TABLE, QUOTA, TRAIL = "enforce", "quota", "trail"
TABLES = (TABLE, QUOTA, TRAIL)
COUNTED = ("sessions", "memory", "cpus", "disk")
"""What a quota bounds."""
SIZES = tuple(one.name for one in fields(Limits))
TIMES = ("timeout", "lease")
LISTED = ("image", "engine", "runtime", "mounts", "cache", "trail")
SWITCHES = (
    "yes",
    *(
        name
        for name, one in FIELDS.items()
        if isinstance(one.default, bool) and one.metadata["help"]
    ),
)
EXACT = ("policy", "network", "changes", "checkpoints", "audit", "state")
KNOWN = (*SIZES, *TIMES, *LISTED, *SWITCHES, *EXACT)
TRAILS = ("off", "on", "required")
NO_HOSTS = '[policy]\nname = "enforced"\n[network]\nceiling = []'

Table = Mapping[str, tuple[Any, ...]]
"""The allowed values of each enforced setting."""
Amounts = Mapping[str, float]
"""Of what is COUNTED: how much."""


def read_trusted(path: Path) -> dict[str, Any]:
    """A settings file. What is judged is what is read: another user may swap the file meanwhile (`sudo` with the
    caller's HOME)."""
    try:
        file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError as error:
        if not os.path.lexists(
            path
        ):  # also if a directory on the way cannot be searched
            return {}
        raise UsageError(f"{path}: {error.strerror}") from None
    with file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):  # such as BELLJAR_CONFIG=/dev/null
            return {}
        if status.st_uid not in (0, os.geteuid()) or status.st_mode & 0o022:
            raise UsageError(
                f"{path} can be written by other users, so it is not read; run chmod go-w on it, and own it"
            )
        if (
            found := untrusted(path)
        ):  # their link may lead to a file of ours, whose paths would be relative to theirs
            raise UsageError(
                f"{path} is not read: others own {found} or may write to it; BELLJAR_CONFIG names another"
            )
        import tomllib

        try:
            return tomllib.loads(file.read())
        except (OSError, ValueError) as error:
            raise UsageError(f"{path}: {error}") from None


def beside(text: str, path: Path) -> str:
    """Relative to the settings file: a repository could put its own file into the current directory."""
    return os.path.normpath(path.absolute().parent / Path(text).expanduser())


def policy_file(text: str, path: Path) -> str:
    from belljar.policy import BUILT_IN

    if text in BUILT_IN:
        return text
    file = beside(text, path)
    if not os.path.isfile(file):
        raise UsageError(
            f"{path}: no policy {file!r}: give a file, or one of {', '.join(BUILT_IN)}"
        )
    return file


def amount(name: str, value: Any) -> float | None:
    """The number of a size, a count or a time; None for other settings."""
    if name in SIZES:
        return limiting.checked(name, value)
    return parse_seconds(str(value)) if name in TIMES else None


@record
class Trail:
    """How audit trails are kept."""

    to: tuple[str, ...] = ()
    """Where records go besides the trail's file."""
    rotate_size: int = 16 << 20
    rotate_age: float = 0
    """Seconds from a file's first record; 0: at no age."""
    keep: int = 64
    """Rotated files."""
    collector: str = COLLECTOR

    def options(self) -> dict[str, Any]:
        """For `Audit`."""
        return {
            "to": opened(self.to, self.collector),
            "rotate_at": self.rotate_size,
            "rotate_after": self.rotate_age,
            "keep": self.keep,
        }


@record
class _Operator:
    """What the operator's file says."""

    table: Table = field(default_factory=dict)
    quotas: Mapping[str, Amounts] = field(default_factory=dict)
    """By the user's name; empty: for all but root."""
    trail: Trail = field(default_factory=Trail)


def table() -> Table:
    """What is enforced now. The file is read again when it has changed."""
    return _now().table


def _now() -> _Operator:
    try:
        status = os.stat(OPERATOR)
    except OSError:
        return _read(OPERATOR, None) if os.path.lexists(OPERATOR) else _Operator()
    return _read(
        OPERATOR, (status.st_ino, status.st_mtime_ns, status.st_size, status.st_mode)
    )


@lru_cache(maxsize=4)
def _read(path: Path, _: object) -> _Operator:
    given = read_trusted(path)
    enforced = _table_of(given, TABLE, path)
    return _Operator(
        {name: _allowed(name, value, path) for name, value in enforced.items()},
        _quotas(_table_of(given, QUOTA, path), path),
        _trail(_table_of(given, TRAIL, path), path),
    )


def _table_of(given: dict[str, Any], name: str, path: Path) -> dict[str, Any]:
    found = given.get(name, {})
    if not isinstance(found, dict):
        raise UsageError(f"{path}: {name} is not a table")
    return found


def _allowed(name: str, value: Any, path: Path) -> tuple[Any, ...]:
    if name not in KNOWN:
        raise UsageError(
            f"{path}: there is no setting {name!r}; {suggestion(name, KNOWN)}"
        )
    if name in SWITCHES:
        if not isinstance(value, bool):
            raise UsageError(f"{path}: {name} must be true or false")
        return (value,)
    values = value if isinstance(value, list) and name in LISTED else [value]
    if any(
        isinstance(each, bool) or not isinstance(each, str | int | float)
        for each in values
    ):
        raise UsageError(f"{path}: {name} must be text or a number")
    if not values and name not in ("mounts", "cache"):
        raise UsageError(f"{path}: {name} must be text or a number")
    return tuple(_value(name, str(each), path) for each in values)


def _value(name: str, text: str, path: Path) -> str:
    try:
        amount(name, text)
    except ValueError as error:
        raise UsageError(
            f"{path}: {error if name in SIZES else f'{name}: {error}'}"
        ) from None
    if name == "policy":
        return policy_file(text, path)
    if name in ("mounts", "state") or (name == "runtime" and "/" in text):
        return beside(text, path)
    if name == TRAIL and text not in PLACES:
        raise UsageError(f"{path}: trail is {text!r}; choose from {', '.join(PLACES)}")
    if name == "audit" and text not in TRAILS[1:]:
        raise UsageError(
            f"{path}: audit is {text!r}; choose from {', '.join(TRAILS[1:])}"
        )
    return text


def within(name: str, value: Any, allowed: tuple[Any, ...]) -> bool:
    most = amount(name, allowed[0]) if allowed else None
    if value is None or most is None:
        return str(value) in map(str, allowed)
    return (amount(name, value) or 0) <= most


def refusal(name: str, allowed: tuple[Any, ...]) -> UsageError:
    if name in SWITCHES:
        return UsageError(
            f"{name} is {'required' if allowed[0] else 'not allowed'} on this machine ({_SOURCE})"
        )
    if not allowed:
        return UsageError(f"{name}: none is allowed on this machine ({_SOURCE})")
    must = "must be" if amount(name, allowed[0]) is None else "may be at most"
    return UsageError(f"{name} {must} {either(allowed)} on this machine ({_SOURCE})")


_SOURCE = f"{OPERATOR} enforces it"


def either(choices: tuple[Any, ...]) -> str:
    return " or ".join(
        filter(None, (", ".join(map(str, choices[:-1])), str(choices[-1])))
    )


# Quotas.


def quota(uid: int) -> Amounts:
    """What this user's sandboxes may take together; what is not bounded is left out."""
    quotas = _now().quotas
    if not quotas:
        return {}
    own = quotas.get(user_name(uid), {})
    return own if uid == 0 else {**quotas.get("", {}), **own}


def user_name(uid: int) -> str:
    """Of the account; the number where there is none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _quotas(given: dict[str, Any], path: Path) -> dict[str, Amounts]:
    users = {name: value for name, value in given.items() if isinstance(value, dict)}
    everybody = {name: value for name, value in given.items() if name not in users}
    named = {f"{QUOTA}.{name}": value for name, value in users.items()}
    return {
        table.partition(".")[2]: {
            name: _most(table, name, value, path) for name, value in amounts.items()
        }
        for table, amounts in {QUOTA: everybody, **named}.items()
        if amounts
    }


def _most(table: str, name: str, value: Any, path: Path) -> float:
    if name not in COUNTED:
        raise UsageError(
            f"{path}: [{table}] has no {name!r}; {suggestion(name, COUNTED)}"
        )
    read = limiting.parse_size if name in ("memory", "disk") else float
    try:
        most = float("nan") if isinstance(value, bool) else float(read(value))
    except (ValueError, TypeError, OverflowError) as error:
        raise UsageError(f"{path}: [{table}] {name}: {error}") from None
    if not 0 <= most < float("inf"):
        raise UsageError(f"{path}: [{table}] {name} is not an amount: {value!r}")
    return most


# Sessions.


def filled(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a caller, with what is enforced where he says nothing."""
    now = table()
    own: dict[str, Any] = {
        name: now[name][0]
        for name in now
        if name in FIELDS and name not in ("mounts", "cache")
    }
    if "lease" in own:
        usual_lease = float(FIELDS["lease"].default)  # type: ignore[arg-type]
        own["lease"] = min(usual_lease, parse_seconds(str(own["lease"])))
    if sizes := [name for name in now if name in SIZES]:
        usual = Limits()
        own["limits"] = Limits(
            **{
                name: now[name][0]
                for name in sizes
                if not within(name, getattr(usual, name), now[name])
            }
        )
    return own | dict(given)


def bound(options: SandboxOptions, *, runs: bool = False) -> SandboxOptions:
    """The options, with what holds for the commands of each session; UsageError if one is not allowed. `runs`: the
    sandbox was checked when it began, and only what a session adds is looked at."""
    now = table()
    if not now:
        return options
    for name in () if runs else now:
        if not _is_allowed(name, options, now[name]):
            raise refusal(name, now[name])
    if "policy" in now:
        _check_policy(options.policy, now["policy"])
    if now.get("network") == ("none",):
        if options.network != "none":
            raise refusal("network", now["network"])
        options = replace(options, policy=_loaded(options.policy).tighten(_no_hosts()))
    if "timeout" in now:
        most = parse_seconds(str(now["timeout"][0]))
        options = replace(options, longest=min(options.longest or most, most))
    return options


def _is_allowed(name: str, options: SandboxOptions, allowed: tuple[Any, ...]) -> bool:
    if name in SIZES:
        return within(name, getattr(options.limits, name), allowed)
    if name == "mounts":
        return all(_is_below(source, allowed) for _, source in options.mounts)
    if name == "cache":
        return all(cache in allowed for cache, _ in options.cache)
    if name in ("image", "lease", "network", "changes", "checkpoints") or (
        name in SWITCHES and name in FIELDS
    ):
        return within(name, getattr(options, name), allowed)
    return True


def _is_below(source: str, allowed: tuple[Any, ...]) -> bool:
    real = Path(os.path.realpath(source))
    return any(real.is_relative_to(os.path.realpath(place)) for place in allowed)


def _check_policy(policy: str | Policy, allowed: tuple[Any, ...]) -> None:
    """It is the enforced one, or that one with others on top, which can only tighten it."""
    if policy == allowed[0]:
        return
    enforced = _loaded(allowed[0])
    texts = [file.text for file in enforced.files]
    own = _loaded(policy)
    if [file.text for file in own.files[: len(texts)]] != texts or own.trusted > len(
        texts
    ):
        raise refusal("policy", allowed)


def _loaded(policy: str | Policy) -> Policy:
    from belljar.policy import BUILT_IN, Policy

    # The examples of shipped policies are checked before they first judge: that takes long, and this runs on loops.
    return (
        Policy.load(policy, prove=policy not in BUILT_IN)
        if isinstance(policy, str)
        else policy
    )


def _no_hosts() -> Policy:
    from belljar.policy import Policy

    return Policy.parse(NO_HOSTS)


# Hosts.


def check_engine(name: str, runtime: str) -> None:
    """UsageError unless this engine, and the runtime that was chosen (empty: its own), are allowed."""
    now = table()
    if "engine" in now and name not in now["engine"]:
        raise refusal("engine", now["engine"])
    if "runtime" in now and runtime not in now["runtime"]:
        raise refusal("runtime", now["runtime"])


def chosen(name: str, given: str) -> str:
    """The engine or runtime to use: what was given, or else the first that is allowed."""
    return given or next(iter(table().get(name, ())), "")


def trail(mode: str) -> str:
    """How to keep the trail, where `mode` was asked for (empty: nothing was)."""
    now = table().get("audit")
    if TRAIL in table():
        now = ("required",)
    if now is None:
        return mode or "on"
    if mode and mode in TRAILS and TRAILS.index(mode) < TRAILS.index(now[0]):
        raise refusal("audit", now)
    return mode if mode not in ("", "on") else str(now[0])


def kept_trail(asked: str) -> Trail:
    """How trails are kept. `asked`: more places for their records, as BELLJAR_TRAIL names them."""
    more = [word for word in asked.replace(",", " ").split() if word != "file"]
    for word in more:
        if word not in PLACES:
            raise UsageError(
                f"BELLJAR_TRAIL: {word!r} is no place for records; choose from {', '.join(PLACES)}"
            )
    now = _now()
    to = dict.fromkeys((*now.table.get(TRAIL, ()), *now.trail.to, *more))
    return replace(now.trail, to=tuple(to))


def check_places(to: Collection[str]) -> None:
    """For a caller's own trail: UsageError unless its records go where they must."""
    allowed = table().get(TRAIL, ())
    if not set(allowed) <= set(to):
        raise UsageError(
            f"audit: its records must go to {' and '.join(allowed)} on this machine ({_SOURCE})"
        )


def _trail(given: dict[str, Any], path: Path) -> Trail:
    known = [one.name for one in fields(Trail)]
    for name in given:
        if name not in known:
            raise UsageError(
                f"{path}: [trail] has no {name!r}; {suggestion(name, known)}"
            )
    to = given.get("to", [])
    to = [to] if isinstance(to, str) else to
    if not isinstance(to, list) or not all(each in PLACES for each in to):
        raise UsageError(
            f"{path}: [trail] to is {to!r}; choose from {', '.join(PLACES)}"
        )
    usual = Trail()
    try:
        return Trail(
            tuple(to),
            max(1 << 10, limiting.parse_size(given.get("rotate_size", 16 << 20))),
            parse_seconds(str(given["rotate_age"])) if "rotate_age" in given else 0,
            max(1, int(given.get("keep", usual.keep))),
            beside(str(given.get("collector", usual.collector)), path),
        )
    except (ValueError, TypeError) as error:
        raise UsageError(f"{path}: [trail] {error}") from None


def refuse_own_trail() -> None:
    """For a caller's own trail: UsageError where the operator says how or where it is kept."""
    if table().keys() & {"audit", "state", TRAIL}:
        raise UsageError(f"audit: the trail is the host's on this machine ({_SOURCE})")


def state(given: Path) -> Path:
    """The state directory, where `given` would be used."""
    now = table().get("state")
    if now is not None and not _is_below(str(given), now):
        raise UsageError(
            f"the state directory must be {now[0]}, or below it, not {given}, on this machine ({_SOURCE})"
        )
    return given
