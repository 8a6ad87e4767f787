"""`Request`: a command that was judged and may run, in the form that the init takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from belljar.errors import UsageError
from belljar.link.frames import Flag
from belljar.records import record
from belljar.session.options import Command, Options

if TYPE_CHECKING:
    from belljar.policy import Verdict


@record
class Request:
    """Made by `Session.admit`, for that session only. Run it with `box.run(request)`, `box.stream(request)`…"""

    verdict: Verdict
    argv: tuple[bytes, ...] = field(repr=False)
    flags: int
    cwd: bytes
    env: Mapping[bytes, bytes] = field(repr=False)
    options: Options = field(repr=False)
    admitted_by: object = field(repr=False)
    user: bytes = b""
    """Whom it runs as, in the init's words; empty: the sandbox's own user."""


def flags_of(command: Command, options: Options) -> int:
    return (
        (Flag.SHELL if isinstance(command, str) else 0)
        | (0 if options.get("clean_env") else Flag.DEFAULT_ENV)
        | (Flag.COMBINED if options.get("combined") else 0)
        | (Flag.PTY if options.get("pty") else 0)
        | (Flag.STDIN if _has_input(options) else 0)
    )


def _has_input(options: Options) -> bool:
    return options.get("stdin") is not None or bool(options.get("stdin_open") or options.get("pty"))


def environment(env: Mapping[str, str], options: Options) -> dict[bytes, bytes]:
    if options.get("pty"):
        env = {"TERM": "xterm-256color", **env}
    return {encoded(name): encoded(value) for name, value in env.items()}


def encoded(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise UsageError(f"the text cannot be encoded: {error}") from error
