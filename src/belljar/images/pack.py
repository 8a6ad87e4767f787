"""Packs one layer of the store as a tar, the opposite of `unpack`: the same tree gives the same bytes.

Names are in order, owners are numbers, and only files keep their time, which is all that `unpack` keeps of a layer. So
what was packed, unpacked and packed again is the same to the last byte. A layer's files are of any origin: each is
reached from the directory above it without following a link.

An ordinary user's layers belong to his subordinate ids: then this module runs as a program in his user namespace. It
takes the tree and the place of the tar as arguments.
"""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
import sys
import tarfile
from contextlib import suppress
from pathlib import Path
from typing import IO

from belljar import user_namespace
from belljar.errors import EngineError, ImageInvalid
from belljar.images.unpack import CHUNK, OPAQUE, WHITEOUT

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_OPAQUE_MARKS = ("trusted.overlay.opaque", "user.overlay.opaque")


def pack_for_caller(tree: Path, tar: Path) -> str:
    """The digest of the tar."""
    if os.geteuid() == 0:
        pack(tree, tar)
    elif user_namespace.missing_requirements() is not None:
        pack(tree, tar, all_are_roots=True)
    else:
        program = [sys.executable, "-P", "-m", __spec__.name, str(tree), str(tar)]
        command, descriptors = user_namespace.command(program)
        done = subprocess.run(
            command, pass_fds=descriptors, capture_output=True, text=True
        )
        if done.returncode:
            raise EngineError(
                f"a layer of the image cannot be read: {done.stderr.strip()[-300:]}"
            )
    with open(tar, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def pack(tree: Path, tar: Path, *, all_are_roots: bool = False) -> None:
    """`all_are_roots`: without subordinate ids every file is the user's own."""
    root = os.open(tree, _DIRECTORY)
    try:
        with tarfile.open(tar, "w", format=tarfile.PAX_FORMAT) as archive:
            LayerPacker(archive, all_are_roots).directory(root, "")
    except RecursionError:
        raise ImageInvalid("the image's directories are nested too deeply") from None
    finally:
        os.close(root)


class Packer:
    """Writes a tree in order. What a subclass changes: which files are taken, and what is kept of them."""

    def __init__(self, archive: tarfile.TarFile) -> None:
        self._archive = archive
        self._linked: dict[int, str] = {}
        """Inode of a file with several names → its first name."""

    def takes(self, path: str, *, is_directory: bool) -> bool:
        return True

    def time(self, found: os.stat_result) -> int:
        """Of a file. Others have none."""
        return int(found.st_mtime)

    def owner(self, found: os.stat_result) -> tuple[int, int]:
        return found.st_uid, found.st_gid

    def directory(self, at: int, path: str) -> None:
        """Everything below `at`, which is `path` in the archive."""
        self.add(self._entry(f"./{path}", os.fstat(at)))
        self.begin(at, path)
        for name in sorted(os.listdir(at), key=os.fsencode):
            found = os.stat(name, dir_fd=at, follow_symlinks=False)
            is_directory = stat.S_ISDIR(found.st_mode)
            if not self.takes(f"{path}{name}", is_directory=is_directory):
                continue
            if is_directory:
                below = os.open(name, _DIRECTORY, dir_fd=at)
                try:
                    self.directory(below, f"{path}{name}/")
                finally:
                    os.close(below)
            elif stat.S_IFMT(found.st_mode) in _TYPES:
                self._leaf(at, name, f"./{path}{name}", found)
            else:
                self.device(path, name)

    def begin(self, at: int, path: str) -> None:
        """What comes before the files of a directory."""

    def device(self, path: str, name: str) -> None:
        """Or a socket: left out."""

    def _leaf(self, at: int, name: str, path: str, found: os.stat_result) -> None:
        entry = self._entry(path, found)
        if entry.issym():
            entry.linkname = os.readlink(name, dir_fd=at)
        elif found.st_nlink > 1 and found.st_ino in self._linked:
            entry.type, entry.linkname = tarfile.LNKTYPE, self._linked[found.st_ino]
        elif entry.isreg():
            self._linked[found.st_ino] = path
            self._file(at, name, entry)
            return
        self.add(entry)

    def _file(self, at: int, name: str, entry: tarfile.TarInfo) -> None:
        with os.fdopen(os.open(name, _FILE, dir_fd=at), "rb", CHUNK) as content:
            status = os.fstat(content.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise ImageInvalid(f"{entry.name!r} is no file any more")
            entry.size, entry.mtime = status.st_size, self.time(status)
            self.add(entry, content)

    def _entry(self, path: str, found: os.stat_result) -> tarfile.TarInfo:
        entry = tarfile.TarInfo(path)
        entry.mode = stat.S_IMODE(found.st_mode)
        entry.type = _TYPES[stat.S_IFMT(found.st_mode)]
        entry.uid, entry.gid = self.owner(found)
        return entry

    def add(self, entry: tarfile.TarInfo, content: IO[bytes] | None = None) -> None:
        self._archive.addfile(entry, content)
        self._archive.members = []  # type: ignore[attr-defined]


class LayerPacker(Packer):
    def __init__(self, archive: tarfile.TarFile, all_are_roots: bool) -> None:
        super().__init__(archive)
        self._all_are_roots = all_are_roots

    def owner(self, found: os.stat_result) -> tuple[int, int]:
        return (0, 0) if self._all_are_roots else super().owner(found)

    def begin(self, at: int, path: str) -> None:
        if _is_opaque(at):
            self.add(_mark(f"./{path}{OPAQUE}"))

    def device(self, path: str, name: str) -> None:
        self.add(_mark(f"./{path}{WHITEOUT}{name}"))


_TYPES = {
    stat.S_IFDIR: tarfile.DIRTYPE,
    stat.S_IFREG: tarfile.REGTYPE,
    stat.S_IFLNK: tarfile.SYMTYPE,
    stat.S_IFIFO: tarfile.FIFOTYPE,
}
"""All that `unpack` makes, but for the device of a whiteout."""


def _mark(path: str) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(path)
    entry.mode = 0o644
    return entry


def _is_opaque(directory: int) -> bool:
    return any(_has(directory, mark) for mark in _OPAQUE_MARKS)


def _has(directory: int, name: str) -> bool:
    with suppress(OSError):
        return os.getxattr(f"/proc/self/fd/{directory}", name) == b"y"
    return False


if __name__ == "__main__":
    pack(Path(sys.argv[1]), Path(sys.argv[2]))
