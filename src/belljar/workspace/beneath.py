"""Opens files that others may replace at any time: always below an open descriptor, never through a link.

A command can replace any file below a workspace between two calls of ours. So no file is opened by its full path: a
`Folder` holds a descriptor, and each call resolves its relative path below it in one system call (openat2 with
RESOLVE_BENEATH | NO_SYMLINKS | NO_MAGICLINKS). Without openat2 the path is walked one component at a time, with
O_NOFOLLOW.

A path with a link or one that leaves the folder raises OSError (ELOOP, EXDEV). Calls without such flags (rename, link,
mkdir …) use the last component relative to its parent's descriptor: they do not follow a link there.
"""

from __future__ import annotations

import ctypes
import errno
import os
import posixpath
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from typing import BinaryIO, Self

from belljar.syscalls import AT_FDCWD, OPENAT2, syscall

_NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH = 0x02, 0x04, 0x08
_PATH = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_RACES = (
    100  # RESOLVE_BENEATH fails with EAGAIN while directories of the path are renamed
)
DEEPEST = 4096  # levels that `walk` goes down
HELD = 64  # levels that keep their descriptor open
KEPT = 16  # directories that `keeping` keeps open


Owner = tuple[int, int]
"""uid and gid."""


class _How(ctypes.Structure):
    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


