"""Where safe mode's commands come from: lines of a terminal or of a pipe, put together as bash would."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from belljar.audit import writer as audit
from belljar.policy.parser import ParseError, Parser
from belljar.policy.plain import plain_words

_AT_END = re.compile("reached EOF|unclosed here-document")
_CONTINUATIONS = (")", "{ :; }", "do :; done", "in esac")
_BACKSLASH = re.compile(r"(?<!\\)(?:\\\\)*\\\Z")
_HISTORY = "history"


class Reader(Protocol):
    def read(self, prompt: str) -> str:
        """The next line; EOFError at the end, KeyboardInterrupt on Ctrl+C."""
        ...


def read_command(reader: Reader, prompt: str, parser: Parser) -> str:
    """One whole command: more lines are taken as long as bash would ask for more."""
    text = reader.read(prompt)
    while is_incomplete(text, parser):
        try:
            text += "\n" + reader.read("> ")
        except EOFError:
            break
    return text


def is_incomplete(text: str, parser: Parser) -> bool:
    if _BACKSLASH.search(text):
        return True
    if plain_words(text) is not None:
        return False
    error = _error(parser, text)
    if error is None:
        return False
    # A mistake before the end stays the same whatever follows; one that more text changes was the end itself.
    return bool(_AT_END.search(error)) or any(error != _error(parser, f"{text}\n{more}") for more in _CONTINUATIONS)


def _error(parser: Parser, text: str) -> str | None:
    try:
        parser.parse(text)
    except ParseError as error:
        return str(error)
    return None


class Pipe:
    """No terminal: the lines of stdin, without a prompt."""

    def read(self, prompt: str) -> str:
        line = sys.stdin.buffer.readline()
        if not line:
            raise EOFError
        return line.decode("utf-8", "surrogateescape").removesuffix("\n")


class Terminal:
    """Line editing and history: prompt_toolkit's where it is installed, else readline's."""

    def __init__(self) -> None:
        self._read = _toolkit() or _readline()

    def read(self, prompt: str) -> str:
        return self._read(prompt)


def _history_file() -> Path | None:
    """Only ours to read; none where the home cannot be written."""
    path = audit.directory() / _HISTORY
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600))
        return path
    return None


def _toolkit() -> Callable[[str], str] | None:
    try:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.history import FileHistory, InMemoryHistory
    except ImportError:
        return None
    path = _history_file()
    history = FileHistory(str(path)) if path else InMemoryHistory()
    session: PromptSession[str] = PromptSession(history=history, reserve_space_for_menu=0)
    return session.prompt


def _readline() -> Callable[[str], str]:
    import readline

    path = _history_file()
    if path is not None:
        with suppress(OSError):
            readline.read_history_file(path)

    def read(prompt: str) -> str:
        line = input(prompt)
        if path is not None and line:
            with suppress(OSError):
                readline.append_history_file(1, path)
        return line

    return read
