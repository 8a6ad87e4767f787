"""Changes that the project itself does not keep: what its `.gitignore` files and `info/exclude` ignore.

Git's own rules, read here: the workspace is hostile, so git never runs with its settings. A directory's `.gitignore` is
the host's if it has one: a command must not hide its changes by editing that. A new project's own counts as well. Files
that git tracks are never ignored. Without git a short list stands in: caches and byte code.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from belljar.patterns import is_affordable_glob
from belljar.staged import git_index
from belljar.workspace.beneath import Folder

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

NAME = ".gitignore"
LONGEST = 1 << 17  # bytes of a file of patterns: it takes seconds to understand
WITHOUT_GIT = (
    "__pycache__/",
    "*.py[co]",
    ".pytest_cache/",
    ".mypy_cache/",
    ".ruff_cache/",
    ".hypothesis/",
    ".tox/",
    ".nox/",
    ".coverage",
    ".DS_Store",
)
MOST_ABOVE = 20  # directories above the workspace that may be the top of its repository


class Ignored:
    """`place`: the workspace's path. `read`: a file as the host has it, else as the sandbox has it."""

    def __init__(
        self, lower: Folder, place: str, read: Callable[[str], bytes | None]
    ) -> None:
        self._lower, self._place, self._read = lower, place, read
        self._specs: dict[str, _Rules | None] = {}
        self._directories: dict[str, bool] = {"": False}

    def covers(self, path: str, *, is_directory: bool, exists: bool) -> bool:
        """Whether a change is ignored. `exists`: the host has the file, so git may track it."""
        if path == ".git" or "/.git/" in f"/{path}/":
            return False
        above = posixpath.dirname(path)
        found = (
            self._is_ignored(above)
            or self._says(path, is_directory=is_directory) is True
        )
        return found and not (exists and not is_directory and path in self._tracked)

    def _is_ignored(self, directory: str) -> bool:
        """Whether a directory is, with all below it."""
        if directory not in self._directories:
            above = posixpath.dirname(directory)
            found = (
                self._is_ignored(above)
                or self._says(directory, is_directory=True) is True
            )
            self._directories[directory] = found
        return self._directories[directory]

    def _says(self, path: str, *, is_directory: bool) -> bool | None:
        """What the last pattern that fits says; the deeper a file of patterns the more it counts."""
        end = "/" if is_directory else ""
        for directory, spec in self._from_below(path):
            inner = path[len(directory) :].lstrip("/") if directory else path
            if (said := spec.says(inner + end)) is not None:
                return said
        for prefix, spec in self._outside:
            if (said := spec.says(posixpath.join(prefix, path) + end)) is not None:
                return said
        return None

    def _from_below(self, path: str) -> Iterator[tuple[str, _Rules]]:
        directory = posixpath.dirname(path)
        while self._is_git:
            if (spec := self._spec(directory)) is not None:
                yield directory, spec
            if not directory:
                return
            directory = posixpath.dirname(directory)

    def _spec(self, directory: str) -> _Rules | None:
        if directory not in self._specs:
            content = self._read(posixpath.join(directory, NAME)) or b""
            self._specs[directory] = (
                _parsed(content) if 0 < len(content) <= LONGEST else None
            )
        return self._specs[directory]

    @cached_property
    def _top(self) -> Path | None:
        """The top of the repository that the workspace is or is in."""
        place = Path(self._place)
        for directory in [place, *place.parents][:MOST_ABOVE]:
            if os.path.lexists(directory / ".git"):
                return directory
        return None

    @property
    def _is_git(self) -> bool:
        return self._top is not None

    @cached_property
    def _outside(self) -> list[tuple[str, _Rules]]:
        """Patterns from elsewhere, those that count more first: directories above the workspace, then `info/exclude`.
        With each the path from there to the workspace."""
        top = self._top
        if top is None:
            return [("", _parsed("\n".join(WITHOUT_GIT).encode()))]
        place, found = Path(self._place), []
        above = [each for each in place.parents if each == top or top in each.parents]
        for path, base in [
            *((each / NAME, each) for each in above),
            (top / ".git" / "info" / "exclude", top),
        ]:
            with suppress(OSError), Folder.at(path.parent) as folder:
                prefix = os.path.relpath(place, base)
                found.append(
                    (
                        "" if prefix == "." else prefix,
                        _parsed(folder.read(path.name, LONGEST)),
                    )
                )
        return found

    @cached_property
    def _tracked(self) -> frozenset[str]:
        """The paths in git's index, below the workspace."""
        top = self._top
        if top is None:
            return frozenset()
        with suppress(OSError), Folder.at(top / ".git") as folder:
            names = git_index.names(folder.read("index", git_index.LARGEST))
            prefix = os.path.relpath(self._place, top)
            start = "" if prefix == "." else f"{prefix}/"
            return frozenset(
                name[len(start) :] for name in names if name.startswith(start)
            )
        return frozenset()


class _Rules:
    """The patterns of one file. Most paths fit none of them, which one expression of them all tells at once."""

    def __init__(self, spec: GitIgnoreSpec) -> None:
        self._spec = spec
        found = [each.regex.pattern for each in spec.patterns if each.regex is not None]
        # A group has the same name in all of them. Only a class of characters could say this and mean itself: then a
        # file counts as not ignored, and is shown.
        unnamed = "|".join(f"(?:{one.replace('(?P<ps_d>', '(?:')})" for one in found)
        are_anchored = all(one.startswith("^") for one in found)
        self._any = re.compile((unnamed or "(?!)") if are_anchored else "")

    def says(self, path: str) -> bool | None:
        if not self._any.match(path):
            return None
        return self._spec.check_file(path).include


def _parsed(content: bytes) -> _Rules:
    return _Rules(_spec_of(content))


def _spec_of(content: bytes) -> GitIgnoreSpec:
    """Without the patterns that would take too long: what they name is shown."""
    from pathspec import GitIgnoreSpec  # imported where something changed

    text = content.decode("utf-8", "surrogateescape")
    lines = [line for line in text.splitlines() if is_affordable_glob(line)]
    try:
        return GitIgnoreSpec.from_lines(lines)
    except (ValueError, re.error):  # a pattern that git would ignore, too
        good = []
        for line in lines:
            with suppress(ValueError, re.error):
                GitIgnoreSpec.from_lines([line])
                good.append(line)
        return GitIgnoreSpec.from_lines(good)
