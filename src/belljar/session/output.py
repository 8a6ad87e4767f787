"""A command's output: pieces as they come, and what is kept of them, head and tail, in memory that is bounded."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from belljar.link import frames
from belljar.records import record

Stream = Literal["stdout", "stderr"]
STREAMS: dict[int, Stream] = {frames.STDOUT: "stdout", frames.STDERR: "stderr"}

SMALL_PIECE = (
    4096  # bytes; smaller pieces are joined, since each costs more than sixty bytes
)
MOST_PIECES = (
    16384  # beyond this, pieces are joined even if the other stream wrote in between
)


@record
class Output:
    """A piece of output: `print(event.stream, event.data)`."""

    stream: Stream
    data: bytes


@dataclass(slots=True, repr=False, eq=False)
class Piece:
    """Output of one stream that came in one go."""

    order: int
    stream: Stream
    data: bytes | bytearray
    last: int
    """The order of the last data that was joined to it."""

    def joins(self, order: int, data: bytes, crowded: bool) -> bool:
        """Append `data` if it is small and came right after this piece, or there are too many pieces (`crowded`)."""
        if (
            len(data) >= SMALL_PIECE
            or len(self.data) >= SMALL_PIECE
            or not (order == self.last + 1 or crowded)
        ):
            return False
        if isinstance(self.data, bytes):
            self.data = bytearray(self.data)
        self.data += data
        self.last = order
        return True


class Capture:
    """Keeps the head and the tail of one stream within `cap` bytes, in pieces that know their order of arrival."""

    __slots__ = (
        "_head_room",
        "_tail_room",
        "_tail_size",
        "head",
        "produced",
        "stream",
        "tail",
    )

    def __init__(self, stream: Stream, cap: int) -> None:
        self.stream: Stream = stream
        self.head: list[Piece] = []
        self.tail: deque[Piece] = deque()
        self.produced = 0
        self._head_room = cap // 2
        self._tail_room = cap - cap // 2
        self._tail_size = 0

    @classmethod
    def ending(cls, stream: Stream, data: bytes, total: int) -> Capture:
        """A capture of `total` bytes of which only the end, `data`, was kept."""
        capture = cls(stream, 2 * len(data))
        capture._head_room = 0
        capture.add(0, data)
        capture.produced = max(total, len(data))
        return capture

    def add(self, order: int, data: bytes) -> None:
        self.produced += len(data)
        if self._head_room:
            kept = data[: self._head_room]
            if not self.head or not self.head[-1].joins(
                order, kept, len(self.head) >= MOST_PIECES
            ):
                self.head.append(Piece(order, self.stream, kept, order))
            data, self._head_room = (
                data[self._head_room :],
                max(0, self._head_room - len(data)),
            )
        if data:
            self._add_tail(order, data)

    def _add_tail(self, order: int, data: bytes) -> None:
        kept = data[-self._tail_room :]
        if not self.tail or not self.tail[-1].joins(
            order, kept, len(self.tail) >= MOST_PIECES
        ):
            self.tail.append(Piece(order, self.stream, kept, order))
        self._tail_size += len(kept)
        while self._tail_size - len(self.tail[0].data) >= self._tail_room:
            self._tail_size -= len(self.tail.popleft().data)

    def trim(self) -> None:
        """Cut the tail to its size; while it grows only whole pieces are dropped."""
        over = self._tail_size - self._tail_room
        if over > 0:
            self.tail[0].data = self.tail[0].data[over:]
            self._tail_size -= over

    @property
    def omitted(self) -> int:
        self.trim()
        return self.produced - sum(len(p.data) for p in self.head) - self._tail_size

    def joined(self) -> tuple[bytes, bytes]:
        self.trim()
        return b"".join(p.data for p in self.head), b"".join(p.data for p in self.tail)


Captures = tuple[Capture, Capture]
"""Of stdout and stderr."""


def captures(cap: int) -> Captures:
    return Capture("stdout", cap), Capture("stderr", cap)


def in_order(kept: Captures) -> Iterator[Output]:
    """What was kept of both streams, as it came."""
    pieces = (piece for capture in kept for piece in (*capture.head, *capture.tail))
    for piece in sorted(pieces, key=lambda piece: piece.order):
        yield Output(piece.stream, bytes(piece.data))


class Listener:
    """Calls the caller's `on_output`. An exception of it is kept for the caller: it must not reach the link."""

    def __init__(self, on_output: Callable[[Output], None] | None) -> None:
        self._on_output = on_output
        self.failure: BaseException | None = None

    def call(self, stream: Stream, data: bytes) -> bool:
        """False if the callback raised: then the command must be stopped."""
        if self._on_output is None or self.failure is not None:
            return True
        try:
            self._on_output(Output(stream, data))
        except BaseException as failure:
            self.failure = failure
        return self.failure is None


NOBODY = Listener(None)
