"""Caches, shared by the sessions of one owner. Their size is limited, so none fills the host's disk.

    <caches>/<owner's uid>/pip.ext4     for root: a file system in a sparse file; a full one is ENOSPC inside
    <caches>/<owner's uid>/pip/         for callers that may not mount: a directory; a session that finds it too large
                                        empties it

A file system is mounted while a sandbox starts, and then only in the sandbox. Sandboxes that use it at the same time
share one loop device. One that is nearly full is replaced by an empty one as soon as nobody uses it.
"""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from belljar import environment, resources, user_namespace
from belljar.errors import EngineError, UsageError
from belljar.limits import parse_size
from belljar.records import record
from belljar.sandbox import scratch
from belljar.syscalls import closing
from belljar.workspace.beneath import Folder
from belljar.workspace.pinned import Workspace, release_mount

SIZE = "BELLJAR_CACHE_SIZE"
DEFAULT = "4g"
LEAST = 16 << 20
FULL = 0.75  # of its size on disk; part of the rest is the file system's own
MOST_FILES = 500_000  # in a directory; with more it counts as too large
_MKFS = (
    "-q",
    "-F",
    "-m",
    "0",
    "-E",
    "lazy_itable_init=1,lazy_journal_init=1,nodiscard",
)
_OPTIONS = "discard,noinit_itable"
_FILES = "files"
_LOOP_GET_STATUS64 = 0x4C05
_LOOP_INFO = struct.Struct(
    "=QQ 216x"
)  # struct loop_info64: device and inode of the file behind it


def size() -> int:
    """How large each cache may grow."""
    try:
        most = parse_size(environment.value(SIZE, DEFAULT))
    except ValueError as error:
        raise UsageError(f"{SIZE}: {error}") from None
    if most < LEAST:
        raise UsageError(f"{SIZE}: at least {LEAST >> 20}m")
    return most


@record
class Kept:
    """A cache on disk."""

    owner: int
    name: str
    path: Path
    bytes: int

    def remove(self) -> bool:
        """Remove it, unless a sandbox uses it; whether it is gone."""
        if self.path.is_dir():
            user_namespace.remove_tree(self.path)
            return True
        with resources.locked(self.path.with_suffix(".lock")):
            if (used := _in_use(self.path)) is not None:
                os.close(used)
                return False
            self.path.unlink(missing_ok=True)
        return True


def kept(root: Path) -> list[Kept]:
    """All caches, with owner and size on disk."""
    paths = [
        path
        for path in Path(os.path.realpath(root)).glob("*/*")
        if path.is_dir() or path.suffix == ".ext4"
    ]
    return [
        Kept(
            int(path.parent.name), path.name.removesuffix(".ext4"), path, _on_disk(path)
        )
        for path in sorted(paths)
    ]


def _on_disk(path: Path) -> int:
    if not path.is_dir():
        return path.stat().st_blocks * 512
    with Folder.at(path) as folder:
        return sum(status.st_blocks * 512 for _, status in folder.walk())


@contextmanager
def opened(
    root: Path, name: str, owner: tuple[int, int], mount_point: Path
) -> Iterator[Workspace]:
    """The cache of this owner, pinned while this is open. `mount_point`: a free path in the sandbox's run directory."""
    most, folder = size(), Path(os.path.realpath(root)) / str(owner[0])
    with ExitStack() as held:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            cache = held.enter_context(
                _directory(folder / name, owner, most)
                if scratch.possible()
                else _volume(folder / f"{name}.ext4", owner, most, mount_point)
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise UsageError(
                f"cache: {name} cannot be used: {getattr(error, 'strerror', None) or error}"
            ) from error
        yield cache


@contextmanager
def _directory(path: Path, owner: tuple[int, int], most: int) -> Iterator[Workspace]:
    if path.is_dir() and _larger(path, most):
        user_namespace.remove_tree(path)
    with _owned(path, owner) as cache:
        yield cache


def _larger(path: Path, most: int) -> bool:
    used = 0
    with Folder.at(path) as folder:
        for count, (_, status) in enumerate(folder.walk()):
            used += status.st_blocks * 512
            if used > most or count > MOST_FILES:
                return True
    return False


@contextmanager
def _volume(
    image: Path, owner: tuple[int, int], most: int, mount_point: Path
) -> Iterator[Workspace]:
    mount_point.mkdir(mode=0o700)
    try:
        with resources.locked(image.with_suffix(".lock")):
            scratch.mount_device(
                _device(image, most, mount_point), mount_point, _OPTIONS
            )
        with _owned(mount_point / _FILES, owner) as cache:
            yield cache
    finally:
        release_mount(mount_point)


@contextmanager
def _owned(path: Path, owner: tuple[int, int]) -> Iterator[Workspace]:
    path.mkdir(mode=0o700, exist_ok=True)
    if os.geteuid() == 0:
        os.chown(path, *owner, follow_symlinks=False)
    with Workspace.open(path, allow_home=True) as cache:
        yield cache


def _state_of(image: Path) -> Path:
    """<state>/caches/<owner>/<name>.ext4"""
    return image.parents[2]


def _device(image: Path, most: int, mount_point: Path) -> int:
    """The open loop device of the file. Never a second one: two mounts of one file would corrupt it."""
    if (used := _in_use(image)) is not None:
        return used
    with suppress(FileNotFoundError):
        status = image.stat()
        if status.st_blocks * 512 > FULL * status.st_size or status.st_size > most:
            image.unlink()
    if not image.exists():
        _make(image, most, mount_point)
    with closing(os.open(image, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)) as file:
        return scratch.attach(file)


def _in_use(image: Path) -> int | None:
    """The open loop device of a file that sandboxes use, else None."""
    for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
        with suppress(OSError):
            if backing.read_text().rstrip("\n") == str(image):
                return _behind(f"/dev/{backing.parts[3]}", image)
    return None


def _behind(device: str, image: Path) -> int:
    """The open device, if it still has this file: while it is open, it keeps it."""
    descriptor = os.open(device, os.O_RDWR | os.O_CLOEXEC)
    try:
        _, inode = _LOOP_INFO.unpack(
            fcntl.ioctl(descriptor, _LOOP_GET_STATUS64, bytes(_LOOP_INFO.size))
        )
        if inode == image.stat().st_ino:
            return descriptor
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    raise OSError("its loop device has another file")


def _make(image: Path, most: int, mount_point: Path) -> None:
    import tempfile  # once for each cache

    descriptor, temporary = tempfile.mkstemp(dir=image.parent)
    try:
        with (
            closing(descriptor),
            scratch.room(mount_point.parent.parent, most, _state_of(image)),
        ):
            os.ftruncate(descriptor, most)
            scratch.make_file_system(temporary, _MKFS)
            os.rename(temporary, image)
    except EngineError as error:
        raise UsageError(f"cache: {error}; {SIZE} makes caches smaller") from error
    finally:
        Path(temporary).unlink(missing_ok=True)
