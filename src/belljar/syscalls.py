"""System calls that Python has no function for, or none that is enough. What fails raises OSError, with what it was
about."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

# The same numbers on x86_64 and aarch64.
OPEN_TREE, MOVE_MOUNT, OPENAT2, MOUNT_SETATTR, LANDLOCK_CREATE_RULESET = 428, 429, 437, 442, 444
FSCONFIG, FSPICK = 431, 433
AT_FDCWD, AT_EMPTY_PATH = -100, 0x1000
CLONE_FS, CLONE_NEWNS, CLONE_NEWNET, CLONE_NEWUSER = 0x200, 0x20000, 0x40000000, 0x10000000
MS_NOSUID, MS_NODEV, MS_NOATIME, MS_BIND, MS_REC, MS_PRIVATE = 2, 4, 1 << 10, 1 << 12, 1 << 14, 1 << 18
MNT_DETACH, UMOUNT_NOFOLLOW = 2, 8

libc = ctypes.CDLL(None, use_errno=True)
T = TypeVar("T")


def apart(work: Callable[[], T], name: str) -> T:
    """What `work` gives in a thread that is for this alone: the namespaces that it enters are nobody else's."""
    outcome: list[T] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(work())
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=run, name=name)
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return outcome[0]


def write_all(descriptor: int, data: bytes) -> None:
    """A disk that is nearly full takes a part."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def checked(answer: int, what: str | None = None) -> int:
    if answer < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), what)
    return answer


def syscall(number: int, *arguments: object, what: str | None = None) -> int:
    return checked(libc.syscall(ctypes.c_long(number), *arguments), what)


def mount(source: str, target: str | Path, kind: str | None, flags: int, options: str | None = None) -> None:
    kinds, data = kind.encode() if kind else None, os.fsencode(options) if options else None
    checked(libc.mount(os.fsencode(source), os.fsencode(target), kinds, ctypes.c_ulong(flags), data), os.fspath(target))
