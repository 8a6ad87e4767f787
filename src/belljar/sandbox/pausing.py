"""The mark of a paused sandbox. Its init is frozen with all the rest, so no lease of its own can end it.

`<run>/<session>/paused` is there while a kept sandbox is paused. The process that paused it holds a lock on it. Once
nobody does, the lease runs; the file's time says when it is over, and then the reaper ends the sandbox.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path
from typing import Self

from belljar.errors import BelljarError, UsageError

NAME = "paused"


class Mark:
    def __init__(self, path: Path, lock: int, lease: float) -> None:
        self._path = path
        self._lock = lock
        self._lease = lease

    @classmethod
    def make(cls, run_dir: Path, lease: float) -> Self:
        """Also of a sandbox that is paused already, for the process that takes it over."""
        path = run_dir / NAME
        try:
            lock = os.open(
                path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
            )
        except OSError as error:
            raise BelljarError(f"Cannot write {path}: {error.strerror}") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise UsageError(
                f"session {run_dir.name} is paused by a process that still has it open"
            ) from None
        _set_end(path, lease)  # for the case that this process is killed
        return cls(path, lock, lease)

    def release(self) -> None:
        """It stays paused; from now on its lease runs."""
        _set_end(self._path, self._lease)
        os.close(self._lock)

    def remove(self) -> None:
        with contextlib.suppress(OSError):
            self._path.unlink()
        os.close(self._lock)


def _set_end(path: Path, lease: float) -> None:
    over = time.time() + lease
    with contextlib.suppress(OSError):  # it was removed with its sandbox
        os.utime(path, (over, over))


def is_marked(run_dir: Path) -> bool:
    return (run_dir / NAME).exists()


def is_over(run_dir: Path) -> bool:
    """Whether nobody holds a paused sandbox any more, and its lease is over."""
    try:
        lock = os.open(run_dir / NAME, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.fstat(lock).st_mtime <= time.time()
    except BlockingIOError:
        return False
    finally:
        os.close(lock)
