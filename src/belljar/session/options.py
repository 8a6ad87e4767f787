"""The options of sessions and commands. All are checked before anything starts.

A `UsageError` names the option, its value and what would be right.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any, Literal, TypedDict, get_args

from belljar.engines.spec import Network
from belljar.errors import UsageError, WorkspaceError, suggestion
from belljar.limits import Limits
from belljar.sandbox.rundir import check_session_id
from belljar.sandbox.staging import Changes
from belljar.session.result import Output

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from belljar.audit.writer import Audit
    from belljar.host import EngineName, Host
    from belljar.network.allow import Allow
    from belljar.policy import Policy, Verdict

    Approver = Callable[[Verdict], bool | Awaitable[bool | None] | None]
    """True: run it. False: a person said no. None: nobody could be asked."""

Checkpoints = Literal["off", "auto"]
Command = str | Sequence[str]
"""Text for bash, or an argument vector."""

MOST_METADATA = 4096
LONGEST_SECONDS = 4_000_000.0  # 46 days: what fits into the init's 32 bits of milliseconds


class Options(TypedDict, total=False):
    """How one command is to run."""

    timeout: float | None
    """Seconds until it gets SIGTERM, then SIGKILL after `grace`. None: no deadline."""
    env: Mapping[str, str] | None
    """Variables on top of the session's."""
    cwd: str | os.PathLike[str] | None
    """Where it runs, within the workspace."""
    stdin: bytes | str | None
    """Its input, and then its end. None: the command has none (/dev/null)."""
    stdin_open: bool
    """stdin does not end after `stdin`, but with `close_input`; until then `write` adds to it."""
    combined: bool
    """One pipe for stdout and stderr, so that their order is exact."""
    pty: bool
    """A terminal instead of pipes."""
    size: tuple[int, int] | None
    """Rows and columns of that terminal."""
    clean_env: bool
    """Only `env`, without the image's variables."""
    grace: float
    """Seconds between SIGTERM and SIGKILL."""
    output_limit: int | None
    """Bytes of output after which the command is killed."""
    on_output: Callable[[Output], None] | None
    """Called with each piece of output. If it raises, the command is killed and the error raised."""


class SessionOptions(TypedDict, total=False):
    """The options of `Session` that `belljar.run` and `Pool` take, too."""

    image: str
    limits: Limits | None
    policy: str | Policy
    network: Network | Allow
    approve: Approver | None
    env: Mapping[str, str] | None
    lease: float
    audit: Audit | None
    host: Host | None
    engine: EngineName | None
    allow_home: bool
    root: bool
    debug: bool
    mounts: Mapping[str, str | os.PathLike[str]] | None
    cache: Mapping[str, str] | None
    metadata: Mapping[str, str] | None
    changes: Changes
    checkpoints: Checkpoints


class OpenOptions(SessionOptions, total=False):
    keep: bool
    id: str | None


class RunOptions(Options, SessionOptions, total=False):
    """The options of `belljar.run`: of the command and of its sandbox."""


class ClaimOptions(TypedDict, total=False):
    """The options of a session in a sandbox that runs already."""

    policy: str | Policy
    approve: Approver | None
    env: Mapping[str, str] | None
    audit: Audit | None


class AttachOptions(ClaimOptions, total=False):
    host: Host | None
    engine: EngineName | None


def known(options: Collection[str], names: Collection[str], where: str) -> None:
    """UsageError for an option that is not one of `names`, with a guess at what was meant."""
    for name in options:
        if name not in names:
            raise UsageError(f"{where} takes no option {name!r}; {suggestion(name, names)}")


def check(options: Mapping[str, Any], where: str, without: Collection[str] = ()) -> Options:
    """The options of a command; UsageError if one is wrong."""
    known(options, Options.__annotations__.keys() - set(without), where)
    for name, value in options.items():
        _CHECKS[name](name, value)
    return options  # type: ignore[return-value]


def seconds(name: str, value: Any, *, optional: bool = True, zero: bool = False) -> None:
    if value is None and optional:
        return
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UsageError(f"{name}: {value!r} is not a number of seconds")
    if not isfinite(value) or value < 0 or (value == 0 and not zero) or value > LONGEST_SECONDS:
        least = "not negative" if zero else "more than 0"
        also = " or None" if optional else ""
        raise UsageError(f"{name}: {value!r} is out of range: {least} and at most {LONGEST_SECONDS:.0f}{also}")


def whole(name: str, value: Any, least: int, most: int = 1 << 62) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise UsageError(f"{name}: {value!r} is not a whole number from {least} to {most}")


