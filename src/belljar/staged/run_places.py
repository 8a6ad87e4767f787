"""Files that the host runs because its own git settings or links lead to them.

If `core.hooksPath` is `scripts/hooks`, `.git/hooks/pre-commit` is a link to `scripts/check`, or `.claude` is a link to
`agents`, then files are run whose names do not show it.
"""

from __future__ import annotations

import os
import posixpath
import stat
from collections.abc import Iterator
from contextlib import suppress

from belljar.staged.run_files import DIRECTORIES, Read, in_git
from belljar.workspace import git_settings
from belljar.workspace.beneath import Folder, named_below
from belljar.workspace.survey import MARKS

_READ = 1 << 20


class RunPlaces:
    def __init__(self, host: Folder) -> None:
        self._host = host
        self._targets: dict[str, frozenset[str]] = {}
        self._stores: dict[str, bool] = {}

    def hold(self, path: str, before: Read, after: Read) -> bool:
        parts = path.split("/")
        for end in range(len(parts)):
            above = "/".join(parts[:end])
            if any(f"{path}/".startswith(f"{place}/") for place in self._targets_of(above)):
                return True
            if self._is_store(above) and in_git("/".join(parts[end:]), before, after):
                return True
        return False

    def _is_store(self, directory: str) -> bool:
        """Whether it is a git directory with another name than `.git`: git accepts any that has these three entries."""
        if posixpath.basename(directory) == ".git":
            return False
        if directory not in self._stores:
            self._stores[directory] = all(self._host.exists(posixpath.join(directory, name)) for name in MARKS)
        return self._stores[directory]

    def _targets_of(self, directory: str) -> frozenset[str]:
        if directory not in self._targets:
            paths = [*self._links(directory), *self._settings(directory)]
            at = self._host.descriptor
            self._targets[directory] = frozenset(place for path in paths if (place := named_below(at, path)))
        return self._targets[directory]

    def _links(self, directory: str) -> Iterator[str]:
        git = posixpath.join(directory, ".git")
        hooks: list[str] = []
        with suppress(OSError):
            hooks = self._host.names(f"{git}/hooks")
        own = (posixpath.join(directory, name) for name in DIRECTORIES)
        for path in (git, f"{git}/config", f"{git}/hooks", *(f"{git}/hooks/{name}" for name in hooks), *own):
            with suppress(OSError):
                yield posixpath.join(posixpath.dirname(path), self._host.readlink(path))

    def _settings(self, directory: str) -> Iterator[str]:
        git = self._git_directory(directory)
        with suppress(OSError):
            for setting in git_settings.settings(self._host.read(f"{git}/config", _READ)) or ():
                if (setting.section, setting.key) == ("core", "hookspath"):
                    yield posixpath.join(directory, setting.value)
                elif setting.section in ("include", "includeif") and setting.key == "path":
                    yield posixpath.join(git, setting.value)

    def _git_directory(self, directory: str) -> str:
        """`.git`, or the directory that a file of that name leads to (a submodule, a worktree)."""
        git = posixpath.join(directory, ".git")
        with suppress(OSError):
            if stat.S_ISREG(self._host.stat(git).st_mode):
                _, _, named = os.fsdecode(self._host.read(git, 4096)).strip().partition("gitdir: ")
                return named_below(self._host.descriptor, posixpath.join(directory, named)) or git
        return git