class Folder:
    """An open directory. Paths are relative to it; "" is the folder itself."""

    def __init__(self, descriptor: int) -> None:
        """Owns the descriptor, which may be O_PATH."""
        self.descriptor = descriptor
        self._kept: dict[str, int] | None = None

    @classmethod
    def at(cls, path: str | os.PathLike[str]) -> Self:
        """Open a directory by its path. This is the only place where links are followed."""
        return cls(os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))

    @classmethod
    def of(cls, descriptor: int) -> Self:
        """A folder with a duplicate of this descriptor."""
        return cls(os.dup(descriptor))

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """Keep the directories open that were used last: many files of a directory are then reached in one step each. A
        directory that somebody moves away meanwhile may still get what was meant for it, as if it had been moved later.
        """
        if self._kept is not None:
            yield
            return
        self._kept = {}
        try:
            yield
        finally:
            kept, self._kept = self._kept, None
            for descriptor in kept.values():
                os.close(descriptor)

    def _directory(self, path: str, kept: dict[str, int]) -> int:
        """A kept descriptor; the one that was used longest ago makes room."""
        descriptor = kept.pop(path, -1)
        if descriptor < 0:
            descriptor = open_beneath(self.descriptor, path, os.O_PATH | os.O_DIRECTORY)
            if len(kept) >= KEPT:
                os.close(kept.pop(next(iter(kept))))
        kept[path] = descriptor
        return descriptor

    def _gone(self, path: str) -> None:
        """What is at this path is another thing from now on."""
        for each in [
            each
            for each in self._kept or ()
            if each == path or each.startswith(f"{path}/")
        ]:
            os.close((self._kept or {}).pop(each))

    # Opening.

    def open(self, path: str, flags: int = os.O_RDONLY, mode: int = 0) -> int:
        """A descriptor; O_NOFOLLOW and O_CLOEXEC are always added."""
        if self._kept is not None and path:
            with self._parent(path) as (parent, name):
                return os.open(
                    name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=parent
                )
        return open_beneath(self.descriptor, path, flags, mode)

    def folder(self, path: str) -> Folder:
        return Folder(self.open(path, os.O_PATH | os.O_DIRECTORY))

    def file(self, path: str) -> BinaryIO:
        """Open a regular file for reading; anything else is an error, and a FIFO does not block."""
        return os.fdopen(self.regular(path)[0], "rb")

    def regular(self, path: str) -> tuple[int, os.stat_result]:
        """The same as a descriptor, and its status."""
        descriptor = self.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            os.close(descriptor)
            raise OSError(errno.EINVAL, "not a regular file", path)
        return descriptor, status

    def read(self, path: str, most: int) -> bytes:
        """The contents of a regular file; OSError (EFBIG) if it has more than `most` bytes."""
        descriptor, status = self.regular(path)
        try:
            data = read_up_to(descriptor, min(most, status.st_size) + 1)
            if len(data) > status.st_size:  # the file grew
                data += read_up_to(descriptor, most + 1 - len(data))
        finally:
            os.close(descriptor)
        if len(data) > most:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
        return data

    def head(self, path: str, most: int) -> bytes:
        """The first bytes of a regular file, in one call."""
        descriptor, _ = self.regular(path)
        try:
            return os.read(descriptor, most)
        finally:
            os.close(descriptor)

    # Looking.

    def stat(self, path: str) -> os.stat_result:
        """Like lstat: of a link, the link itself."""
        if not path:
            return os.fstat(self.descriptor)
        with self._parent(path) as (parent, name):
            return os.stat(name, dir_fd=parent, follow_symlinks=False)

    def exists(self, path: str) -> bool:
        try:
            self.stat(path)
        except OSError:
            return False
        return True

    def readlink(self, path: str) -> str:
        with self._parent(path) as (parent, name):
            return os.readlink(name, dir_fd=parent)

    def names(self, path: str = "") -> list[str]:
        descriptor = self.open(path, _DIRECTORY)
        try:
            return sorted(os.listdir(descriptor))
        finally:
            os.close(descriptor)

    def walk(self, path: str = "") -> Iterator[tuple[str, os.stat_result]]:
        """Everything below `path`, each directory before its contents. Deleted files and unreadable directories are
        skipped."""
        with suppress(FileNotFoundError, NotADirectoryError):
            descriptor = self.open(path, _DIRECTORY)
            try:
                yield from _walk(descriptor, f"{path}/" if path else "")
            finally:
                os.close(descriptor)

    # Changing.

    def mkdir(self, path: str, mode: int = 0o755, owner: Owner | None = None) -> None:
        with self._parent(path) as (parent, name):
            os.mkdir(name, mode, dir_fd=parent)
        if owner is not None:
            self.give(path, owner)

    def unlink(self, path: str) -> None:
        with self._parent(path) as (parent, name):
            os.unlink(name, dir_fd=parent)
        self._gone(path)

    def rmdir(self, path: str) -> None:
        with self._parent(path) as (parent, name):
            os.rmdir(name, dir_fd=parent)
        self._gone(path)

    def symlink(self, target: str, path: str, owner: Owner | None = None) -> None:
        """`target` may be anything: it is not followed."""
        with self._parent(path) as (parent, name):
            os.symlink(target, name, dir_fd=parent)
        if owner is not None:
            self.give(path, owner)

    def rename(self, source: str, target: str, into: Folder | None = None) -> None:
        """`target` is below `into`, which may be another folder of the same file system."""
        with (
            self._parent(source) as (here, old),
            (into or self)._parent(target) as (there, new),
        ):
            os.rename(old, new, src_dir_fd=here, dst_dir_fd=there)
        self._gone(source)
        (into or self)._gone(target)

    def link(self, source: str, target: str, into: Folder) -> None:
        """Make a hard link below another folder of the same file system."""
        with self._parent(source) as (here, old), into._parent(target) as (there, new):
            os.link(old, new, src_dir_fd=here, dst_dir_fd=there, follow_symlinks=False)

    def mknod(self, path: str, mode: int) -> None:
        """Make a FIFO, or the device 0:0 (a whiteout)."""
        with self._parent(path) as (parent, name):
            os.mknod(name, mode, 0, dir_fd=parent)

    def create(self, path: str, mode: int = 0o600) -> int:
        """A descriptor of a new file; FileExistsError if the name exists, even as a link."""
        with self._parent(path) as (parent, name):
            return os.open(name, _NEW, mode, dir_fd=parent)

    @contextmanager
    def replacing(
        self, path: str, mode: int = 0o600, owner: Owner | None = None
    ) -> Iterator[BinaryIO]:
        """A new file that replaces `path` at the end of the block, atomically, unless there was an exception.

        A link of that name is replaced, not followed. The data is on disk before the name changes.
        """
        with self._parent(path) as (parent, name):
            temporary = f".{name[:64]}.{os.urandom(8).hex()}"
            descriptor = os.open(temporary, _NEW, mode & 0o777, dir_fd=parent)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    if owner is not None:
                        os.fchown(descriptor, *owner)
                    yield file
                    file.flush()
                    os.fsync(file.fileno())
                os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
            except BaseException:
                with suppress(OSError):
                    os.unlink(temporary, dir_fd=parent)
                raise

    def write(
        self, path: str, data: bytes, mode: int = 0o600, owner: Owner | None = None
    ) -> None:
        with self.replacing(path, mode, owner) as file:
            file.write(data)

    def chmod(self, path: str, mode: int) -> None:
        """Of a file or directory; a link has no mode. Never gives a set-id bit. Root in somebody else's folder leaves
        what is root's as it is: the folder's owner may have put it in the place of what was meant."""
        with self._itself(path) as name:
            if (
                os.geteuid() == 0
                and os.fstat(self.descriptor).st_uid != 0
                and os.stat(name).st_uid == 0
            ):
                return
            os.chmod(name, mode & 0o1777)

    def give(self, path: str, owner: Owner) -> None:
        """To somebody else: a link or an empty directory that was just made. Whoever owns the folder may put a file of
        root's in its place, so nothing else is given away by its name."""
        descriptor = self.open(path, os.O_PATH)
        try:
            name, mode = f"/proc/self/fd/{descriptor}", os.fstat(descriptor).st_mode
            if not stat.S_ISLNK(mode) and (not stat.S_ISDIR(mode) or os.listdir(name)):
                raise OSError(
                    errno.EBUSY,
                    "something else was put in the place of what was just made",
                    path,
                )
            os.chown(name, *owner)
        finally:
            os.close(descriptor)

    def utime(self, path: str, times: tuple[int, int]) -> None:
        """Access and change time, in nanoseconds."""
        with self._parent(path) as (parent, name):
            os.utime(name, ns=times, dir_fd=parent, follow_symlinks=False)

    # Extended attributes: there is no *at call, so through the descriptor's own name in /proc.

    def xattr_names(self, path: str) -> list[str]:
        with self._itself(path) as name:
            return os.listxattr(name)

    def xattrs(self, path: str) -> dict[str, bytes]:
        with self._itself(path) as name:
            return {each: os.getxattr(name, each) for each in os.listxattr(name)}

    def set_xattr(self, path: str, attribute: str, value: bytes) -> None:
        with self._itself(path) as name:
            os.setxattr(name, attribute, value)

    def remove_xattr(self, path: str, attribute: str) -> None:
        with self._itself(path) as name:
            os.removexattr(name, attribute)

    @contextmanager
    def _itself(self, path: str) -> Iterator[str]:
        """A name in /proc of the opened file or directory; OSError for a link."""
        descriptor = self.open(path, os.O_PATH)
        try:
            if stat.S_ISLNK(os.fstat(descriptor).st_mode):
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)

    def _parent(self, path: str) -> _Parent:
        """A descriptor of the parent directory, and the last component."""
        above, _, name = path.rpartition("/")
        if name in ("", ".", ".."):
            raise OSError(
                errno.EINVAL, "not the name of a file below a directory", path
            )
        if self._kept is not None:
            return _Parent(self._directory(above, self._kept), name, kept=True)
        return _Parent(self.open(above, os.O_PATH | os.O_DIRECTORY), name, kept=False)


