"""System calls that Python lacks or offers only in part. A failure raises OSError with the path or purpose."""

from __future__ import annotations

import ctypes
import os
import select
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

# The same numbers on x86_64 and aarch64.
OPEN_TREE, MOVE_MOUNT, OPENAT2, MOUNT_SETATTR, LANDLOCK_CREATE_RULESET = (
    428,
    429,
    437,
    442,
    444,
)
FSCONFIG, FSPICK = 431, 433
AT_FDCWD, AT_EMPTY_PATH = -100, 0x1000
CLONE_FS, CLONE_NEWNS, CLONE_NEWNET, CLONE_NEWUSER = (
    0x200,
    0x20000,
    0x40000000,
    0x10000000,
)
MS_NOSUID, MS_NODEV, MS_NOATIME, MS_BIND, MS_REC, MS_PRIVATE = (
    2,
    4,
    1 << 10,
    1 << 12,
    1 << 14,
    1 << 18,
)
MNT_DETACH, UMOUNT_NOFOLLOW = 2, 8

libc = ctypes.CDLL(None, use_errno=True)
T = TypeVar("T")


def in_new_thread(work: Callable[[], T], name: str) -> T:
    """Call `work` in a new thread and return its result. Namespaces that it enters end with the thread."""
    results: list[T] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run, name=name)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
    return results[0]


@contextmanager
def closing(descriptor: int) -> Iterator[int]:
    """Closes the descriptor at the end of the block."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of `data`: `write` may take only a part of it, for example when the disk is nearly full, or nothing if
    somebody who shares the descriptor has made it non-blocking."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:
            select.select([], [descriptor], [])


def checked(result: int, what: str | None = None) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), what)
    return result


def syscall(number: int, *arguments: object, what: str | None = None) -> int:
    return checked(libc.syscall(ctypes.c_long(number), *arguments), what)


def mount(
    source: str,
    target: str | Path,
    kind: str | None,
    flags: int,
    options: str | None = None,
) -> None:
    type, data = (
        kind.encode() if kind else None,
        os.fsencode(options) if options else None,
    )
    checked(
        libc.mount(
            os.fsencode(source), os.fsencode(target), type, ctypes.c_ulong(flags), data
        ),
        os.fspath(target),
    )
