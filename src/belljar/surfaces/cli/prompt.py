"""Reads safe mode's commands from a terminal or a pipe. A command may take several lines, as in bash."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

from belljar.host import default
from belljar.layout import WORKSPACE
from belljar.patterns import lazy_pattern
from belljar.policy.canonical import plain_words
from belljar.policy.parser import Node, ParseError, Parser, TooComplex
from belljar.session.session import Session
from belljar.surfaces.cli.completer import Completions
from belljar.surfaces.terminal import render
from belljar.workspace.beneath import Folder

_AT_END = lazy_pattern("reached EOF|unclosed here-document")
_CONTINUATIONS = (")", "{ :; }", "do :; done", "in esac")
_BACKSLASH = lazy_pattern(r"(?<!\\)(?:\\\\)*\\\Z")
_HISTORY = "history"
_LONGEST_HEAD = 1024
_LONGEST_BRANCH = 40

Reader = Callable[[str], str]
"""Shows a prompt and reads a line. EOFError at the end, KeyboardInterrupt on Ctrl+C."""


def read_command(read: Reader, prompt: str, parser: Parser) -> str:
    """Read one complete command, with as many lines as bash would ask for."""
    text = read(prompt)
    while is_incomplete(text, parser):
        try:
            text += "\n" + read("> ")
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
    # If more text changes the error, the command is incomplete. A real mistake stays the same whatever follows.
    return bool(_AT_END.search(error)) or any(
        error != _error(parser, f"{text}\n{more}") for more in _CONTINUATIONS
    )


def says_exit(text: str, parser: Parser) -> bool:
    """Whether the line itself has `exit` as a command. If a script, a function or an alias ends the shell, the user
    must not suddenly be at the host's prompt while typing."""
    try:
        return any(_may_exit(stmt) for stmt in parser.parse(text).get("Stmts", ()))
    except (ParseError, TooComplex):
        return False


def _may_exit(stmt: Node) -> bool:
    command = stmt.get("Cmd") or {}
    if stmt.get("Background"):
        return False
    if command.get("Type") == "BinaryCmd" and command["Op"] in ("&&", "||"):
        return _may_exit(command["X"]) or _may_exit(command["Y"])
    words = command.get("Args") or [{}]
    return [part.get("Value") for part in words[0].get("Parts", ())] == ["exit"]


def _error(parser: Parser, text: str) -> str | None:
    try:
        parser.parse(text)
    except ParseError as error:
        return str(error)
    return None


def read_pipe(_: str) -> str:
    """Read a line of stdin if it is not a terminal, without a prompt."""
    line = sys.stdin.buffer.readline()
    if not line:
        raise EOFError
    return line.decode("utf-8", "surrogateescape").removesuffix("\n")


def on_terminal(completions: Completions, incomplete: Callable[[str], bool]) -> Reader:
    """Line editing, history and completion by prompt_toolkit if it is installed, otherwise by readline."""
    return _toolkit(completions, incomplete) or _readline(completions)


def prompt_of(box: Session, staged: int | None = None) -> str:
    """Shows the directory, the branch, and how many changes are staged. Commands in the sandbox choose the first two,
    so control characters are escaped."""
    branch = branch_of(box)
    parts = [
        f"belljar:{box.persistent.cwd}",
        f" ({branch})" if branch else "",
        f" ±{staged}" if staged else "",
    ]
    return render.plain(f"{''.join(parts)}$ ")


def branch_of(box: Session) -> str | None:
    """The branch of the repository that the shell is in. Read from .git/HEAD: no program of the repository is run."""
    cwd = PurePosixPath(box.persistent.cwd)
    if not cwd.is_relative_to(WORKSPACE):
        return None
    directory = cwd.relative_to(WORKSPACE)
    with Folder.of(box.workspace.descriptor) as top:
        for candidate in (directory, *directory.parents):
            with suppress(OSError):
                return _branch_name(
                    top.read((candidate / ".git/HEAD").as_posix(), _LONGEST_HEAD)
                )
    return None


def _branch_name(head: bytes) -> str | None:
    text = head.decode("utf-8", "replace").strip()
    name = text.removeprefix("ref: refs/heads/")
    if name == text:
        return text[:8] if re.fullmatch("[0-9a-f]{40,64}", text) else None
    return name if len(name) <= _LONGEST_BRANCH else f"{name[: _LONGEST_BRANCH - 1]}…"


def _history_file() -> Path | None:
    """The history file, readable only by its owner; None if it cannot be written."""
    path = default().state_root / _HISTORY
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(
            os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        )
        return path
    return None


def _toolkit(
    completions: Completions, incomplete: Callable[[str], bool]
) -> Reader | None:
    """Several lines are edited as one text. Enter ends it if the command is complete."""
    try:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.completion import CompleteEvent, Completer, Completion
        from prompt_toolkit.document import Document
        from prompt_toolkit.filters import is_searching
        from prompt_toolkit.history import FileHistory, InMemoryHistory
        from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
    except ImportError:
        return None

    class SandboxCompleter(Completer):
        def get_completions(
            self, document: Document, complete_event: CompleteEvent
        ) -> Iterator[Completion]:
            word, suggestions = completions.suggest(document.text_before_cursor)
            for suggestion in suggestions:
                yield Completion(
                    suggestion.text, -len(word), display_meta=suggestion.meaning
                )

    keys = KeyBindings()

    @keys.add("enter", filter=~is_searching)
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if incomplete(buffer.text):
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    @keys.add("c-z")
    def _(event: KeyPressEvent) -> None:
        """Ignored: nothing runs that could be stopped, and the character does not belong into a command."""

    path = _history_file()
    session: PromptSession[str] = PromptSession(
        history=FileHistory(str(path)) if path else InMemoryHistory(),
        completer=SandboxCompleter(),
        complete_in_thread=True,
        complete_while_typing=False,
        enable_history_search=True,
        multiline=True,
        prompt_continuation="> ",
        key_bindings=keys,
        reserve_space_for_menu=4,
    )
    return session.prompt


def _readline(completions: Completions) -> Reader:
    import readline

    path = _history_file()
    if path is not None:
        with suppress(OSError):
            readline.read_history_file(path)

    def complete(word: str, index: int) -> str | None:
        _, suggestions = completions.suggest(
            readline.get_line_buffer()[: readline.get_endidx()]
        )
        return suggestions[index].text if index < len(suggestions) else None

    readline.set_completer_delims(" \t\n;|&()<>")
    readline.set_completer(complete)
    readline.parse_and_bind("tab: complete")

    def read(prompt: str) -> str:
        try:
            line = input(prompt)
        except KeyboardInterrupt:
            sys.stdout.write("\n")  # the next prompt must not follow `^C`
            raise
        if path is not None and line:
            with suppress(OSError):
                readline.append_history_file(1, path)
        return line

    return read
