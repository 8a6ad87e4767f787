"""Idmapped mounts: a directory shown with two ids exchanged, nothing on disk changed.

Root's workspace is mounted for an unprivileged user: what belongs to root on disk belongs to that user
inside, and what the user makes belongs to root on disk. The kernel takes the exchange from a user namespace, which
lives on through a descriptor, and later through the mount.
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


def mount_exchanged(directory: int, target: Path, uids: tuple[int, int], gids: tuple[int, int]) -> None:
    """Mount the directory behind a descriptor at `target`, with the two uids and the two gids exchanged.

    Mounts below the directory are not carried along. Raises OSError where the kernel, the file system or our
    rights do not allow it.
    """
    with user_namespace.child_in_new_namespace() as child:
        namespace = _mapped(child, _exchange(*uids), _exchange(*gids))
    try:
        mount_mapped(directory, target, namespace, read_only=False)
    finally:
        os.close(namespace)


def unmount(target: Path) -> None:
    """Take a mount away, also while it is in use; a target that is no mount or is gone is left alone."""
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
    return "\n".join(f"{inside} {outside} {count}" for inside, outside, count in spans if count > 0)


def _mapped(child: int, uid_map: str, gid_map: str) -> int:
    Path(f"/proc/{child}/uid_map").write_text(uid_map)
    Path(f"/proc/{child}/gid_map").write_text(gid_map)
    return user_namespace.open_namespace(child)


def owned_namespace(uid_map: str, gid_map: str, owner: tuple[int, int]) -> int:
    """A descriptor of a user namespace with these maps that belongs to `owner`.

    What processes in it take of the kernel's per-user quotas (inotify, keys …) is put on its owner's account too: were
    that root, sandboxes could use up each other's, and root's own.
    """
    with contextlib.ExitStack() as stack:
        with _effective(*owner):
            child = stack.enter_context(user_namespace.child_in_new_namespace())
        return _mapped(child, uid_map, gid_map)


@contextlib.contextmanager
def _effective(uid: int, gid: int) -> Iterator[None]:
    """This thread alone is somebody else, with root's capabilities: some systems let nobody else make a namespace."""
    before = checked(libc.prctl(_PR_GET_SECUREBITS, 0, 0, 0, 0))
    checked(libc.prctl(_PR_SET_SECUREBITS, before | _SECBIT_NO_SETUID_FIXUP, 0, 0, 0))
    try:
        _set_effective(uid, gid)
        yield
    finally:
        _set_effective(0, 0)
        checked(libc.prctl(_PR_SET_SECUREBITS, before, 0, 0, 0))


def _set_effective(uid: int, gid: int) -> None:
    """By the system calls: libc's functions would change every thread."""
    for number, id in zip(_SET_IDS[os.uname().machine], (uid, gid), strict=True):
        syscall(number, ctypes.c_int(-1), ctypes.c_uint(id), ctypes.c_int(-1))


def mount_mapped(directory: int, target: Path, namespace: int, *, read_only: bool = True) -> None:
    """Mount the directory behind a descriptor at `target`, its ids mapped as in a user namespace."""
    tree = syscall(syscalls.OPEN_TREE, directory, b"", syscalls.AT_EMPTY_PATH | _OPEN_TREE_CLONE | _OPEN_TREE_CLOEXEC)
    try:
        wanted = _MOUNT_ATTR_IDMAP | _MOUNT_ATTR_NOSUID | _MOUNT_ATTR_NODEV | (_MOUNT_ATTR_RDONLY if read_only else 0)
        attributes = _MountAttributes(attr_set=wanted, propagation=syscalls.MS_PRIVATE, userns_fd=namespace)
        size = ctypes.c_size_t(ctypes.sizeof(attributes))
        syscall(syscalls.MOUNT_SETATTR, tree, b"", syscalls.AT_EMPTY_PATH, ctypes.byref(attributes), size)
        syscall(syscalls.MOVE_MOUNT, tree, b"", syscalls.AT_FDCWD, os.fsencode(target), _MOVE_MOUNT_F_EMPTY_PATH)
    finally:
        os.close(tree)
