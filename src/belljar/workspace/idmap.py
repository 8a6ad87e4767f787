"""Idmapped mounts: show a directory with two ids exchanged, without changing it on disk.

Root's workspace is mounted for an unprivileged user: root's files on disk belong to that user inside, and files that
the user makes belong to root on disk. The kernel takes the mapping from a user namespace, which a descriptor keeps
alive, and later the mount.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

from belljar import syscalls, user_namespace
from belljar.syscalls import checked, libc, syscall

_PR_GET_SECUREBITS, _PR_SET_SECUREBITS, _SECBIT_NO_SETUID_FIXUP = 27, 28, 4
_SET_IDS = {"x86_64": (117, 119), "aarch64": (147, 149)}  # setresuid, setresgid
_OPEN_TREE_CLONE, _OPEN_TREE_CLOEXEC = 1, os.O_CLOEXEC
_MOVE_MOUNT_F_EMPTY_PATH = 4
_MOUNT_ATTR_NOSUID, _MOUNT_ATTR_NODEV, _MOUNT_ATTR_IDMAP = 0x2, 0x4, 0x100000
_MOUNT_ATTR_RDONLY = 0x1

_LAST_ID = 0xFFFFFFFE


class _MountAttributes(ctypes.Structure):
    _fields_ = (
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    )


def mount_exchanged(
    directory: int, target: Path, uids: tuple[int, int], gids: tuple[int, int]
) -> None:
    """Mount the directory behind a descriptor at `target`, with the two uids and the two gids exchanged.

    Mounts below the directory are left out. OSError if the kernel, the file system or our rights do not allow it.
    """
    with user_namespace.child_in_new_namespace() as child:
        namespace = _mapped(child, _exchange(*uids), _exchange(*gids))
    try:
        mount_mapped(directory, target, namespace, read_only=False)
    finally:
        os.close(namespace)


def unmount(target: Path) -> None:
    """Remove a mount, even one in use. A target that is not a mount, or does not exist, is no error."""
    libc.umount2(os.fsencode(target), syscalls.MNT_DETACH | syscalls.UMOUNT_NOFOLLOW)


def _exchange(one: int, other: int) -> str:
    """An id map over all ids that swaps two of them and leaves the others as they are."""
    low, high = sorted((one, other))
    if low == high:
        return f"0 0 {_LAST_ID + 1}"
    spans = [
        (0, 0, low),
        (low, high, 1),
        (low + 1, low + 1, high - low - 1),
        (high, low, 1),
        (high + 1, high + 1, _LAST_ID - high),
    ]
    return "\n".join(
        f"{inside} {outside} {count}" for inside, outside, count in spans if count > 0
    )


def _mapped(child: int, uid_map: str, gid_map: str) -> int:
    Path(f"/proc/{child}/uid_map").write_text(uid_map)
    Path(f"/proc/{child}/gid_map").write_text(gid_map)
    return user_namespace.open_namespace(child)


def owned_namespace(uid_map: str, gid_map: str, owner: tuple[int, int]) -> int:
    """A descriptor of a user namespace with these maps that belongs to `owner`.

    The kernel charges per-user quotas (inotify, keys …) of processes in it to its owner, too. If that were root,
    sandboxes could use up each other's quotas and root's own.
    """
    with contextlib.ExitStack() as stack:
        with _effective(*owner):
            child = stack.enter_context(user_namespace.child_in_new_namespace())
        return _mapped(child, uid_map, gid_map)


@contextlib.contextmanager
def _effective(uid: int, gid: int) -> Iterator[None]:
    """Change the effective ids of this thread only, but keep root's capabilities: some systems require them to make a
    namespace."""
    before = checked(libc.prctl(_PR_GET_SECUREBITS, 0, 0, 0, 0))
    checked(libc.prctl(_PR_SET_SECUREBITS, before | _SECBIT_NO_SETUID_FIXUP, 0, 0, 0))
    try:
        _set_effective(uid, gid)
        yield
    finally:
        _set_effective(0, 0)
        checked(libc.prctl(_PR_SET_SECUREBITS, before, 0, 0, 0))


def _set_effective(uid: int, gid: int) -> None:
    """With system calls, because libc's functions change every thread."""
    for number, id in zip(_SET_IDS[os.uname().machine], (uid, gid), strict=True):
        syscall(number, ctypes.c_int(-1), ctypes.c_uint(id), ctypes.c_int(-1))


def mount_mapped(
    directory: int, target: Path, namespace: int, *, read_only: bool = True
) -> None:
    """Mount the directory behind a descriptor at `target`, its ids mapped as in a user namespace."""
    tree = syscall(
        syscalls.OPEN_TREE,
        directory,
        b"",
        syscalls.AT_EMPTY_PATH | _OPEN_TREE_CLONE | _OPEN_TREE_CLOEXEC,
    )
    try:
        flags = (
            _MOUNT_ATTR_IDMAP
            | _MOUNT_ATTR_NOSUID
            | _MOUNT_ATTR_NODEV
            | (_MOUNT_ATTR_RDONLY if read_only else 0)
        )
        attributes = _MountAttributes(
            attr_set=flags, propagation=syscalls.MS_PRIVATE, userns_fd=namespace
        )
        size = ctypes.c_size_t(ctypes.sizeof(attributes))
        syscall(
            syscalls.MOUNT_SETATTR,
            tree,
            b"",
            syscalls.AT_EMPTY_PATH,
            ctypes.byref(attributes),
            size,
        )
        syscall(
            syscalls.MOVE_MOUNT,
            tree,
            b"",
            syscalls.AT_FDCWD,
            os.fsencode(target),
            _MOVE_MOUNT_F_EMPTY_PATH,
        )
    finally:
        os.close(tree)
