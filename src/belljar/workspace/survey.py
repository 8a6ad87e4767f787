"""One walk over the whole workspace while its sandbox starts: what must not be given to it, and what to watch in it.

Privileged files: set-id ones, and those with capabilities. No call inside can give these, and writing takes them away,
but writing through a shared mapping does not: what runs as its owner could be replaced from inside. Directories may
have the bit (their files inherit the group).

Git directories. Each has hooks and settings that the host's git will run and obey: the workspace's own, nested ones,
submodules', worktrees', bare ones.
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

_TOLD = 3
_SET_ID = stat.S_ISUID | stat.S_ISGID
_CAPABILITIES = "security.capability"
MARKS = ("HEAD", "objects", "refs")
"""What git takes a directory for one of its own by."""
_MOST = 256
"""Git directories that are watched; each costs a few microseconds per command."""


_FRESH = 10.0
"""Seconds for which a walk is good: a pool's sandboxes, or a burst of them, share one. What the host itself puts into
the workspace later is not looked for anyway, and nothing inside can set the bit."""
_recent: dict[tuple[int, int], tuple[float, Survey]] = {}
_lock = threading.Lock()


def survey(workspace: int) -> Survey:
    """A walk of its own, or one that others have just begun in the same directory."""
    status, now = os.fstat(workspace), time.monotonic()
    with _lock:
        for inode in [inode for inode, (began, _) in _recent.items() if now - began > _FRESH]:
            del _recent[inode]
        inode = status.st_dev, status.st_ino
        if inode not in _recent:
            _recent[inode] = now, Survey(workspace)
        return _recent[inode][1]


class Survey:
    """Runs in a thread from the beginning; whoever asks for something waits for its end."""

    def __init__(self, workspace: int) -> None:
        self._privileged: list[str] = []
        self._marks: dict[str, set[str]] = {}
        self._failure: OSError | None = None
        self._folder = Folder.of(workspace)
        self._thread = threading.Thread(target=self._look, name="belljar-survey", daemon=True)
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
        if mode & 0o111 and stat.S_ISREG(mode) and len(self._privileged) < _TOLD and self._is_privileged(path, mode):
            self._privileged.append(path)

    def _is_privileged(self, path: str, mode: int) -> bool:
        if mode & _SET_ID:
            return True
        with suppress(OSError):  # gone meanwhile, or a file system without attributes
            return _CAPABILITIES in self._folder.xattr_names(path)
        return False

    def git_directories(self) -> list[str]:
        """Relative to the workspace; those nearest to it first."""
        self._thread.join()
        found = set.intersection(*(self._marks.get(mark, set()) for mark in MARKS))
        return sorted(found, key=lambda path: (path.count("/"), path))[:_MOST]

    def refuse_privileged(self, workspace: str) -> None:
        self._thread.join()
        if self._privileged or self._failure:
            self._forget()
        if self._privileged:
            names = ", ".join(os.path.join(workspace, name) for name in self._privileged)
            raise ProtectionMissing(
                f"workspace: these files run with more rights than their caller's, and a command could replace them: "
                f"{names}; take the rights away (chmod ug-s, setcap -r) or move them elsewhere"
            )
        if (failure := self._failure) is not None:
            said = f"workspace: privileged files cannot be looked for in {workspace}: {failure.strerror}"
            if failure.errno == errno.ENAMETOOLONG:
                top = os.path.join(workspace, str(failure.filename).partition("/")[0])
                said += f"; it is of no use to other programs either: rm -rf -- {shlex.quote(top)}"
            raise ProtectionMissing(said) from failure

    def _forget(self) -> None:
        """Whoever fixes what was found need not wait."""
        with _lock:
            for inode in [inode for inode, (_, found) in _recent.items() if found is self]:
                del _recent[inode]
