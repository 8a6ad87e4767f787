"""One walk over the whole workspace while its sandbox starts: what must not be given to it, and what to watch in it.

Set-id files. No call inside can set these bits, and writing clears them, but writing through a shared mapping does not:
what runs as its owner could be replaced from inside. Directories may have the bit (their files inherit the group).

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

from belljar.errors import ProtectionMissing
from belljar.workspace.beneath import Folder

_TOLD = 3
_SET_ID = stat.S_ISUID | stat.S_ISGID
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
        self._set_id: list[str] = []
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
        if mode & _SET_ID and mode & 0o111 and stat.S_ISREG(mode) and len(self._set_id) < _TOLD:
            self._set_id.append(path)

    def git_directories(self) -> list[str]:
        """Relative to the workspace; those nearest to it first."""
        self._thread.join()
        found = set.intersection(*(self._marks.get(mark, set()) for mark in MARKS))
        return sorted(found, key=lambda path: (path.count("/"), path))[:_MOST]

    def refuse_set_id(self, workspace: str) -> None:
        self._thread.join()
        if self._set_id or self._failure:
            self._forget()
        if self._set_id:
            names = ", ".join(os.path.join(workspace, name) for name in self._set_id)
            raise ProtectionMissing(
                f"workspace: these files run as their owner, and a command could replace them: {names}; "
                "take the bit away (chmod ug-s) or move them elsewhere"
            )
        if (failure := self._failure) is not None:
            said = f"workspace: set-id files cannot be looked for in {workspace}: {failure.strerror}"
            if failure.errno == errno.ENAMETOOLONG:
                top = os.path.join(workspace, str(failure.filename).partition("/")[0])
                said += f"; it is of no use to other programs either: rm -rf -- {shlex.quote(top)}"
            raise ProtectionMissing(said) from failure

    def _forget(self) -> None:
        """Whoever fixes what was found need not wait."""
        with _lock:
            for inode in [inode for inode, (_, found) in _recent.items() if found is self]:
                del _recent[inode]
