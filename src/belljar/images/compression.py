"""Decompresses archives: gzip, bzip2, xz, and zstd if its program is installed."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from belljar.errors import ImageInvalid
from belljar.images.unpack import CHUNK, LOOK_EVERY, Metered, check_room

GZIP, BZIP2, XZ, ZSTD = b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd"
MARKS = (GZIP, BZIP2, XZ, ZSTD)
XZ_MEMORY = 256 << 20
"""Output of `xz -9` takes 65 MiB; an archive may claim to need 4 GiB. (zstd's program has its own limit.)"""


class Peekable(io.RawIOBase):
    """A stream whose first bytes can be inspected before it is read."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.beginning = stream.read(6)
        self._ahead = self.beginning

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = (
            self._ahead[: len(buffer)]
            if self._ahead
            else self._stream.read(len(buffer))
        )
        self._ahead = self._ahead[len(data) :]
        buffer[: len(data)] = data
        return len(data)


class UnXz(io.RawIOBase):
    """Like `lzma.LZMAFile`, in bounded memory."""

    def __init__(self, source: IO[bytes]) -> None:
        self._source = source
        self._begin()

    def _begin(self) -> None:
        self._stream = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=XZ_MEMORY)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while True:
            more = b""
            if self._stream.eof:
                more = (self._stream.unused_data or self._source.read(CHUNK)).lstrip(
                    b"\0"
                )
                if not more and not (more := self._source.read(CHUNK).lstrip(b"\0")):
                    return 0
                self._begin()
            elif self._stream.needs_input and not (more := self._source.read(CHUNK)):
                raise EOFError("it ends too early")
            if data := self._stream.decompress(more, len(buffer)):
                buffer[: len(data)] = data
                return len(data)


def is_compressed(path: Path) -> bool:
    with open(path, "rb") as file:
        return file.read(6).startswith(MARKS)


@contextmanager
def plain(stream: IO[bytes], work: Path) -> Iterator[IO[bytes]]:
    """The decompressed stream; one that is not compressed is returned as it is."""
    peeked = Peekable(stream)
    start = peeked.beginning
    source = cast("IO[bytes]", io.BufferedReader(peeked, 1 << 18))
    if start.startswith(GZIP):
        yield cast("IO[bytes]", gzip.GzipFile(fileobj=source))
    elif start.startswith(BZIP2):
        yield cast("IO[bytes]", bz2.BZ2File(source))
    elif start.startswith(XZ):
        yield cast("IO[bytes]", io.BufferedReader(UnXz(source), CHUNK))
    elif start.startswith(ZSTD):
        with _zstd(source, work) as piped:
            yield piped
    else:
        yield source


@contextmanager
def _zstd(source: IO[bytes], work: Path) -> Iterator[IO[bytes]]:
    program = shutil.which("zstd")
    if program is None:
        raise ImageInvalid(
            "the image is compressed with zstd: install the program zstd"
        )
    packed = work / "packed.zst"
    copy(source, packed)
    with (
        open(packed, "rb") as file,
        subprocess.Popen(
            [program, "-dcq"],
            stdin=file,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as process,
    ):
        assert process.stdout is not None
        try:
            yield cast("IO[bytes]", _Whole(process))
        finally:
            process.kill()
            packed.unlink()


class _Whole:
    """A program's output. Raises EOFError at its end if the program failed."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def read(self, size: int = -1) -> bytes:
        assert self._process.stdout is not None
        data = self._process.stdout.read(size)
        if not data and size and self._process.wait() != 0:
            raise EOFError("it is damaged, or ends too early")
        return data


def copy(source: IO[bytes] | Metered, target: Path) -> None:
    """Copy to a new file. Raises ImageInvalid when the disk gets full."""
    written = LOOK_EVERY
    with open(target, "wb") as file:
        while data := source.read(CHUNK):
            if (written := written + len(data)) > LOOK_EVERY:
                check_room(target.parent)
                written = 0
            file.write(data)