class _Parent:
    """`with` gives the descriptor and the name, and closes the descriptor unless it is kept. A class and no generator,
    which would take as long as the calls to the kernel."""

    __slots__ = ("_descriptor", "_kept", "_name")

    def __init__(self, descriptor: int, name: str, *, kept: bool) -> None:
        self._descriptor, self._name, self._kept = descriptor, name, kept

    def __enter__(self) -> tuple[int, str]:
        return self._descriptor, self._name

    def __exit__(self, *_: object) -> None:
        if not self._kept:
            os.close(self._descriptor)


def read_up_to(descriptor: int, most: int) -> bytes:
    data = os.read(descriptor, most)
    while data and len(data) < most and (more := os.read(descriptor, most - len(data))):
        data += more
    return data


def parents(path: str) -> list[str]:
    """The directories above a relative path, from the top down."""
    parts = path.split("/")
    return ["/".join(parts[:end]) for end in range(1, len(parts))]


def named_below(folder: int, path: str) -> str | None:
    """A path, relative to a folder or absolute, as a path below the folder; None if it is outside."""
    if path.startswith("/"):
        path = posixpath.relpath(path, os.readlink(f"/proc/self/fd/{folder}"))
    path = posixpath.normpath(path)
    return (
        None if path in (".", "..") or path.startswith("../") or "\0" in path else path
    )


