"""Copies of files, from one opened folder to another: never through Python's memory, holes kept, no link followed."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import suppress

from belljar.workspace.beneath import Folder

CHUNK = 8 << 20
_NO_COPY = {errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM}


def copy_data(source: int, target: int) -> None:
    size = os.fstat(source).st_size
    os.ftruncate(target, size)
    for start, end in _extents(source, size):
        _copy_range(source, target, start, end)


def _extents(source: int, size: int) -> Iterator[tuple[int, int]]:
    """Where there is data; a file system that cannot tell says: everywhere."""
    at = 0
    while at < size:
        try:
            start = os.lseek(source, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return
            yield at, size
            return
        at = min(os.lseek(source, start, os.SEEK_HOLE), size)
        yield start, at


def _copy_range(source: int, target: int, start: int, end: int) -> None:
    at = start
    while at < end:
        try:
            done = os.copy_file_range(source, target, min(CHUNK, end - at), at, at)
        except OSError as error:
            if error.errno not in _NO_COPY:
                raise
            done = os.pwrite(target, os.pread(source, min(1 << 20, end - at), at), at)
        if done == 0:
            return  # it became shorter meanwhile
        at += done


def copy_file(source: Folder, path: str, target: Folder, name: str, mode: int = 0o600) -> None:
    """`name` must not exist. Data and user attributes; no owner, no set-id bit."""
    with source.file(path) as file:
        created = target.create(name)
        try:
            copy_data(file.fileno(), created)
            _copy_attributes(file.fileno(), created)
            os.fchmod(created, mode & 0o777)
            os.fsync(created)
        finally:
            os.close(created)


def _copy_attributes(source: int, target: int) -> None:
    with suppress(OSError):
        for name in os.listxattr(source):
            if is_users(name):
                os.setxattr(target, name, os.getxattr(source, name))


def is_users(attribute: str) -> bool:
    """An extended attribute that a person or program set; not the system's, not an overlay's mark."""
    return attribute.startswith("user.") and not attribute.startswith("user.overlay.")


def remove_tree(folder: Folder, path: str) -> None:
    """A file, a link or a whole directory; nothing there is fine."""
    try:
        status = folder.stat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(status.st_mode):
        folder.unlink(path)
        return
    for name in folder.names(path):
        remove_tree(folder, f"{path}/{name}")
    folder.rmdir(path)
