"""Walks the whole workspace once, while its sandbox starts, for privileged files and git directories.

Privileged files are set-id files and those with capabilities. A command cannot create one, and writing to one removes
the bits, but writing through a shared mapping does not: a command could replace its code. Directories may have the bit
(their files inherit the group).

Git directories have hooks and settings that the host's git runs: the workspace's own, nested ones, those of submodules
and worktrees, bare ones.
"""

from __future__ import annotations

import errno
import os
import shlex
import stat
import threading
import time
from contextlib import suppress

from belljar.errors import ProtectionMissing
from belljar.workspace.beneath import Folder

_MOST_NAMED = 3  # privileged files in the message
_SET_ID = stat.S_ISUID | stat.S_ISGID
_CAPABILITIES = "security.capability"
MARKS = ("HEAD", "objects", "refs")
"""Git accepts a directory with these three entries as a git directory."""
_MOST = 256
"""Git directories that are watched; each costs a few microseconds per command."""


_FRESH = 10.0
"""Seconds for which a walk is reused, so that a burst of sandboxes shares one. Files that the host adds later are not
searched for anyway, and commands cannot set the bits."""


class Surveys:
    """The recent walks of one host."""

    def __init__(self) -> None:
        self._recent: dict[tuple[int, int], tuple[float, Survey]] = {}
        self._lock = threading.Lock()

    def of(self, workspace: int) -> Survey:
        """A new walk, or a recent one of the same directory that found nothing wrong: the caller may mend that at
        once."""
        status, now = os.fstat(workspace), time.monotonic()
        with self._lock:
            self._recent = {
                inode: (began, recent)
                for inode, (began, recent) in self._recent.items()
                if now - began <= _FRESH and not recent.found_wrong
            }
            inode = status.st_dev, status.st_ino
            if inode not in self._recent:
                self._recent[inode] = now, Survey(workspace)
            return self._recent[inode][1]


class Survey:
    """Runs in a thread; the methods wait for its end."""

    def __init__(self, workspace: int) -> None:
        self._privileged: list[str] = []
        self._marks: dict[str, set[str]] = {}
        self._failure: OSError | None = None
        self._folder = Folder.of(workspace)
        self._thread = threading.Thread(
            target=self._look, name="belljar-survey", daemon=True
        )
        self._thread.start()

    def _look(self) -> None:
        try:
            with self._folder:
                for path, status in self._folder.walk():
                    self._see(path, status.st_mode)
        except OSError as failure:
            self._failure = failure

    def _see(self, path: str, mode: int) -> None:
        above, _, name = path.rpartition("/")
        if name in MARKS:
            self._marks.setdefault(name, set()).add(above)
        runs = mode & 0o111 and stat.S_ISREG(mode)
        if (
            runs
            and len(self._privileged) < _MOST_NAMED
            and self._is_privileged(path, mode)
        ):
            self._privileged.append(path)

    def _is_privileged(self, path: str, mode: int) -> bool:
        if mode & _SET_ID:
            return True
        with suppress(OSError):  # deleted, or a file system without attributes
            return _CAPABILITIES in self._folder.xattr_names(path)
        return False

    @property
    def found_wrong(self) -> bool:
        """By now."""
        return bool(self._privileged or self._failure)

    def git_directories(self) -> list[str]:
        """Paths relative to the workspace, the shallowest first."""
        self._thread.join()
        directories = set.intersection(
            *(self._marks.get(mark, set()) for mark in MARKS)
        )
        return sorted(directories, key=lambda path: (path.count("/"), path))[:_MOST]

    def refuse_privileged(self, workspace: str) -> None:
        self._thread.join()
        if self._privileged:
            names = ", ".join(
                os.path.join(workspace, name) for name in self._privileged
            )
            raise ProtectionMissing(
                f"workspace: these files run with more rights than their caller's, and a command could replace them: "
                f"{names}; take the rights away (chmod ug-s, setcap -r) or move them elsewhere"
            )
        if (failure := self._failure) is not None:
            message = f"workspace: privileged files cannot be looked for in {workspace}: {failure.strerror}"
            if failure.errno == errno.ENAMETOOLONG:
                top = os.path.join(workspace, str(failure.filename).partition("/")[0])
                message += f"; it is of no use to other programs either: rm -rf -- {shlex.quote(top)}"
            raise ProtectionMissing(message) from failure
