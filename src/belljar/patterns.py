"""Regular expressions that are compiled when they are first used.

The modules that a command imports define about a hundred, of which it needs few. Compiling one takes 0.1 ms.
"""

from __future__ import annotations

import re
from typing import Any, AnyStr, cast

_defined: list[_Pattern] = []


def lazy_pattern(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    return cast("re.Pattern[AnyStr]", _Pattern(text, flags))


def compile_all() -> None:
    """Those defined up to now: for processes that are forked from this one."""
    for pattern in _defined:
        for method in ("match", "search", "fullmatch"):
            getattr(pattern, method)


class _Pattern:
    def __init__(self, text: Any, flags: int) -> None:
        self._source = (text, flags)
        _defined.append(self)

    def __getattr__(self, name: str) -> Any:
        """Called once for each method that is used."""
        method = getattr(re.compile(*self._source), name)
        setattr(self, name, method)
        return method


def is_affordable_glob(line: str) -> bool:
    """Whether a pattern as in .gitignore is matched in few steps, whatever the path: an expression that begins again
    at each of several stars may take for ever."""
    parts = line.split("/")
    again = sum(part == "**" for part in parts[:-1])
    more = sum(max(0, part.count("*") - 1) for part in parts if part != "**")
    return again <= 2 and more <= 2 and again + more <= 3