def _must(is_right: bool, name: str, value: Any, requirement: str) -> None:
    if not is_right:
        raise UsageError(f"{name}: {value!r} must be {requirement}")


def flag(name: str, value: Any) -> None:
    _must(isinstance(value, bool), name, value, "True or False")


def tracing(root: Any, debug: Any) -> None:
    flag("root", root)
    flag("debug", debug)
    if root and debug:
        raise UsageError("root and debug cannot be combined; leave one of them out")


def metadata_of(value: Any) -> dict[str, str]:
    """The metadata of a session, small enough to be kept beside it."""
    variables("metadata", value)
    metadata = dict(value or {})
    if len(json.dumps(metadata)) > MOST_METADATA:
        raise UsageError(f"metadata: too long; at most {MOST_METADATA} bytes")
    return metadata


def text(name: str, value: Any) -> None:
    _must(
        isinstance(value, str) and value != "" and "\0" not in value, name, value, "text, not empty, without NUL bytes"
    )


def variables(name: str, value: Any) -> None:
    if value is None:
        return
    _must(isinstance(value, Mapping), name, value, "a mapping of names to text")
    for variable, content in value.items():
        if not isinstance(variable, str) or not isinstance(content, str):
            raise UsageError(f"{name}: {variable!r}: {content!r}: names and values must be text")
        if not variable or "=" in variable or "\0" in variable + content:
            raise UsageError(f"{name}: {variable!r} cannot be the name of a variable")


def callable_or_none(name: str, value: Any) -> None:
    _must(value is None or callable(value), name, value, "a function")


def _path(name: str, value: Any) -> None:
    _must(value is None or isinstance(value, str | os.PathLike), name, value, "a path")


def _input(name: str, value: Any) -> None:
    _must(value is None or isinstance(value, bytes | str), name, type(value).__name__, "bytes or text")


def _size(name: str, value: Any) -> None:
    if value is None:
        return
    is_pair = isinstance(value, tuple) and len(value) == 2
    if not is_pair or not all(type(number) is int and 0 < number < 1 << 16 for number in value):
        raise UsageError(f"{name}: {value!r} is not a pair of rows and columns, such as (24, 80)")


def _output_limit(name: str, value: Any) -> None:
    if value is not None:
        whole(name, value, 1)


_CHECKS: dict[str, Callable[[str, Any], None]] = {
    "timeout": seconds, "env": variables, "cwd": _path, "stdin": _input, "stdin_open": flag,
    "combined": flag, "pty": flag,
    "size": _size, "clean_env": flag, "grace": lambda name, value: seconds(name, value, optional=False, zero=True),
    "output_limit": _output_limit, "on_output": callable_or_none,
}  # fmt: skip


def check_command(command: Any) -> None:
    if isinstance(command, str):
        return  # the policy checks texts, and gives a reason
    if not isinstance(command, Sequence) or isinstance(command, bytes):
        raise UsageError(f"a command must be text for bash or a list of arguments, not {type(command).__name__}")
    if wrong := [word for word in command if not isinstance(word, str)]:
        raise UsageError(f"each argument of a command must be text; write str({wrong[0]!r})")
    if not command or not command[0]:
        raise UsageError("the command is empty")


def one_of(name: str, value: Any, names: Any) -> Any:
    """`value`, if it is one of the values of a Literal."""
    if value not in get_args(names):
        raise UsageError(f"{name}: {value!r} is not known; choose from {', '.join(map(repr, get_args(names)))}")
    return value


def check_session(
    workspace: Any, image: Any, limits: Any, network: Any, approve: Any, env: Any, lease: Any, keep: Any, id: Any
) -> None:
    """Check the options of a session that are not checked elsewhere."""
    _path("workspace", "" if workspace is None else workspace)
    if not workspace:
        raise WorkspaceError(f"workspace: {workspace!r} is not a path")
    text("image", image)
    if limits is not None and not isinstance(limits, Limits):
        raise UsageError(f"limits: {limits!r} is not a belljar.Limits; write limits=belljar.Limits(memory='1g')")
    if network not in get_args(Network):
        from belljar.network.allow import Allow  # few sessions have a door

        if not isinstance(network, Allow):
            known = ", ".join(map(repr, get_args(Network)))
            raise UsageError(f"network: {network!r} is not known; choose from {known} and belljar.Allow(...)")
    callable_or_none("approve", approve)
    variables("env", env)
    seconds("lease", lease, optional=False)
    flag("keep", keep)
    if id is not None:
        text("id", id)
        check_session_id(id)
