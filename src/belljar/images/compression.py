"""Archives without their compression: gzip, bzip2, xz, and zstd where its program is installed."""

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

GZIP, BZIP2, XZ, ZSTD = b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd"
MARKS = (GZIP, BZIP2, XZ, ZSTD)


class Peekable(io.RawIOBase):
    """A stream whose beginning can be looked at."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.beginning = stream.read(6)
        self._ahead = self.beginning

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._ahead[: len(buffer)] if self._ahead else self._stream.read(len(buffer))
        self._ahead = self._ahead[len(data) :]
        buffer[: len(data)] = data
        return len(data)


def is_compressed(path: Path) -> bool:
    with open(path, "rb") as file:
        return file.read(6).startswith(MARKS)


@contextmanager
def plain(stream: IO[bytes], work: Path) -> Iterator[IO[bytes]]:
    """The stream as it was before it was compressed, or as it is."""
    peeked = Peekable(stream)
    start, source = peeked.beginning, cast("IO[bytes]", io.BufferedReader(peeked, 1 << 18))
    if start.startswith(GZIP):
        yield cast("IO[bytes]", gzip.GzipFile(fileobj=source))
    elif start.startswith(BZIP2):
        yield cast("IO[bytes]", bz2.BZ2File(source))
    elif start.startswith(XZ):
        with lzma.LZMAFile(source) as output:
            yield cast("IO[bytes]", output)
    elif start.startswith(ZSTD):
        with _zstd(source, work) as piped:
            yield piped
    else:
        yield source


@contextmanager
def _zstd(source: IO[bytes], work: Path) -> Iterator[IO[bytes]]:
    program = shutil.which("zstd")
    if program is None:
        raise ImageInvalid("the image is compressed with zstd: install the program zstd")
    packed = work / "packed.zst"
    with open(packed, "wb") as copy:
        shutil.copyfileobj(source, copy, 1 << 20)
    with (
        open(packed, "rb") as file,
        subprocess.Popen([program, "-dcq"], stdin=file, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process,
    ):
        assert process.stdout is not None
        try:
            yield process.stdout
        finally:
            process.kill()
            packed.unlink()
