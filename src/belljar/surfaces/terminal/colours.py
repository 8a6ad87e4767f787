"""Colours for diffs. They only repeat what the signs and words beside them say, so that nothing is lost without them.

A fragment is a style of prompt_toolkit's and a text. The text comes from a sandbox: the caller has escaped it, and as a
language's rules may take for ever on text that was made for it, they get a moment and no more.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pygments.lexer import Lexer

Fragments = list[tuple[str, str]]

MOMENT = 0.1  # seconds for the colours of one hunk
MOMENTS = 0.3  # seconds for those of a whole diff
MOST = 64 << 10  # characters of a hunk that gets colours
LONGEST = 2000  # characters of a line that are shown
_SGR = {"ansigreen": "32", "ansired": "31", "ansicyan": "36", "bold": "1", "": ""}
_SIGNS = {"+": "ansigreen", "-": "ansired", "@": "ansicyan", "#": "bold"}
_TOKENS = {
    "Keyword": "ansiblue",
    "Name.Function": "bold",
    "Name.Class": "bold",
    "Name.Tag": "ansiblue",
    "Literal.String": "ansiyellow",
    "Literal.Number": "ansimagenta",
    "Comment": "italic",
}


def wanted() -> bool:
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"


def coloured(line: str) -> str:
    """A line of a diff for a terminal, by its sign."""
    code = _SGR[_SIGNS.get(line[:1], "")]
    return f"\x1b[{code}m{line}\x1b[0m" if code and wanted() else line


def fragments(lines: Sequence[str], path: str) -> Iterator[Fragments]:
    """The lines of a diff, with the colours of the path's language."""
    language = _lexer(os.path.basename(path)) if wanted() else None
    until = time.monotonic() + MOMENTS
    for start, end in _hunks(lines):
        hunk = lines[start:end]
        is_code = bool(hunk) and hunk[0].startswith("@@") and time.monotonic() < until
        words = (
            _words(language, [line[1:] for line in hunk])
            if language is not None and is_code
            else None
        )
        for number, line in enumerate(hunk):
            yield _line(line, words[number] if words else None)


def _hunks(lines: Sequence[str]) -> Iterator[tuple[int, int]]:
    starts = [
        0,
        *(
            number
            for number, line in enumerate(lines)
            if number and line.startswith("@@")
        ),
    ]
    yield from zip(starts, [*starts[1:], len(lines)], strict=True)


def _line(line: str, words: Fragments | None) -> Fragments:
    sign, cut = line[:1], len(line) - LONGEST
    more: Fragments = [("bold", f" … {cut} more characters")] if cut > 0 else []
    if words is None or cut > 0 or sign not in ("+", " "):
        return [(_SIGNS.get(sign, ""), line[:LONGEST]), *more]
    return [(_SIGNS.get(sign, ""), sign), *words]


def _words(language: Lexer, lines: Sequence[str]) -> list[Fragments] | None:
    """The colours of some lines; None if they take too long, or the language's rules do not keep the lines."""
    if sum(map(len, lines)) > MOST or any(len(line) > LONGEST for line in lines):
        return None
    made: list[Fragments] = [[]]
    with suppress(TimeoutError), _a_moment():
        for kind, text in language.get_tokens("\n".join(lines)):
            first, *rest = text.split("\n")
            made[-1].append((_style(str(kind)), first))
            made += [[(_style(str(kind)), each)] for each in rest]
        same = ["".join(text for _, text in line) for line in made[: len(lines)]] == [
            *lines
        ]
        return made if same else None
    return None


@cache
def _style(kind: str) -> str:
    name = kind.removeprefix("Token.")
    return next(
        (style for start, style in _TOKENS.items() if name.startswith(start)), ""
    )


@cache
def _lexer(name: str) -> Lexer | None:
    try:
        from pygments.lexers import get_lexer_for_filename
        from pygments.util import ClassNotFound
    except ImportError:
        return None
    try:
        found: Lexer = get_lexer_for_filename(name, stripnl=False, ensurenl=True)
        return None if "text" in found.aliases else found
    except ClassNotFound:
        return None


@contextmanager
def _a_moment() -> Iterator[None]:
    """TimeoutError after `MOMENT`: a regular expression looks for signals while it searches. Only the main thread gets
    them; elsewhere nothing is coloured."""
    if threading.current_thread() is not threading.main_thread():
        raise TimeoutError

    def late(*_: Any) -> None:
        raise TimeoutError

    before: Callable[..., Any] | int | None = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, MOMENT)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
