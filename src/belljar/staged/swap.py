"""Exchange what a running sandbox has mounted at a place: the mount is made here and moved into its namespace.

Who has a directory of the old mount open keeps it; so this is done when no command runs. The kernel lets a thread enter
another mount namespace once it has a file-system state of its own, and no other thread notices.
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
    """Put the mount at `source` in place of what process `pid` has at `target`. OSError where that is not allowed."""
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
