"""Copies files between opened folders: in the kernel where possible, with their holes, without following links."""

from __future__ import annotations

import errno
import hashlib
import os
import posixpath
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from belljar.syscalls import checked, libc
from belljar.workspace.beneath import Folder, Owner

CHUNK, BLOCK = 8 << 20, 64 << 10
OPAQUE = ("trusted.overlay.opaque", "user.overlay.opaque")
DEEPEST = 200
LEVELS, ROUNDS = (
    64,
    4096,
)  # a tree is removed so many levels at a time; each holds a descriptor
_NO_COPY = {errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM}


def copy_data(source: int, target: int) -> None:
    """`target` is empty."""
    status = os.fstat(source)
    size = status.st_size
    if size <= BLOCK and size <= status.st_blocks * 512:  # small, and no holes
        data = os.pread(source, size, 0)
        if os.pwrite(target, data, 0) == len(data):
            return
    os.ftruncate(target, size)
    for start, end in extents(size, source):
        _copy_range(source, target, start, end)


def extents(size: int, *files: int) -> Iterator[tuple[int, int]]:
    """The ranges where any of these files has data. Holes cost a command nothing, so they must cost us nothing."""
    at = 0
    while (start := min(_seek(each, at, os.SEEK_DATA, size) for each in files)) < size:
        at = max(start + 1, *(_seek(each, start, os.SEEK_HOLE, size) for each in files))
        yield start, at


def _seek(file: int, at: int, what: int, size: int) -> int:
    """On a file system that does not support it, data is everywhere."""
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
            return  # the file became shorter
        at += done


def copy_file(
    source: Folder,
    path: str,
    target: Folder,
    name: str,
    mode: int = 0o600,
    *,
    owner: Owner | None = None,
    wait: bool = True,
) -> os.stat_result:
    """`name` must not exist. Data and user attributes; no set-id bit. What was copied, as it was before."""
    file, status = source.regular(path)
    try:
        created = target.create(name)
        try:
            if owner is not None:
                os.fchown(created, *owner)
            copy_data(file, created)
            _copy_attributes(file, created)
            os.fchmod(created, mode & 0o777)
            if wait:
                os.fsync(created)
        finally:
            os.close(created)
    finally:
        os.close(file)
    return status


def write_file(
    folder: Folder,
    name: str,
    data: bytes,
    mode: int,
    *,
    owner: Owner | None,
    wait: bool = True,
) -> None:
    """`name` must not exist."""
    with os.fdopen(folder.create(name), "wb") as file:
        if owner is not None:
            os.fchown(file.fileno(), *owner)
        os.fchmod(file.fileno(), mode & 0o777)
        file.write(data)
        file.flush()
        if wait:
            os.fsync(file.fileno())


def flush(folder: Folder) -> None:
    """Wait until all that was written to the file system is on disk: for many files cheaper than each alone."""
    descriptor = folder.open("", os.O_RDONLY | os.O_DIRECTORY)
    try:
        checked(libc.syncfs(descriptor))
    finally:
        os.close(descriptor)


@contextmanager
def replacing(folder: Folder, path: str, temporary: str) -> Iterator[str]:
    """A name in the same directory, for what replaces `path` at the end of the block."""
    beside = posixpath.join(posixpath.dirname(path), temporary)
    remove_tree(folder, beside)
    try:
        yield beside
        folder.rename(beside, path)
    except BaseException:
        with suppress(OSError):
            remove_tree(folder, beside)
        raise


def _copy_attributes(source: int, target: int) -> None:
    with suppress(OSError):
        for name, value in attributes_of(source).items():
            os.setxattr(target, name, value)


def attributes_of(file: int) -> dict[str, bytes]:
    """The user attributes of an open file."""
    return {
        name: os.getxattr(file, name) for name in os.listxattr(file) if is_users(name)
    }


def copy_attributes(source: Folder, path: str, target: Folder, name: str) -> None:
    with suppress(OSError), source.file(path) as old, target.file(name) as new:
        _copy_attributes(old.fileno(), new.fileno())


def level_attributes(source: Folder, target: Folder, path: str) -> None:
    """Give `target`'s file exactly the user attributes of `source`'s, if both exist."""
    with suppress(OSError):
        new, old = user_attributes(source, path), user_attributes(target, path)
        for name in old.keys() - new.keys():
            target.remove_xattr(path, name)
        for name, value in new.items() - old.items():
            target.set_xattr(path, name, value)


def user_attributes(folder: Folder, path: str) -> dict[str, bytes]:
    return {
        name: value for name, value in folder.xattrs(path).items() if is_users(name)
    }


def digest(folder: Folder, path: str) -> str:
    """A digest of a regular file of any size: of the blocks that are not all zeros, each with its offset."""
    with folder.file(path) as file:
        size = os.fstat(file.fileno()).st_size
        sha, after = hashlib.sha256(b"%d" % size), 0
        for start, end in extents(size, file.fileno()):
            for at in range(max(after, start - start % BLOCK), end, BLOCK):
                block = os.pread(file.fileno(), BLOCK, at)
                after = at + BLOCK
                if block.count(0) < len(block):
                    sha.update(b"\n%d %d " % (at, len(block)) + block)
    return sha.hexdigest()


def fingerprint(folder: Folder, path: str, content: bytes) -> str:
    """A digest of what an apply copies: the contents, which were read already, and the user attributes."""
    with suppress(OSError):
        return fingerprint_of(content, user_attributes(folder, path))
    return fingerprint_of(content, {})


def fingerprint_of(content: bytes, attributes: dict[str, bytes]) -> str:
    if attributes:
        content += repr(sorted(attributes.items())).encode()
    return hashlib.sha256(content).hexdigest()


def make_whiteout(folder: Folder, path: str) -> None:
    """Mark a name as deleted, as an overlay does."""
    folder.mknod(path, stat.S_IFCHR)


def is_whiteout(status: os.stat_result) -> bool:
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == 0


def copy_layer(source: Folder, target: Folder, at: str = "") -> None:
    """Copy an overlay's upper directory, with its marks, into an empty folder."""
    for name in source.names(at):
        path = f"{at}/{name}" if at else name
        status = source.stat(path)
        if is_whiteout(status):
            make_whiteout(target, path)
        elif stat.S_ISDIR(status.st_mode):
            if path.count("/") >= DEEPEST:
                raise OSError(
                    errno.ENAMETOOLONG, "directories are nested too deeply", path
                )
            target.mkdir(path, 0o700)
            copy_layer(source, target, path)
            for mark in [
                each for each in OPAQUE if source.xattrs(path).get(each) == b"y"
            ]:
                target.set_xattr(path, mark, b"y")
            target.chmod(path, stat.S_IMODE(status.st_mode) & 0o777)
        elif stat.S_ISLNK(status.st_mode):
            target.symlink(source.readlink(path), path)
        elif stat.S_ISREG(status.st_mode):
            copy_file(
                source, path, target, path, stat.S_IMODE(status.st_mode), wait=False
            )


def is_users(attribute: str) -> bool:
    """Whether a person or program set this extended attribute, and not the system or an overlay."""
    return attribute.startswith("user.") and not attribute.startswith("user.overlay.")


def remove_tree(folder: Folder, path: str) -> None:
    """Remove a file, a link or a directory of any depth, if it exists."""
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
    """Remove the contents of `here`, and move what is deeper than `levels` up to `top`. Whether there was anything."""
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
        folder.chmod(
            path, 0o700
        )  # the contents of a read-only directory cannot be removed
