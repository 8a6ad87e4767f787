"""Bytes in, frames out. Pure: no socket, no clock.

Long OUTPUT payloads are handed on in parts as they come, without being gathered first; of everything else no more than
one frame is ever kept.
"""

from __future__ import annotations

from belljar.link.frames import HEADER, FrameError
from belljar.link.wire import CONTROL, FROM_INIT_BOUNDS, OFFSET, From

Frame = tuple[int, int, int, bytes]
"""(kind, stream, command id, payload)"""

_OUTPUT = int(From.OUTPUT)
_TAGGED = int(From.READ_REPLY)  # its stream byte carries the question's tag
_OF_STREAMS = frozenset({int(From.OUTPUT), int(From.INPUT_ACK), int(From.PIPE)})


class Decoder:
    def __init__(self) -> None:
        self._kept = bytearray()
        self._due = 0  # how much must be kept before another look at it is worth its copy
        self._stream, self._id, self._missing = 0, 0, 0  # of the output that is coming in

    @property
    def midway(self) -> bool:
        """A frame has begun and not ended."""
        return bool(self._kept or self._missing)

    def feed(self, data: bytes) -> list[Frame]:
        found: list[Frame] = []
        if self._kept:
            self._kept += data
            if len(self._kept) < self._due:
                return found
            data, self._kept = bytes(self._kept), bytearray()
        at, size = 0, len(data)
        while at < size:
            after = self._output(data, at, found) if self._missing else self._frame(data, at, size, found)
            if after == at:
                self._kept += data[at:]
                break
            at = after
        return found

    def _frame(self, data: bytes, at: int, size: int, found: list[Frame]) -> int:
        """Where the next one begins; `at` if this one is not there yet."""
        start = at + HEADER.size
        if size < start:
            self._due = HEADER.size
            return at
        length, kind, stream, zero, id = HEADER.unpack_from(data, at)
        _check(length, kind, stream, zero)
        end: int = start + length
        if kind == _OUTPUT:
            if size > start + OFFSET:
                self._stream, self._id, self._missing = stream, id, length - OFFSET
                return start + OFFSET
            self._due = HEADER.size + OFFSET + 1
            return at
        if end > size:
            self._due = HEADER.size + length
            return at
        found.append((kind, stream, id, data[start:end]))
        return end

    def _output(self, data: bytes, at: int, found: list[Frame]) -> int:
        end = at + self._missing
        part = data if at == 0 and len(data) <= end else data[at:end]
        found.append((_OUTPUT, self._stream, self._id, part))
        self._missing -= len(part)
        return at + len(part)


def _check(length: int, kind: int, stream: int, zero: int) -> None:
    bounds = FROM_INIT_BOUNDS.get(kind)
    if bounds is None or zero or not bounds[0] <= length <= bounds[1]:
        raise FrameError(f"not a frame: kind {kind}, {length} bytes")
    if stream and kind != _TAGGED and (kind not in _OF_STREAMS or stream > CONTROL):
        raise FrameError(f"a frame of kind {kind} on stream {stream}")
