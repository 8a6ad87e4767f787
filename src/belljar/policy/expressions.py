"""Regular expressions over a command's text: compiled when first used, each with a limit of time.

Python's own engine cannot be stopped while it backtracks; the package `regex` can. The length of the text limits the
work, equally on every machine. The limit of time is the last resort: a command that reaches it is denied.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any

from .parser import TooComplex
from .toml_files import tables

CAP = 2.0  # seconds for one expression on one text; the longest text takes a thousandth
MAX_SUBJECT = 131_072  # the longest command


@functools.lru_cache(maxsize=2000)
def compiled(pattern: str, dot_all: bool = False) -> Any:
    import regex

    return regex.compile(pattern, regex.DOTALL if dot_all else regex.MULTILINE)


@functools.cache
def named(name: str) -> str:
    """An expression of [language.command.calls] in languages.toml."""
    text: str = tables()["language"]["command"]["calls"][name]
    return text


def fault(pattern: str) -> str:
    """Why a text is not a valid expression; empty if it is."""
    import regex

    try:
        compiled(pattern)
    except (regex.error, IndexError, OverflowError, RecursionError) as error:
        return str(error) or type(error).__name__
    return ""


def search(pattern: str, text: str) -> Any:
    return _capped(lambda: compiled(pattern).search(text[:MAX_SUBJECT], timeout=CAP))


def match_start(pattern: str, text: str) -> Any:
    """At the beginning of the text."""
    return _capped(lambda: compiled(pattern).match(text[:MAX_SUBJECT], timeout=CAP))


def fullmatch(pattern: str, text: str) -> Any:
    return _capped(
        lambda: compiled(pattern, True).fullmatch(text[:MAX_SUBJECT], timeout=CAP)
    )


def is_a(name: str, text: str) -> Any:
    """Whether the whole text is what the expression of this name describes."""
    return fullmatch(named(name), text)


def begins(name: str, text: str) -> Any:
    return match_start(named(name), text)


def holds(name: str, text: str) -> Any:
    return search(named(name), text)


def find_all(pattern: str, text: str, most: int = 40) -> Iterator[Any]:
    matches = _capped(
        lambda: compiled(pattern).finditer(text[:MAX_SUBJECT], timeout=CAP)
    )
    for _ in range(most):
        if (match := _capped(lambda: next(matches, None))) is None:
            return
        yield match


def _capped(run: Callable[[], Any]) -> Any:
    try:
        return run()
    except TimeoutError:
        raise TooComplex("an expression takes too long on it") from None
