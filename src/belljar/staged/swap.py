"""Exchange what a running sandbox has mounted at a place: the mount is made here and moved into its namespace.

Who has a directory of the old mount open keeps it; so this is done when no command runs. The kernel lets a thread enter
another mount namespace once it has a file-system state of its own, and no other thread notices.
"""

from __future__ import annotations

import ctypes
import os
import threading

_libc = ctypes.CDLL(None, use_errno=True)
_OPEN_TREE, _MOVE_MOUNT = 428, 429  # the same on x86_64 and aarch64
_AT_FDCWD = -100
_CLONE, _F_EMPTY_PATH, _DETACH = 1, 4, 2
_CLONE_FS, _CLONE_NEWNS = 0x200, 0x20000


def swap(pid: int, source: str, target: str) -> None:
    """Put the mount at `source` in place of what process `pid` has at `target`. OSError where that is not allowed."""
    tree = _checked(_libc.syscall(ctypes.c_long(_OPEN_TREE), _AT_FDCWD, os.fsencode(source), _CLONE | os.O_CLOEXEC))
    failed: list[OSError] = []

    def inside() -> None:
        try:
            _checked(_libc.unshare(_CLONE_FS))
            namespace = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
            try:
                _checked(_libc.setns(namespace, _CLONE_NEWNS))
            finally:
                os.close(namespace)
            _checked(_libc.umount2(os.fsencode(target), _DETACH))
            _checked(
                _libc.syscall(ctypes.c_long(_MOVE_MOUNT), tree, b"", _AT_FDCWD, os.fsencode(target), _F_EMPTY_PATH)
            )
        except OSError as error:
            failed.append(error)

    thread = threading.Thread(target=inside, name="belljar-swap")
    thread.start()
    thread.join()
    os.close(tree)
    if failed:
        raise failed[0]


def _checked(answer: int) -> int:
    if answer < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return answer
