"""Replaces a mount of a running sandbox: the new mount is made on the host and moved into the sandbox's namespace.

A process that has a directory of the old mount open keeps it, so this is done while no command runs. A thread may enter
another mount namespace once it has unshared its file-system state; other threads are not affected.
"""

from __future__ import annotations

import os

from belljar.syscalls import (
    AT_FDCWD,
    CLONE_FS,
    CLONE_NEWNS,
    MNT_DETACH,
    MOVE_MOUNT,
    OPEN_TREE,
    checked,
    in_new_thread,
    libc,
    syscall,
)

_CLONE, _F_EMPTY_PATH = 1, 4


def swap(pid: int, source: str, target: str) -> None:
    """Replace what process `pid` has mounted at `target` by the mount at `source`."""
    tree = syscall(OPEN_TREE, AT_FDCWD, os.fsencode(source), _CLONE | os.O_CLOEXEC)

    def inside() -> None:
        checked(libc.unshare(CLONE_FS))
        namespace = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
        try:
            checked(libc.setns(namespace, CLONE_NEWNS))
        finally:
            os.close(namespace)
        checked(libc.umount2(os.fsencode(target), MNT_DETACH))
        syscall(MOVE_MOUNT, tree, b"", AT_FDCWD, os.fsencode(target), _F_EMPTY_PATH)

    try:
        in_new_thread(inside, "belljar-swap")
    finally:
        os.close(tree)
