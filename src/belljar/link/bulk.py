"""Copies whole files through a command's own pipes, in a thread instead of the event loop.

The sandbox has the other end of the pipe and may never read or write, so the thread often checks whether to stop.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import sys
import termios
from collections.abc import Callable
from contextlib import suppress

from belljar.syscalls import closing, write_all

PIECE = 1 << 20
CHECK_MS = 100


def pour(file: int, pipe: int, stopped: Callable[[], bool]) -> None:
    """Copy a file into a pipe, to its end or until nobody reads any more. Closes both descriptors."""
    with closing(file), closing(pipe), suppress(BrokenPipeError):
        enlarge(pipe)
        _copy_into_pipe(file, pipe, stopped)


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
    """Copy a pipe into a file and return the number of bytes. Once the writer has `ended`, what is in the pipe then is
    the rest. Closes both descriptors."""
    with closing(file), closing(pipe):
        return _copy_from_pipe(pipe, file, ended)


def _copy_from_pipe(pipe: int, file: int, ended: Callable[[], bool]) -> int:
    total, can_splice, left = 0, True, None
    while left != 0:
        if left is None and ended():
            left = unread(pipe)
            continue
        most = PIECE if left is None else min(PIECE, left)
        try:
            moved = (
                os.splice(pipe, file, most)
                if can_splice
                else _read_and_write(pipe, file, most)
            )
        except BlockingIOError:
            if left is not None:
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
        left = left and left - moved
    return total


def _read_and_write(pipe: int, file: int, most: int) -> int:
    data = os.read(pipe, most)
    write_all(file, data)
    return len(data)


def unread(pipe: int) -> int:
    """How many bytes are in the pipe. Of a command whose processes are dead that is the rest: another process of the
    sandbox may hold the pipe and write to it for ever."""
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


def enlarge(pipe: int) -> bool:
    """Returns whether the pipe holds more from now on."""
    with suppress(OSError):  # this user's quota for pipes is used up
        return (
            fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ)
            < PIECE
            <= fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIECE)
        )
    return False


def _wait(descriptor: int, events: int) -> bool:
    """Returns whether the descriptor is ready."""
    poll = select.poll()
    poll.register(descriptor, events)
    return bool(poll.poll(CHECK_MS))
