"""`SandboxOptions`: everything that describes a sandbox and its session, in one frozen record.

Sessions, pools, the command line, the settings and the files of kept sessions share it. A new option is a field here,
with its check and the help that people read; whatever acts on it (an engine, the session) is the only other place.
Live things (an approver, the audit trail, a host) are not options: they cannot be written down.

    SandboxOptions(".", image="python", mounts={"/data": "/srv/corpus"})        checked, or UsageError
    SandboxOptions.restored(options.as_dict())                                  the same again, from JSON

All values are checked once, before anything starts. A `UsageError` names the option, its value and what would be right.
"""

from __future__ import annotations

import json
import os
import posixpath
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import Field, field, fields, replace
from math import isfinite
from typing import TYPE_CHECKING, Any, Literal, Self, TypedDict, Unpack, get_args

from belljar.engines.spec import Network
from belljar.errors import UsageError, WorkspaceError, suggestion
from belljar.layout import HOME, PRIVATE, WORKSPACE
from belljar.limits import Limits
from belljar.patterns import lazy_pattern
from belljar.records import record

if TYPE_CHECKING:
    from belljar.network.allow import Allow
    from belljar.policy import Policy

Changes = Literal["direct", "staged"]
Checkpoints = Literal["off", "auto"]
OnClose = Literal["keep", "discard", "apply"]
Pairs = tuple[tuple[str, str], ...]
AUTHOR = lazy_pattern(r"([^<>\x00-\x1f\x7f]{1,200}) <([^<>\s\x00-\x1f\x7f]{1,200})>")


class Here(str):
    """The current directory, where nobody named one. A far host is not sent it unasked."""

    __slots__ = ()


