"""A command's output on disk: one log of both streams, read by position.

A position counts the bytes of both streams in the order in which the log took them; what stands at a position never
changes. The log is a row of segments, each a pair of files named after its first position: `N.out` holds the bytes,
`N.map` tells which belong to which stream. Bytes are written before the map that names them, so that a server that is
killed in between has lost nothing: the init still has what was not confirmed, and the bytes without a map are cut off.

The newest `kept` bytes always stay; the oldest segment goes when there are as many after it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import struct
from bisect import bisect_right
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Stream = Literal["stdout", "stderr"]
STREAMS: tuple[Stream, Stream] = ("stdout", "stderr")
KEPT = 64 << 20
_SEGMENTS = 16  # a log has about so many
_SMALLEST, _LARGEST = 64 << 10, 4 << 20
_HEAD = struct.Struct("<QQ")  # bytes of stdout and stderr before this segment
_ENTRY = struct.Struct("<IB3x")  # a length, and its stream


@dataclass
class Piece:
    """Bytes of one stream that stand together."""

    at: int
    stream: Stream
    data: bytes

    @property
    def end(self) -> int:
        return self.at + len(self.data)


@dataclass
class Segment:
    start: int
    before: tuple[int, int]
    """Bytes of each stream before it."""
    starts: list[int] = field(default_factory=list)
    streams: bytearray = field(default_factory=bytearray)
    length: int = 0

    @property
    def end(self) -> int:
        return self.start + self.length

    def add(self, stream: int, length: int) -> None:
        if not self.streams or self.streams[-1] != stream:
            self.starts.append(self.end)
            self.streams.append(stream)
        self.length += length

    def run(self, position: int) -> tuple[int, int]:
        """The stream at a position, and where its run of bytes ends."""
        index = bisect_right(self.starts, position) - 1
        end = self.starts[index + 1] if index + 1 < len(self.starts) else self.end
        return self.streams[index], end


class Log:
    def __init__(self, where: Path, kept: int = KEPT) -> None:
        self._where, self._kept = where, kept
        self._segment = min(max(kept // _SEGMENTS, _SMALLEST), _LARGEST)
        self._segments: list[Segment] = []
        self.received = (0, 0)
        """Bytes of each stream that the log has had."""
        self._out = self._map = -1
        if where.is_dir():
            self._recover()

    @property
    def start(self) -> int:
        """The oldest position that is still there."""
        return self._segments[0].start if self._segments else self.end

    @property
    def end(self) -> int:
        return sum(self.received)

    @property
    def is_full(self) -> bool:
        """Whether there is more than needs to be kept: room for more comes with `trim`."""
        return self.end - self.start >= self._kept + self._segment

    # Writing.

    def append(self, stream: int, data: bytes) -> None:
        """Take output: from now on it has a position."""
        view = memoryview(data)
        while view:
            segment = self._current()
            part = view[: self._segment - segment.length]
            _write(self._out, part)
            _write(self._map, _ENTRY.pack(len(part), stream))
            segment.add(stream, len(part))
            self._count(stream, len(part))
            view = view[len(part) :]

    def _count(self, stream: int, length: int) -> None:
        out, err = self.received
        self.received = (out + length, err) if stream == 0 else (out, err + length)

    def _current(self) -> Segment:
        if self._out < 0 or self._segments[-1].length >= self._segment:
            self._begin()
        return self._segments[-1]

    def _begin(self) -> None:
        self.close()
        if not self._segments or self._segments[-1].length >= self._segment:
            self._where.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._segments.append(Segment(self.end, self.received))
        name = self._file(self._segments[-1])
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._out = os.open(f"{name}.out", flags, 0o600)
        self._map = os.open(f"{name}.map", flags, 0o600)
        if not os.fstat(self._map).st_size:
            _write(self._map, _HEAD.pack(*self._segments[-1].before))

    def trim(self, to: int | None = None) -> None:
        """Drop the oldest segments that need not be kept; with `to`, only those before that position."""
        while self._segments and self.end - self._segments[0].end >= self._kept:
            if to is not None and self._segments[0].end > to:
                return
            name = self._file(self._segments.pop(0))
            for kind in ("map", "out"):
                with contextlib.suppress(OSError):
                    os.unlink(f"{name}.{kind}")

    def close(self) -> None:
        for file in (self._out, self._map):
            if file >= 0:
                os.close(file)
        self._out = self._map = -1

    def remove(self) -> None:
        self.close()
        self._segments, self.received = [], (0, 0)
        shutil.rmtree(self._where, ignore_errors=True)

    # Reading.

    def read(self, position: int, most: int) -> list[Piece]:
        """What stands at `position` and after it, up to `most` bytes. Blocks for a moment."""
        pieces: list[Piece] = []
        index = (
            bisect_right([segment.start for segment in self._segments], position) - 1
        )
        for segment in self._segments[max(0, index) :]:
            while most > 0 and segment.start <= position < segment.end:
                stream, end = segment.run(position)
                data = self._bytes(segment, position, min(end - position, most))
                pieces.append(Piece(position, STREAMS[stream], data))
                position, most = position + len(data), most - len(data)
        return pieces

    def _bytes(self, segment: Segment, position: int, count: int) -> bytes:
        file = os.open(f"{self._file(segment)}.out", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.pread(file, count, position - segment.start)
        finally:
            os.close(file)

    # After a restart.

    def _recover(self) -> None:
        starts = sorted(int(path.stem, 16) for path in self._where.glob("*.map"))
        for start in starts:
            if self._segments and start != self._segments[-1].end:
                break
            if (segment := self._recovered(start)) is None:
                break
            self._segments.append(segment)
        if self._segments:
            last = self._segments[-1]
            out, err = last.before
            for at, stream in zip(last.starts, last.streams, strict=True):
                length = last.run(at)[1] - at
                out, err = (out + length, err) if stream == 0 else (out, err + length)
            self.received = out, err

    def _recovered(self, start: int) -> Segment | None:
        name = str(self._where / f"{start:016x}")
        entries = Path(f"{name}.map").read_bytes()
        if len(entries) < _HEAD.size or not os.path.exists(f"{name}.out"):
            return None
        segment = Segment(start, _HEAD.unpack_from(entries))
        whole = (len(entries) - _HEAD.size) // _ENTRY.size
        for length, stream in _ENTRY.iter_unpack(
            entries[_HEAD.size : _HEAD.size + whole * _ENTRY.size]
        ):
            segment.add(stream, length)
        os.truncate(f"{name}.map", _HEAD.size + whole * _ENTRY.size)
        os.truncate(f"{name}.out", segment.length)
        return segment

    def _file(self, segment: Segment) -> str:
        return str(self._where / f"{segment.start:016x}")


def _write(file: int, data: bytes | memoryview) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]