def open_beneath(
    folder: int, path: str, flags: int = os.O_RDONLY, mode: int = 0
) -> int:
    """Open `path` below the directory `folder`, without following any link. All opening goes through here."""
    if "\0" in path:
        raise OSError(errno.EINVAL, "the name holds a NUL byte", path)
    flags |= os.O_NOFOLLOW | os.O_CLOEXEC
    if _has_openat2():
        return _openat2(folder, path or ".", flags, mode)
    return _walked(folder, path, flags, mode)


def _openat2(folder: int, path: str, flags: int, mode: int) -> int:
    creating = flags & os.O_CREAT or flags & os.O_TMPFILE == os.O_TMPFILE
    how = _How(flags, mode if creating else 0, _BENEATH | _NO_SYMLINKS | _NO_MAGICLINKS)
    size, raced = ctypes.c_size_t(ctypes.sizeof(how)), OSError()
    for _ in range(_RACES):
        try:
            return syscall(
                OPENAT2,
                ctypes.c_int(folder),
                os.fsencode(path),
                ctypes.byref(how),
                size,
                what=path,
            )
        except (BlockingIOError, InterruptedError) as error:
            raced = error
    raise raced


def _walked(folder: int, path: str, flags: int, mode: int) -> int:
    """For kernels before 5.6, and seccomp filters that forbid openat2."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts or path.startswith("/"):
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), path)
    here = os.dup(folder)
    try:
        for part in parts[:-1]:
            below = os.open(part, _PATH | os.O_DIRECTORY, dir_fd=here)
            os.close(here)
            here = below
        return os.open(parts[-1] if parts else ".", flags, mode, dir_fd=here)
    finally:
        os.close(here)


@cache
def _has_openat2() -> bool:
    try:
        os.close(_openat2(AT_FDCWD, ".", os.O_PATH | os.O_CLOEXEC, 0))
    except OSError as error:
        return error.errno not in (errno.ENOSYS, errno.EPERM)
    return True


@dataclass(repr=False, eq=False)
class _Level:
    """A directory that is being walked."""

    descriptor: int
    """-1 while it is closed."""
    inode: tuple[int, int]
    prefix: str
    names: Iterator[str]


def _walk(top: int, prefix: str) -> Iterator[tuple[str, os.stat_result]]:
    """Keeps descriptors open only for the lowest levels, and for `top`."""
    levels = [_level(top, prefix)]
    try:
        while levels:
            here = levels[-1]
            for name in here.names:
                try:
                    found = os.stat(name, dir_fd=here.descriptor, follow_symlinks=False)
                except FileNotFoundError:
                    continue
                yield here.prefix + name, found
                if stat.S_ISDIR(found.st_mode) and (
                    below := _below(here, name, len(levels))
                ):
                    levels.append(below)
                    if len(levels) > HELD:
                        _close(levels[-HELD], top)
                    break
            else:
                levels.pop()
                if levels and levels[-1].descriptor < 0:
                    _reopen(levels[-1], here.descriptor)
                _close(here, top)
    finally:
        for level in levels:
            _close(level, top)


def _level(directory: int, prefix: str) -> _Level:
    status = os.fstat(directory)
    return _Level(
        directory,
        (status.st_dev, status.st_ino),
        prefix,
        iter(sorted(os.listdir(directory))),
    )


def _below(above: _Level, name: str, depth: int) -> _Level | None:
    path = above.prefix + name
    if depth > DEEPEST:
        raise OSError(
            errno.ENAMETOOLONG,
            f"nested deeper than {DEEPEST} directories, below {path[:40]}…",
            path,
        )
    try:
        directory = os.open(name, _DIRECTORY, dir_fd=above.descriptor)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return None
    return _level(directory, f"{path}/")


def _reopen(level: _Level, below: int) -> None:
    """Through `..` of the directory below it, which must still lead there."""
    level.descriptor = os.open("..", _DIRECTORY, dir_fd=below)
    status = os.fstat(level.descriptor)
    if (status.st_dev, status.st_ino) != level.inode:
        raise OSError(
            errno.EBUSY, "a directory was moved while it was walked", level.prefix
        )


def _close(level: _Level, top: int) -> None:
    if level.descriptor not in (-1, top):
        os.close(level.descriptor)
        level.descriptor = -1
