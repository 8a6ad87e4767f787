"""The options of commands, checked before anything starts; those of sandboxes are in belljar/options.py.

A `UsageError` names the option, its value and what would be right.
"""

from __future__ import annotations

import os
from collections.abc import (
    AsyncIterable,
    Callable,
    Collection,
    Iterator,
    Mapping,
    Sequence,
)
from typing import TYPE_CHECKING, Any, TypedDict

from belljar.errors import UsageError
from belljar.options import (
    OwnOptions,
    PublicOptions,
    callable_or_none,
    flag,
    known,
    must,
    seconds,
    variables,
    whole,
)
from belljar.session.result import Output

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from belljar.audit.writer import Audit
    from belljar.host import EngineName, FarHost, Host
    from belljar.policy import Policy, Verdict

    Approver = Callable[[Verdict], bool | Awaitable[bool | None] | None]
    """True: run it. False: a person said no. None: nobody could be asked."""

Command = str | Sequence[str]
"""Text for bash, or an argument vector."""
InputPiece = bytes | str
Stdin = InputPiece | AsyncIterable[InputPiece] | Iterator[InputPiece]


class Options(TypedDict, total=False):
    """How one command is to run."""

    timeout: float | None
    """Seconds until it gets SIGTERM, then SIGKILL after `grace`. None: no deadline."""
    env: Mapping[str, str] | None
    """Variables on top of the session's."""
    cwd: str | os.PathLike[str] | None
    """Where it runs: in the workspace, or an absolute path in the sandbox."""
    user: str | int | None
    """Whom it runs as; None: the sandbox's own user. Only a sandbox with root inside (`root=True`) has others."""
    stdin: Stdin | None
    """Its input, and then its end: bytes, text, or an iterator of pieces (also an asynchronous one, or an open file).
    None: the command has none (/dev/null)."""
    stdin_open: bool
    """stdin does not end after `stdin`, but with `close_stdin`; until then `write` adds to it."""
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


class LiveParts(TypedDict, total=False):
    """What a session needs besides its options: it cannot be written down."""

    approve: Approver | None
    audit: Audit | None
    host: Host | FarHost | None
    engine: EngineName | None


class SessionOptions(PublicOptions, LiveParts, total=False):
    """What `belljar.run` and `Pool` take for their sessions."""


class OpenOptions(OwnOptions, LiveParts, total=False):
    """What `Session` takes."""


class RunOptions(Options, SessionOptions, total=False):
    """The options of `belljar.run`: of the command and of its sandbox."""


class ClaimOptions(TypedDict, total=False):
    """The options of a session in a sandbox that runs already."""

    policy: str | Policy
    approve: Approver | None
    env: Mapping[str, str] | None
    audit: Audit | None


class AttachOptions(ClaimOptions, total=False):
    host: Host | FarHost | None
    engine: EngineName | None
    resume: bool


def check(
    options: Mapping[str, Any], where: str, without: Collection[str] = ()
) -> Options:
    """The options of a command; UsageError if one is wrong."""
    if options:
        known(options, Options.__annotations__.keys() - set(without), where)
        check_values(options)
    return options  # type: ignore[return-value]


def check_values(options: Mapping[str, Any]) -> None:
    for name, value in options.items():
        _CHECKS[name](name, value)


def _env(name: str, value: Any) -> None:
    must(
        value is None or isinstance(value, Mapping),
        name,
        value,
        "a mapping of names to text",
    )
    variables(name, value)


def _path(name: str, value: Any) -> None:
    must(value is None or isinstance(value, str | os.PathLike), name, value, "a path")


def _input(name: str, value: Any) -> None:
    is_input = value is None or isinstance(
        value, bytes | str | AsyncIterable | Iterator
    )
    must(is_input, name, type(value).__name__, "bytes, text or an iterator of them")


def _user(name: str, value: Any) -> None:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    must(
        value is None or is_number or (isinstance(value, str) and bool(value)),
        name,
        value,
        "a name or a number",
    )


def _size(name: str, value: Any) -> None:
    if value is None:
        return
    is_pair = isinstance(value, tuple) and len(value) == 2
    if not is_pair or not all(
        type(number) is int and 0 < number < 1 << 16 for number in value
    ):
        raise UsageError(
            f"{name}: {value!r} is not a pair of rows and columns, such as (24, 80)"
        )


def _output_limit(name: str, value: Any) -> None:
    if value is not None:
        whole(name, value, 1)


_CHECKS: dict[str, Callable[[str, Any], object]] = {
    "timeout": seconds,
    "env": _env,
    "cwd": _path,
    "user": _user,
    "stdin": _input,
    "stdin_open": flag,
    "combined": flag,
    "pty": flag,
    "size": _size,
    "clean_env": flag,
    "grace": lambda name, value: seconds(name, value, optional=False, zero=True),
    "output_limit": _output_limit,
    "on_output": callable_or_none,
}


def check_command(command: Any) -> None:
    if isinstance(command, str):
        return  # the policy checks texts, and gives a reason
    if not isinstance(command, Sequence) or isinstance(command, bytes):
        raise UsageError(
            f"a command must be text for bash or a list of arguments, not {type(command).__name__}"
        )
    if wrong := [word for word in command if not isinstance(word, str)]:
        raise UsageError(
            f"each argument of a command must be text; write str({wrong[0]!r})"
        )
    if not command or not command[0]:
        raise UsageError("the command is empty")
