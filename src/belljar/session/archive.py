"""The host's side of the init's archive format (sandbox-images/init/archive.c): directories to and from a sandbox.

Archives from a sandbox are hostile: names are checked and opened beneath the target, never through a link.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

from belljar.errors import FileFailed
from belljar.syscalls import write_all
from belljar.workspace.beneath import Folder

HEAD = struct.Struct("<cIQH")
CHUNK = 256 << 10
LINK_MAX = 4096
KINDS = (b"f", b"d", b"l", b"e")


Entry = tuple[Folder, str, os.stat_result]
Entries = Iterable[Entry]
"""Folder, path in it and status; each directory comes before its contents."""


def whole(folder: Folder) -> Entries:
    with folder.keeping():
        for path, status in folder.walk():
            yield folder, path, status


def packed(entries: Entries) -> Iterator[bytes]:
    """An archive of the files, directories and links; FIFOs, sockets and devices are left out."""
    return _joined(_pieces(entries))


def _joined(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Large pieces: each is handed from a thread to the event loop, which takes longer than to read a small file."""
    waiting = bytearray()
    for piece in pieces:
        if len(waiting) + len(piece) > CHUNK and waiting:
            yield bytes(waiting)
            waiting.clear()
        if len(piece) >= CHUNK:
            yield piece
        else:
            waiting += piece
    if waiting:
        yield bytes(waiting)


def _pieces(entries: Entries) -> Iterator[bytes]:
    locked: list[
        bytes
    ] = []  # directories without write permission get their mode after their contents
    for folder, path, status in entries:
        name = os.fsencode(path)
        if len(name) > 0xFFFF:
            continue
        mode = stat.S_IMODE(status.st_mode) & 0o777
        if stat.S_ISDIR(status.st_mode):
            yield HEAD.pack(b"d", mode | 0o700, 0, len(name)) + name
            if mode & 0o700 != 0o700:
                locked.append(HEAD.pack(b"d", mode, 0, len(name)) + name)
        elif stat.S_ISLNK(status.st_mode):
            target = os.fsencode(folder.readlink(path))
            yield HEAD.pack(b"l", mode, len(target), len(name)) + name + target
        elif stat.S_ISREG(status.st_mode):
            yield from _file(folder, path, name, mode)
    yield from reversed(locked)
    yield HEAD.pack(b"e", 0, 0, 0)


def opened(entries: Entries) -> Iterator[bytes]:
    """An archive that makes existing directories writable."""
    for _, path, status in entries:
        name = os.fsencode(path)
        yield (
            HEAD.pack(b"d", stat.S_IMODE(status.st_mode) & 0o777 | 0o700, 0, len(name))
            + name
        )
    yield HEAD.pack(b"e", 0, 0, 0)


def _file(folder: Folder, path: str, name: bytes, mode: int) -> Iterator[bytes]:
    try:
        file, status = folder.regular(path)
    except FileNotFoundError:
        return
    try:
        left = status.st_size
        yield HEAD.pack(b"f", mode, left, len(name)) + name
        while left:
            most = min(CHUNK, left)
            part = os.read(file, most) or bytes(most)  # zeros, if it became shorter
            left -= len(part)
            yield part
    finally:
        os.close(file)


class Head(NamedTuple):
    """What comes before an entry's contents."""

    kind: bytes
    name: str
    mode: int
    size: int
    target: str


def taken(buffer: bytearray) -> Head | None:
    """The next head, taken out of the buffer; None: it is not whole yet. FileFailed if it leads elsewhere."""
    if len(buffer) < HEAD.size:
        return None
    kind, mode, size, length = HEAD.unpack_from(buffer)
    link = size if kind == b"l" else 0
    if kind not in KINDS or link > LINK_MAX:
        raise FileFailed("the sandbox sent an archive that cannot be read")
    if len(buffer) < HEAD.size + length + link:
        return None
    name = os.fsdecode(bytes(buffer[HEAD.size : HEAD.size + length]))
    target = os.fsdecode(bytes(buffer[HEAD.size + length : HEAD.size + length + link]))
    del buffer[: HEAD.size + length + link]
    if kind != b"e" and (
        not name or name.startswith("/") or "\0" in name or ".." in name.split("/")
    ):
        raise FileFailed(
            f"the sandbox sent an archive with a name that leads elsewhere: {name[:200]!r}"
        )
    if "\0" in target:
        raise FileFailed(
            f"the sandbox sent an archive with a link that cannot be: {name[:200]!r}"
        )
    return Head(kind, name, mode, size, target)


class Unpacker:
    """Unpacks an archive, fed in pieces, into a folder of the host; without its links, if they are not wanted."""

    def __init__(self, folder: Folder, *, links: bool = True) -> None:
        self._folder, self._links = folder, links
        self._buffer = bytearray()
        self._left = 0
        self._file = -1
        self.done = False

    def feed(self, data: bytes) -> None:
        if self.done:
            raise FileFailed("the sandbox sent an archive that goes on after its end")
        self._buffer += data
        while self._buffer and not self.done:
            if self._left:
                self._write()
            elif not self._entry():
                return

    def _write(self) -> None:
        part = bytes(self._buffer[: self._left])
        del self._buffer[: len(part)]
        self._left -= len(part)
        write_all(self._file, part)
        if not self._left:
            self.close()

    def _entry(self) -> bool:
        """Start the next entry; False: its head has not arrived yet."""
        if (head := taken(self._buffer)) is None:
            return False
        if head.kind == b"e":
            self.done = True
        else:
            self._make(*head)
        return True

    def _make(self, kind: bytes, name: str, mode: int, size: int, target: str) -> None:
        if kind == b"d":
            with suppress(FileExistsError):
                self._folder.mkdir(name)
        elif kind == b"l" and not self._links:
            return
        elif kind == b"l":
            with suppress(FileNotFoundError):
                self._folder.unlink(name)
            self._folder.symlink(target, name)
        else:
            with suppress(FileNotFoundError):
                self._folder.unlink(name)
            self._file = self._folder.create(name)
            os.fchmod(self._file, mode & 0o777)
            self._left = size
            if not size:
                self.close()

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
