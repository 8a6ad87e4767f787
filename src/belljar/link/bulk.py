"""Copies whole files through a command's own pipes, in a thread instead of the event loop.

The sandbox has the other end of the pipe and may never read or write, so the thread often checks whether to stop.
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
CHECK_MS = 100


def pour(file: int, pipe: int, stopped: Callable[[], bool]) -> None:
    """Copy a file into a pipe, to its end or until nobody reads any more. Closes both descriptors."""
    try:
        enlarge(pipe)
        with suppress(BrokenPipeError):
            _copy_into_pipe(file, pipe, stopped)
    finally:
        os.close(file)
        os.close(pipe)


def _copy_into_pipe(file: int, pipe: int, stopped: Callable[[], bool]) -> None:
    """Does not splice: that would put pages of the host's file into a pipe that the sandbox holds."""
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
    """Copy a pipe into a file and return the number of bytes. Once the writer has `ended`, an empty pipe is the end.

    Closes both descriptors."""
    try:
        return _copy_from_pipe(pipe, file, ended)
    finally:
        os.close(file)
        os.close(pipe)


def _copy_from_pipe(pipe: int, file: int, ended: Callable[[], bool]) -> int:
    total, can_splice = 0, True
    while True:
        last = ended()
        try:
            moved = os.splice(pipe, file, PIECE) if can_splice else _read_and_write(pipe, file)
        except BlockingIOError:
            if last:
                return total
            _wait(pipe, select.POLLIN)
            continue
        except OSError as error:
            if error.errno != errno.EINVAL or not can_splice:
                raise
            can_splice = False  # not every file system supports it
            continue
        if not moved:
            return total
        total += moved


def _read_and_write(pipe: int, file: int) -> int:
    data = os.read(pipe, PIECE)
    write_all(file, data)
    return len(data)


def enlarge(pipe: int) -> bool:
    """Returns whether the pipe holds more from now on."""
    with suppress(OSError):  # this user's quota for pipes is used up
        return fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ) < PIECE <= fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIECE)
    return False


def _wait(descriptor: int, events: int) -> bool:
    """Returns whether the descriptor is ready."""
    poll = select.poll()
    poll.register(descriptor, events)
    return bool(poll.poll(CHECK_MS))
