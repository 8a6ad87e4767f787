"""Turns received bytes into frames. Pure: no socket, no clock.

The payload of a long OUTPUT frame is passed on in parts as it arrives. Of all other kinds, at most one incomplete frame
is buffered.
"""

from __future__ import annotations

from belljar.link.frames import HEADER, FrameError
from belljar.link.wire import CONTROL, FROM_INIT_BOUNDS, OFFSET, From

Frame = tuple[int, int, int, bytes]
"""(kind, stream, command id, payload)"""

_OUTPUT = int(From.OUTPUT)
_TAGGED = int(From.READ_REPLY)  # its stream byte carries the question's tag
_WITH_STREAM = frozenset({int(From.OUTPUT), int(From.INPUT_ACK), int(From.PIPE)})


class Decoder:
    def __init__(self) -> None:
        self._buffer = bytearray()
        self._needed = 0  # how many buffered bytes are needed to make progress
        self._stream, self._id, self._missing = (
            0,
            0,
            0,
        )  # of the output frame that is arriving

    @property
    def midway(self) -> bool:
        """Whether a frame has begun and not ended."""
        return bool(self._buffer or self._missing)

    def feed(self, data: bytes) -> list[Frame]:
        frames: list[Frame] = []
        if self._buffer:
            self._buffer += data
            if len(self._buffer) < self._needed:
                return frames
            data, self._buffer = bytes(self._buffer), bytearray()
        at, size = 0, len(data)
        while at < size:
            after = (
                self._output(data, at, frames)
                if self._missing
                else self._frame(data, at, size, frames)
            )
            if after == at:
                self._buffer += data[at:]
                break
            at = after
        return frames

    def _frame(self, data: bytes, at: int, size: int, frames: list[Frame]) -> int:
        """Returns where the next frame begins; `at`: this one is incomplete."""
        start = at + HEADER.size
        if size < start:
            self._needed = HEADER.size
            return at
        length, kind, stream, zero, id = HEADER.unpack_from(data, at)
        _check(length, kind, stream, zero)
        end: int = start + length
        if kind == _OUTPUT:
            if size > start + OFFSET:
                self._stream, self._id, self._missing = stream, id, length - OFFSET
                return start + OFFSET
            self._needed = HEADER.size + OFFSET + 1
            return at
        if end > size:
            self._needed = HEADER.size + length
            return at
        frames.append((kind, stream, id, data[start:end]))
        return end

    def _output(self, data: bytes, at: int, frames: list[Frame]) -> int:
        end = at + self._missing
        part = data if at == 0 and len(data) <= end else data[at:end]
        frames.append((_OUTPUT, self._stream, self._id, part))
        self._missing -= len(part)
        return at + len(part)


def _check(length: int, kind: int, stream: int, zero: int) -> None:
    bounds = FROM_INIT_BOUNDS.get(kind)
    if bounds is None or zero or not bounds[0] <= length <= bounds[1]:
        raise FrameError(f"not a frame: kind {kind}, {length} bytes")
    if stream and kind != _TAGGED and (kind not in _WITH_STREAM or stream > CONTROL):
        raise FrameError(f"a frame of kind {kind} on stream {stream}")
