"""Whole files through a command's own pipes, past the event loop: a thread moves bytes between file and pipe.

The sandbox has the other end of the pipe and may never read or write: the thread looks up often enough to be stopped.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
from collections.abc import Callable
from contextlib import suppress

from belljar.syscalls import write_all

PIECE = 1 << 20
LOOK_UP_MS = 100


def pour(file: int, pipe: int, stopped: Callable[[], bool]) -> None:
    """A file into a pipe, until its end or until nobody reads any more. Both descriptors are closed."""
    try:
        widen(pipe)
        with suppress(BrokenPipeError):
            _poured(file, pipe, stopped)
    finally:
        os.close(file)
        os.close(pipe)


def _poured(file: int, pipe: int, stopped: Callable[[], bool]) -> None:
    """Copied, not spliced: pages of the host's file are nothing for a pipe that the sandbox holds."""
    buffer = memoryview(bytearray(PIECE))
    left = buffer[:0]
    while not stopped():
        if not left and _wait(file, select.POLLIN):
            left = buffer[: os.readv(file, [buffer])]
            if not left:
                return
        try:
            left = left[os.write(pipe, left) :]
        except BlockingIOError:
            _wait(pipe, select.POLLOUT)


def spill(pipe: int, file: int, ended: Callable[[], bool]) -> int:
    """A pipe into a file; how many bytes. Once whoever wrote to it has ended, an empty pipe is the end.

    Both descriptors are closed."""
    try:
        return _spilled(pipe, file, ended)
    finally:
        os.close(file)
        os.close(pipe)


def _spilled(pipe: int, file: int, ended: Callable[[], bool]) -> int:
    total, move = 0, _spliced
    while True:
        last = ended()
        try:
            moved = move(pipe, file)
        except BlockingIOError:
            if last:
                return total
            _wait(pipe, select.POLLIN)
            continue
        except OSError as error:
            if error.errno != errno.EINVAL or move is _copied:
                raise
            move = _copied  # a file system that cannot take pages
            continue
        if not moved:
            return total
        total += moved


def _spliced(pipe: int, file: int) -> int:
    return os.splice(pipe, file, PIECE)


def _copied(pipe: int, file: int) -> int:
    data = os.read(pipe, PIECE)
    write_all(file, data)
    return len(data)


def widen(pipe: int) -> bool:
    """Whether it holds more from now on."""
    with suppress(OSError):  # this user's pipes are as wide as they may be
        return fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ) < PIECE <= fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIECE)
    return False


def _wait(descriptor: int, what: int) -> bool:
    """Whether something can be done now."""
    poll = select.poll()
    poll.register(descriptor, what)
    return bool(poll.poll(LOOK_UP_MS))