HERE = Here(".")
SESSION_NAME = lazy_pattern(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
SESSION_ID = lazy_pattern(r"bj-[0-9a-f]{12}")
MOST_METADATA = 4096
LONGEST_SECONDS = (
    4_000_000.0  # 46 days: what fits into the init's 32 bits of milliseconds
)
MOST_MOUNTS = 16
ACCOUNT = lazy_pattern(r"[a-z][a-z0-9_-]{0,31}")
SYSTEM_ACCOUNTS = (
    "root",
    "daemon",
    "bin",
    "sys",
    "sync",
    "games",
    "man",
    "lp",
    "mail",
    "news",
    "uucp",
    "proxy",
    "www-data",
    "backup",
    "list",
    "irc",
    "nobody",
    "systemd-network",
    "messagebus",
    "sshd",
    "postgres",
    "mysql",
)
_ZONE = lazy_pattern(r"(?=.{1,64}$)[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*")
_CACHE_NAME = lazy_pattern(r"[a-z0-9][a-z0-9._-]{0,63}")
# Used by the system or by us: nothing may be mounted at or below these.
_TAKEN = (
    WORKSPACE,
    "/proc",
    "/sys",
    "/dev",
    "/run",
    "/tmp",
    "/etc",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/usr",
    "/boot",
    "/var/run",
    "/var/tmp",
)
_NEVER_WHOLE = ("/", "/var", "/home", "/root", "/opt", HOME)


# Checks of single values.


def known(options: Collection[str], names: Collection[str], where: str) -> None:
    """UsageError for an option that is not one of `names`, with a guess at what was meant."""
    for name in options:
        if name not in names:
            raise UsageError(
                f"{where} takes no option {name!r}; {suggestion(name, names)}"
            )


def must(is_right: bool, name: str, value: Any, requirement: str) -> None:
    if not is_right:
        raise UsageError(f"{name}: {value!r} must be {requirement}")


def flag(name: str, value: Any) -> bool:
    must(isinstance(value, bool), name, value, "True or False")
    return bool(value)


def text(name: str, value: Any) -> str:
    is_right = isinstance(value, str) and value != "" and "\0" not in value
    must(is_right, name, value, "text, not empty, without NUL bytes")
    return str(value)


def seconds(
    name: str, value: Any, *, optional: bool = True, zero: bool = False
) -> None:
    if value is None and optional:
        return
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UsageError(f"{name}: {value!r} is not a number of seconds")
    if (
        not isfinite(value)
        or value < 0
        or (value == 0 and not zero)
        or value > LONGEST_SECONDS
    ):
        least = "not negative" if zero else "more than 0"
        also = " or None" if optional else ""
        raise UsageError(
            f"{name}: {value!r} is out of range: {least} and at most {LONGEST_SECONDS:.0f}{also}"
        )


def parse_seconds(text: str) -> float:
    """Seconds from `90`, `90s`, `5m`, `1h` or `2d`."""
    unit = {"s": 1, "m": 60, "h": 3600, "d": 86400}.get(text[-1:], 0)
    try:
        value = float(text[:-1] if unit else text) * (unit or 1)
    except ValueError:
        value = -1
    if not 0 < value < 1e9:
        raise ValueError(
            f"{text!r} is not a time; write seconds, or for example 90s, 5m, 1h"
        )
    return value


def whole(name: str, value: Any, least: int, most: int = 1 << 62) -> None:
    if (
        isinstance(value, bool)
        or not isinstance(value, int)
        or not least <= value <= most
    ):
        raise UsageError(
            f"{name}: {value!r} is not a whole number from {least} to {most}"
        )


def callable_or_none(name: str, value: Any) -> None:
    must(value is None or callable(value), name, value, "a function")


def one_of(name: str, value: Any, names: Any) -> Any:
    """`value`, if it is one of the values of a Literal."""
    if value not in get_args(names):
        raise UsageError(
            f"{name}: {value!r} is not known; choose from {', '.join(map(repr, get_args(names)))}"
        )
    return value


def variables(name: str, value: Any) -> Pairs:
    """Names of variables and their values, in the given order."""
    pairs = _pairs(name, value, "names to text")
    for variable, content in pairs:
        if not isinstance(variable, str) or not isinstance(content, str):
            raise UsageError(
                f"{name}: {variable!r}: {content!r}: names and values must be text"
            )
        if not variable or "=" in variable or "\0" in variable + content:
            raise UsageError(f"{name}: {variable!r} cannot be the name of a variable")
    return pairs


def check_session_id(id: str) -> str:
    if not SESSION_ID.fullmatch(id):
        raise UsageError(
            f"{id!r} is not a session id; `belljar session list` lists them"
        )
    return id


def mounts_of(value: Any, name: str = "mounts") -> Pairs:
    """Checked targets and absolute sources."""
    mounts = {
        _target(target): os.path.abspath(source)
        for target, source in _paths(name, value)
    }
    return tuple(sorted(mounts.items()))


def author_of(value: Any) -> str:
    is_right = isinstance(value, str) and (
        not value or AUTHOR.fullmatch(value) is not None
    )
    must(is_right, "author", value, "like 'Ana <ana@example.org>'")
    return str(value)


def zone_of(value: Any) -> str:
    is_right = isinstance(value, str) and (not value or bool(_ZONE.fullmatch(value)))
    must(is_right, "timezone", value, "a name such as Europe/Berlin")
    return str(value)


def account_of(value: Any) -> str:
    is_right = (
        isinstance(value, str)
        and ACCOUNT.fullmatch(value) is not None
        and value not in SYSTEM_ACCOUNTS
    )
    must(
        is_right,
        "account",
        value,
        "a name of lower-case letters, digits and dashes that no system account has",
    )
    return str(value)


def caches_of(value: Any, name: str = "cache") -> Pairs:
    """Checked names, and paths relative to the home directory."""
    caches = {
        _cache_name(each): _below_home(each, path) for each, path in _paths(name, value)
    }
    if len(set(caches.values())) < len(caches):
        raise UsageError("cache: two caches cannot be at the same place")
    return tuple(sorted(caches.items()))


def _pairs(name: str, value: Any, of: str) -> Pairs:
    """The items of a mapping. A record holds them as pairs, and may be made from another's."""
    if value is None:
        return ()
    if isinstance(value, Mapping):
        return tuple(value.items())
    is_pairs = isinstance(value, list | tuple) and all(
        isinstance(pair, list | tuple) and len(pair) == 2 for pair in value
    )
    must(is_pairs, name, value, f"a mapping of {of}")
    return tuple((one, other) for one, other in value)


def _paths(name: str, value: Any) -> Pairs:
    given = _pairs(name, value, "names to paths")
    if not all(
        isinstance(key, str) and isinstance(path, str | os.PathLike)
        for key, path in given
    ):
        raise UsageError(f"{name}: {value!r} must be a mapping of names to paths")
    pairs = tuple((key, os.fspath(path)) for key, path in given)
    if len(pairs) > MOST_MOUNTS or any(
        "\0" in key + path or not key or not path for key, path in pairs
    ):
        raise UsageError(
            f"{name}: at most {MOST_MOUNTS} of them, and none empty or with a NUL byte"
        )
    return pairs


def _target(path: str) -> str:
    plain = posixpath.normpath(path)
    inside = any(plain == taken or plain.startswith(f"{taken}/") for taken in _TAKEN)
    if (
        not path.startswith("/")
        or path.startswith("//")
        or inside
        or plain in _NEVER_WHOLE
    ):
        raise UsageError(
            f"mounts: {path!r} is not a free place to mount at; choose another, such as /data"
        )
    if plain.startswith(PRIVATE):
        raise UsageError(f"mounts: {path!r} is Belljar's own")
    return plain


def _cache_name(name: str) -> str:
    if not _CACHE_NAME.fullmatch(name):
        raise UsageError(
            f"cache: {name!r} is not a name for a cache; use lower-case letters, digits, dots and dashes"
        )
    return name


def _below_home(name: str, path: str) -> str:
    below = path.removeprefix("~/").removeprefix(f"{HOME}/")
    plain = posixpath.normpath(below)
    if below.startswith(("/", "~")) or plain == "." or plain.split("/")[0] == "..":
        raise UsageError(
            f"cache: {name} is at {path!r}, which is outside the home directory; use for example ~/.cache/{name}"
        )
    return plain


# Checks of fields: name and given value → the value that the record holds.


def _workspace(name: str, value: Any) -> str:
    if value is None or value == "":
        raise WorkspaceError(f"workspace: {value!r} is not a path")
    must(isinstance(value, str | os.PathLike), name, value, "a path")
    return str(os.fspath(value))


def _limits(name: str, value: Any) -> Limits:
    if value is not None and not isinstance(value, Limits):
        raise UsageError(
            f"limits: {value!r} is not a belljar.Limits; write limits=belljar.Limits(memory='1g')"
        )
    return value or Limits()


def _policy(name: str, value: Any) -> str | Policy:
    if isinstance(value, str) and value:
        return value
    from belljar.policy import (
        Policy,
    )  # a launch needs none, and most sessions name theirs

    if not isinstance(value, Policy):
        raise UsageError(
            f"policy: {value!r} is neither the name of a policy, nor a file, nor a belljar.Policy"
        )
    return value


def _network(name: str, value: Any) -> Network | Allow:
    if isinstance(value, str) and value in get_args(Network):
        return value  # type: ignore[return-value]
    from belljar.network.allow import Allow  # few sessions have a door

    if not isinstance(value, Allow):
        choices = ", ".join(map(repr, get_args(Network)))
        raise UsageError(
            f"network: {value!r} is not known; choose from {choices} and belljar.Allow(...)"
        )
    return value


def _lease(name: str, value: Any) -> float:
    seconds(name, value, optional=False)
    return float(value)


def seconds_or_none(name: str, value: Any) -> float | None:
    seconds(name, value)
    return value  # type: ignore[no-any-return]


def _metadata(name: str, value: Any) -> Pairs:
    metadata = variables(name, value)
    if len(json.dumps(dict(metadata))) > MOST_METADATA:
        raise UsageError(f"metadata: too long; at most {MOST_METADATA} bytes")
    return metadata


def _id(name: str, value: Any) -> str | None:
    return value if value is None else check_session_id(text(name, value))


def _name(name: str, value: Any) -> str | None:
    if value is None:
        return None
    if (
        not isinstance(value, str)
        or not SESSION_NAME.fullmatch(value)
        or value.startswith(("bj-", "shell_"))
    ):
        raise UsageError(
            f"{value!r} is not a name for a session; use letters, digits, dots and dashes"
        )
    return value


def _places(name: str, value: Any) -> tuple[str, ...]:
    must(
        isinstance(value, list | tuple)
        and all(isinstance(place, str) for place in value),
        name,
        value,
        "paths",
    )
    return tuple(value)


def _restored_policy(saved: Any) -> Any:
    from belljar.policy import Policy

    return Policy.restored(saved) if isinstance(saved, Mapping) else saved


def _restored_network(saved: Any) -> Any:
    from belljar.network.allow import Allow

    return Allow.restored(saved) if isinstance(saved, Mapping) else saved


def option(
    default: Any,
    read: Callable[[str, Any], Any],
    help: str = "",
    *,
    restore: Callable[[Any], Any] | None = None,
    **more: Any,
) -> Any:
    """A field. `read` checks a given value; `restore` makes one from what `as_dict` wrote. With `help` the command line
    has it: as `flag`, or else by its own name; `metavar` and `choices` are for that. `of_session`: sandboxes may differ
    in it and still stand in for each other in a pool. `secret`: shown to nobody."""
    return field(
        default=default,
        metadata={"read": read, "help": help, "restore": restore, **more},
    )


def _literal(values: Any) -> Callable[[str, Any], Any]:
    return lambda name, value: one_of(name, value, values)


def _on_close(name: str, value: Any) -> OnClose | None:
    chosen: OnClose | None = None if value is None else one_of(name, value, OnClose)
    return chosen


@record
class SandboxOptions:
    """What a sandbox and its session are to be, as one record that can be compared, written down and restored.

    options = belljar.SandboxOptions(".", image="python", limits=belljar.Limits(memory="2g"))
    async with belljar.Session.of(options) as box: ...
    """

    workspace: str = option(
        ".", _workspace, "mounted at /workspace (default: here)", metavar="DIR"
    )
    image: str = option("base", text, "base, python, node, dev or any local image")
    policy: str | Policy = option(
        "default",
        _policy,
        "default, strict, ci, permissive, literal, none or a file",
        metavar="P",
        restore=_restored_policy,
        of_session=True,
    )
    network: Network | Allow = option(
        "none",
        _network,
        "none (the default) or full",
        choices=get_args(Network),
        restore=_restored_network,
    )
    changes: Changes = option(
        "direct",
        _literal(Changes),
        "keep changes aside until you `belljar apply` or `discard` them",
        flag="--staged",
        const="staged",
    )
    """With "staged" the workspace does not change until someone calls `apply`."""
    name: str | None = option(
        None, _name, "a name for the session, to use instead of its id", metavar="NAME"
    )
    """For people: a session in a list, and what is left of it once it has ended. Two may have the same."""
    root: bool = option(
        False,
        flag,
        "be root in the sandbox, an ordinary user outside; needs the engine oci",
    )
    """Commands run as root in a user namespace, and may change the whole file system, which ends with the sandbox."""
    account: str = option(
        "sandbox",
        lambda name, value: account_of(value),
        "the name of the user in the sandbox; its home is /home/NAME",
        metavar="NAME",
    )
    """Who `whoami` says commands are. The user id and its rights stay what they are."""
    author: str = option(
        "",
        lambda name, value: author_of(value),
        "who commits in the sandbox are by (default: who your git says)",
        metavar="NAME <EMAIL>",
    )
    """What git says there, unless the repository's own settings say otherwise: `author="Ana <ana@example.org>"`."""
    timezone: str = option(
        "",
        lambda name, value: zone_of(value),
        "the time zone of commands, such as Europe/Berlin (default: the image's)",
        metavar="ZONE",
    )
    """Their variable TZ. The image must know the zone: ours do."""
    debug: bool = option(False, flag, "allow gdb and strace")
    """Commands may trace their own processes."""
    mounts: Pairs = option(
        (),
        lambda name, value: mounts_of(value),
        "mount a directory of this machine read-only; may be repeated",
        flag="--mount",
        metavar="SRC:DST",
    )
    """Targets and directories of the host, read-only: `mounts={"/data": "/srv/data"}` (sandbox/extras.py)."""
    cache: Pairs = option(
        (),
        lambda name, value: caches_of(value),
        "keep what pip, npm, uv … download for later sandboxes (`prune --caches` removes it)",
        metavar="NAME[=PATH]",
    )
    """Names of caches, and their paths below the home directory; kept for later sessions of the same owner."""
    metadata: Pairs = option(
        (),
        _metadata,
        "attach a note that `session list --json` shows; may be repeated",
        metavar="NAME=TEXT",
        of_session=True,
    )
    allow_home: bool = option(False, flag, "allow a home directory as the workspace")
    snapshot: str | None = option(
        None,
        _name,
        "begin with what this snapshot holds (`belljar snapshots list`)",
        metavar="NAME",
        of_session=True,
    )
    """With `Session(snapshot=…)` each option that is not given is that of the session it was made of."""
    limits: Limits = option(None, _limits, restore=lambda saved: Limits(**saved))
    env: Pairs = option((), variables, of_session=True, secret=True)
    """Variables of every command."""
    checkpoints: Checkpoints = option("off", _literal(Checkpoints), of_session=True)
    """With "auto" a checkpoint is made before risky commands of a staged session."""
    on_close: OnClose | None = option(None, _on_close, of_session=True)
    """What becomes of staged changes when the session ends. None: they are kept, and a log line says where. A session
    whose block raised applies nothing: its changes are kept."""
    lease: float = option(30.0, _lease)
    """How many seconds the sandbox runs on without a host."""
    keep: bool = option(False, flag)
    """The sandbox outlives this process by `lease` seconds, and `Session.attach(id)` enters it."""
    id: str | None = option(None, _id, of_session=True)
    longest: float | None = option(
        None, seconds_or_none, of_session=True, internal=True
    )
    """No command may run longer, whatever timeout it is given."""
    keepable: bool = option(False, flag, internal=True)
    """It may become a kept one later, so the reaper leaves it to its lease."""
    base: str = option(
        "", lambda name, value: check_session_id(value) if value else "", internal=True
    )
    """A staged sandbox begins from the last checkpoint of this session."""
    continues: str = option(
        "", lambda name, value: check_session_id(value) if value else "", internal=True
    )
    """A staged sandbox goes on with the changes of this session, which has ended."""
    reserved: tuple[str, ...] = option((), _places, internal=True)
    """Directories that commands must not reach, such as that of the audit trail."""

    if (
        TYPE_CHECKING
    ):  # what the constructor takes; the fields have the types after checking

        def __init__(
            self, workspace: str | os.PathLike[str] = ".", **options: Unpack[AllOptions]
        ) -> None: ...

    else:

        def __init__(self, workspace: Any = ".", **options: Any) -> None:
            known(options, FIELDS, "Session")
            options["workspace"] = workspace
            for name, one in FIELDS.items():
                self.__dict__[name] = one.metadata["read"](
                    name, options.get(name, one.default)
                )
            if self.root and self.debug:
                raise UsageError(
                    "root and debug cannot be combined; leave one of them out"
                )
            if self.on_close in ("discard", "apply") and self.changes != "staged":
                raise UsageError(f'on_close="{self.on_close}" is for changes="staged"')

    @property
    def door(self) -> bool:
        """Whether commands reach some hosts, through the door. Their environment names its proxy from the start."""
        return not isinstance(self.network, str)

    @property
    def home(self) -> str:
        """The home directory of the sandbox's user."""
        return "/root" if self.root else f"/home/{self.account}"

    @property
    def network_mode(self) -> Network:
        """The network of the sandbox itself, which is none behind a door."""
        return "full" if self.network == "full" else "none"

    def kind(self) -> tuple[object, ...]:
        """Sandboxes of equal kind are interchangeable, but for their door: a pool hands out one for the other."""
        place = os.path.realpath(self.workspace)
        own = (getattr(self, name) for name in _OF_SANDBOX)
        return (place, self.network_mode, *own)

    def changed(self, **values: Any) -> Self:
        """These options with other values; they themselves if all are the same. A new record is checked again."""
        same = all(getattr(self, name) == value for name, value in values.items())
        return self if same else replace(self, **values)

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON. What must not be on a disk (values of headers) is left out."""
        return {name: _plain(getattr(self, name)) for name in FIELDS}

    def facts(self) -> dict[str, Any]:
        """What `session list --json` shows: no secrets, and short words for what is long."""
        shown = {
            name: value
            for name, value in self.as_dict().items()
            if not FIELDS[name].metadata.get("secret")
        }
        policy = self.policy if isinstance(self.policy, str) else self.policy.name
        return {
            **shown,
            "policy": policy,
            "network": self.network_mode,
            "door": self.door,
            "metadata": dict(self.metadata),
        }

    @classmethod
    def restored(cls, saved: Mapping[str, Any]) -> Self:
        """The options that `as_dict` wrote. Fields of another version are ignored or have their defaults."""
        given = {name: saved[name] for name in FIELDS if name in saved}
        for name, value in given.items():
            if restore := FIELDS[name].metadata["restore"]:
                given[name] = restore(value)
        return cls(**given)


def _plain(value: Any) -> Any:
    return value.as_dict() if hasattr(value, "as_dict") else value


FIELDS: dict[str, Field[Any]] = {one.name: one for one in fields(SandboxOptions)}
PUBLIC = frozenset(
    name for name, one in FIELDS.items() if not one.metadata.get("internal")
)
_OF_SANDBOX = tuple(
    name
    for name, one in FIELDS.items()
    if name not in ("workspace", "network") and not one.metadata.get("of_session")
)
"""The fields that sandboxes must have in common to stand in for each other. A new one counts unless it says not to."""


class PublicOptions(TypedDict, total=False):
    """What the constructors of `Session` and `Pool`, and `belljar.run`, take for each field, besides the workspace."""

    image: str
    policy: str | Policy
    network: Network | Allow
    changes: Changes
    name: str | None
    root: bool
    account: str
    author: str
    timezone: str
    debug: bool
    mounts: Mapping[str, str | os.PathLike[str]] | None
    cache: Mapping[str, str] | None
    metadata: Mapping[str, str] | None
    allow_home: bool
    snapshot: str | None
    limits: Limits | None
    env: Mapping[str, str] | None
    checkpoints: Checkpoints
    on_close: OnClose | None
    lease: float


class OwnOptions(PublicOptions, total=False):
    """… of a single session."""

    keep: bool
    id: str | None


class AllOptions(OwnOptions, total=False):
    longest: float | None
    keepable: bool
    base: str
    continues: str
    reserved: Sequence[str]
