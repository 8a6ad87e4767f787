"""Copies of files, from one opened folder to another: never through Python's memory, holes kept, no link followed."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import suppress

from belljar.workspace.beneath import Folder, Owner

CHUNK, BLOCK = 8 << 20, 64 << 10
OPAQUE = ("trusted.overlay.opaque", "user.overlay.opaque")
DEEPEST = 200
LEVELS, ROUNDS = 64, 4096  # a tree is removed so many levels at a time; each holds a descriptor
_NO_COPY = {errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM}


def copy_data(source: int, target: int) -> None:
    size = os.fstat(source).st_size
    os.ftruncate(target, size)
    for start, end in extents(size, source):
        _copy_range(source, target, start, end)


def extents(size: int, *files: int) -> Iterator[tuple[int, int]]:
    """Where any of these files has data. A hole costs a command nothing, however large: it must cost us nothing too."""
    at = 0
    while (start := min(_seek(each, at, os.SEEK_DATA, size) for each in files)) < size:
        at = max(start + 1, *(_seek(each, start, os.SEEK_HOLE, size) for each in files))
        yield start, at


def _seek(file: int, at: int, what: int, size: int) -> int:
    """A file system that cannot tell says: there is data everywhere."""
    try:
        return min(os.lseek(file, at, what), size)
    except OSError as error:
        return at if what == os.SEEK_DATA and error.errno != errno.ENXIO else size


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


def copy_file(
    source: Folder, path: str, target: Folder, name: str, mode: int = 0o600, *, owner: Owner | None = None,
    wait: bool = True,
) -> os.stat_result:  # fmt: skip
    """`name` must not exist. Data and user attributes; no set-id bit. What was copied, as it was before."""
    with source.file(path) as file:
        status = os.fstat(file.fileno())
        created = target.create(name)
        try:
            if owner is not None:
                os.fchown(created, *owner)
            copy_data(file.fileno(), created)
            _copy_attributes(file.fileno(), created)
            os.fchmod(created, mode & 0o777)
            if wait:
                os.fsync(created)
        finally:
            os.close(created)
    return status


def _copy_attributes(source: int, target: int) -> None:
    with suppress(OSError):
        for name in os.listxattr(source):
            if is_users(name):
                os.setxattr(target, name, os.getxattr(source, name))


def copy_attributes(source: Folder, path: str, target: Folder, name: str) -> None:
    """Those that a person or program set."""
    with suppress(OSError), source.file(path) as old, target.file(name) as new:
        _copy_attributes(old.fileno(), new.fileno())


def level_attributes(source: Folder, target: Folder, path: str) -> None:
    """`target`'s file gets exactly those that `source`'s has; a file that only one of them has is left alone."""
    with suppress(OSError):
        wanted, there = user_attributes(source, path), user_attributes(target, path)
        for name in there.keys() - wanted.keys():
            target.remove_xattr(path, name)
        for name, value in wanted.items() - there.items():
            target.set_xattr(path, name, value)


def user_attributes(folder: Folder, path: str) -> dict[str, bytes]:
    return {name: value for name, value in folder.xattrs(path).items() if is_users(name)}


def digest(folder: Folder, path: str) -> str:
    """Of a regular file's contents, whatever its size: its blocks that are not all zeros, each with its place."""
    with folder.file(path) as file:
        size = os.fstat(file.fileno()).st_size
        found, after = hashlib.sha256(b"%d" % size), 0
        for start, end in extents(size, file.fileno()):
            for at in range(max(after, start - start % BLOCK), end, BLOCK):
                block = os.pread(file.fileno(), BLOCK, at)
                after = at + BLOCK
                if block.count(0) < len(block):
                    found.update(b"\n%d %d " % (at, len(block)) + block)
    return found.hexdigest()


def fingerprint(folder: Folder, path: str, content: bytes) -> str:
    """Of what an apply takes along: a file's contents, which were read already, and its attributes."""
    with suppress(OSError):
        if attributes := user_attributes(folder, path):
            content += repr(sorted(attributes.items())).encode()
    return hashlib.sha256(content).hexdigest()


def make_whiteout(folder: Folder, path: str) -> None:
    """An overlay's word for: this name is gone."""
    folder.mknod(path, stat.S_IFCHR)


def is_whiteout(status: os.stat_result) -> bool:
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == 0


def copy_layer(source: Folder, target: Folder, at: str = "") -> None:
    """An overlay's upper directory, with its marks, into an empty folder."""
    for name in source.names(at):
        path = f"{at}/{name}" if at else name
        status = source.stat(path)
        if is_whiteout(status):
            make_whiteout(target, path)
        elif stat.S_ISDIR(status.st_mode):
            if path.count("/") >= DEEPEST:
                raise OSError(errno.ENAMETOOLONG, "directories are nested too deeply", path)
            target.mkdir(path, 0o700)
            copy_layer(source, target, path)
            for mark in [each for each in OPAQUE if source.xattrs(path).get(each) == b"y"]:
                target.set_xattr(path, mark, b"y")
            target.chmod(path, stat.S_IMODE(status.st_mode) & 0o777)
        elif stat.S_ISLNK(status.st_mode):
            target.symlink(source.readlink(path), path)
        elif stat.S_ISREG(status.st_mode):
            copy_file(source, path, target, path, stat.S_IMODE(status.st_mode), wait=False)


def is_users(attribute: str) -> bool:
    """An extended attribute that a person or program set; not the system's, not an overlay's mark."""
    return attribute.startswith("user.") and not attribute.startswith("user.overlay.")


def remove_tree(folder: Folder, path: str) -> None:
    """A file, a link or a whole directory, nested as deeply as may be; nothing there is fine."""
    try:
        status = folder.stat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(status.st_mode):
        folder.unlink(path)
        return
    _unlock(folder, path)
    with folder.folder(path) as top:
        for _ in range(ROUNDS):
            if not _emptied(top, top, LEVELS):
                break
    folder.rmdir(path)


def _emptied(top: Folder, here: Folder, levels: int) -> bool:
    """Remove what is in `here`; what is below so many levels comes up to `top`. Whether there was anything."""
    names = here.names()
    for name in names:
        if not stat.S_ISDIR(here.stat(name).st_mode):
            here.unlink(name)
            continue
        _unlock(here, name)
        if not levels:
            here.rename(name, f".{os.urandom(8).hex()}", into=top)
            continue
        with here.folder(name) as below:
            _emptied(top, below, levels - 1)
        here.rmdir(name)
    return bool(names)


def _unlock(folder: Folder, path: str) -> None:
    with suppress(OSError):
        folder.chmod(path, 0o700)  # so that what is in a read-only one can go
