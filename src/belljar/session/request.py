"""What is asked of a session for one command, and what of it goes to the init once it was judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

from belljar.errors import UsageError
from belljar.link.frames import Flag
from belljar.policy import Verdict
from belljar.session.result import Output
from belljar.workspace.host_run_files import Snapshot

Command = str | Sequence[str]
"""Text for bash, or an argument vector."""


class Options(TypedDict, total=False):
    """How one command is to run."""

    timeout: float | None
    env: Mapping[str, str] | None
    cwd: str | None
    stdin: bytes | str | None
    combined: bool
    pty: bool
    clean_env: bool
    grace: float
    output_limit: int | None
    on_output: Callable[[Output], None] | None
    verdict: Verdict | None


@dataclass(frozen=True)
class Request:
    """A command that was judged and may run."""

    argv: tuple[bytes, ...]
    flags: int
    cwd: bytes
    env: Mapping[bytes, bytes]
    verdict: Verdict
    options: Options
    before: Snapshot


def flags_of(command: Command, options: Options) -> int:
    return (
        (Flag.SHELL if isinstance(command, str) else 0)
        | (0 if options.get("clean_env") else Flag.DEFAULT_ENV)
        | (Flag.COMBINED if options.get("combined") else 0)
        | (Flag.PTY if options.get("pty") else 0)
        | (Flag.STDIN if options.get("stdin") is not None or options.get("pty") else 0)
    )


def environment(given: Mapping[str, str], options: Options) -> dict[bytes, bytes]:
    for name, value in given.items():
        if not name or "=" in name or "\0" in name or "\0" in value:
            raise UsageError(f"{name!r} is not a variable that can be set")
    if options.get("pty"):
        given = {"TERM": "xterm-256color", **given}
    return {encoded(name): encoded(value) for name, value in given.items()}


def encoded(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise UsageError(f"text that cannot be encoded: {error}") from error
