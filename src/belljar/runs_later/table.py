"""Reads runs.txt, and finds the line for a path."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase, translate
from functools import cache
from pathlib import Path
from typing import NamedTuple

from belljar.patterns import lazy_pattern
from belljar.runs_later.values import Reader, reader_of

PACKAGES = frozenset(("node_modules", "site-packages"))
"""Directories of installed packages: nobody works in these, so only git directories count there."""
_NOT_A_HOOK = lazy_pattern(r".*\.sample|README(\..*)?|\.gitignore", re.IGNORECASE)
"""Harmless names in a directory of hooks; any other may be a hook, or read by one."""


class Line(NamedTuple):
    pattern: str
    said: str
    reader: Reader | None
    who: str


class Table:
    def __init__(self, text: str) -> None:
        lines = [
            line for line in text.splitlines() if line and not line.startswith("#")
        ]
        lists = {
            name: rest.split()
            for name, _, rest in (
                line.partition(": ") for line in lines if ": " in line
            )
        }
        self._by_first: dict[str, list[Line]] = {}
        """First component of the pattern → lines."""
        self._globs: list[Line] = []
        for pattern, said, who in (
            line.split(None, 2) for line in lines if ": " not in line
        ):
            entry = Line(pattern, said, reader_of(said, lists), who)
            first = pattern.lstrip("/").partition("/")[0]
            if "*" in first:
                self._globs.append(entry)
            else:
                self._by_first.setdefault(first, []).append(entry)
        self._any_glob = re.compile(
            "|".join(translate(line.pattern) for line in self._globs) or r"(?!)"
        )
        self._starts = tuple(
            start for line in self._globs if (start := line.pattern.partition("*")[0])
        )
        self._ends = tuple(
            line.pattern.partition("*")[2]
            for line in self._globs
            if line.pattern.startswith("*")
        )

    def matters(self, name: str) -> bool:
        """Whether an entry of this name may be such a file, or a directory with some; sometimes wrongly True."""
        return (
            name in self._by_first
            or name.endswith(self._ends)
            or name.startswith(self._starts)
        )

    def find(self, path: str) -> Line | None:
        """The line for a file; None if no line fits, or the file is harmless."""
        parts = path.split("/")
        if not PACKAGES.isdisjoint(parts):
            return None
        for start, part in enumerate(parts):
            if (lines := self._by_first.get(part)) is None:
                continue
            rest = "/".join(parts[start:])
            for line in lines:
                if _fits(line.pattern, rest, at_top=start == 0):
                    harmless = line.reader is None or (
                        line.said == "hooks" and is_no_hook(parts[-1])
                    )
                    return None if harmless else line
        if not self._any_glob.match(parts[-1]):
            return None
        for line in self._globs:
            if fnmatchcase(parts[-1], line.pattern):
                return line
        return None

    def find_link(self, path: str) -> Line | None:
        """The same for a link: it may stand for a file, or for a directory with such files."""
        if (line := self.find(path)) is not None:
            return line
        parts = path.split("/")
        for start, part in enumerate(parts) if PACKAGES.isdisjoint(parts) else ():
            rest = "/".join(parts[start:])
            for line in self._by_first.get(part, ()):
                pattern = line.pattern
                top = not pattern.startswith("/") or start == 0
                if (
                    line.reader is not None
                    and top
                    and pattern.lstrip("/").startswith(f"{rest}/")
                ):
                    return line
        return None


def _fits(pattern: str, rest: str, *, at_top: bool) -> bool:
    if pattern.startswith("/"):
        if not at_top:
            return False
        pattern = pattern[1:]
    if pattern.endswith("/**"):
        return rest.startswith(pattern[:-2])
    if "*" in pattern:
        return pattern.count("/") == rest.count("/") and fnmatchcase(rest, pattern)
    return rest == pattern


def is_no_hook(name: str) -> bool:
    return _NOT_A_HOOK.fullmatch(name) is not None


@cache
def table() -> Table:
    return Table(Path(__file__).with_name("runs.txt").read_text())
