"""Many connections over one byte stream: the host's end. The other end is the relay in the sandbox (`relay.c`).

A frame is: id (u32), kind (u8), length (u32), all little-endian, then `length` bytes. The side that opens a connection
chooses its id: the relay odd ones (a program in the sandbox connects to the door), the host even ones (to reach a port
in the sandbox). Each receiver grants the sender credit, in bytes, with CREDIT frames. Each side sends CLOSE once; after
both, the id is free again. The relay's first frame is READY: it listens.

The relay runs in the sandbox, so none of its frames is trusted: an invalid one is a `RelayError`, which closes the
door. Limits bound how much it can make us keep, for each connection and for all together.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress

import anyio
from anyio.abc import ByteStream

from belljar.turns import Turns

OPEN, DATA, EOF, CLOSE, CREDIT, READY = 1, 2, 3, 4, 5, 6
HEAD = struct.Struct("<IBI")
PAYLOAD_MAX = 64 << 10
WINDOW = (
    16 << 10
)  # bytes that the relay may send on a new connection before we read them; HOST_WINDOW in relay.c
WINDOW_MAX = 1 << 20  # the same for a busy connection
EXTRA_MAX = 16 << 20  # by how much all windows together may grow
CONNECTIONS = 2048
RELAY_WINDOW = 256 << 10  # OUR_WINDOW in relay.c
SENDING_MAX = 16 << 20  # bytes that all connections together may wait to send
SENT_LEAST = 4096  # bytes at once, however many there are
QUEUED_MAX = 4096  # frames
MERGED_MAX = 4096  # bytes: smaller pieces are merged up to this size


class RelayError(Exception):
    """The relay broke the protocol."""


class MuxStream(ByteStream):
    """One connection."""

    __slots__ = (
        "_broken",
        "_changed",
        "_closed",
        "_mux",
        "_our_credit",
        "_received",
        "_relay_credit",
        "_relay_ended",
        "_unread",
        "_we_ended",
        "_window",
        "id",
    )

    def __init__(self, mux: Mux, id: int) -> None:
        self.id, self._mux = id, mux
        self._received: deque[bytes] = deque()
        self._unread = 0
        """Bytes in `_received`."""
        self._relay_credit = self._window = WINDOW
        """Bytes that the relay may still send; and how much that is when all is read."""
        self._our_credit = RELAY_WINDOW
        self._relay_ended = self._we_ended = self._closed = self._broken = False
        self._changed = anyio.Event()

    def _add(self, data: bytes) -> None:
        """Merge small pieces: as an object of its own a byte takes forty times its size."""
        self._unread += len(data)
        if self._received and len(self._received[-1]) + len(data) <= MERGED_MAX:
            data = self._received.pop() + data
        self._received.append(data)

    def _notify(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def receive(self, max_bytes: int = 65536) -> bytes:
        """What was received before counts as read only now: until then its reader may still be busy with it."""
        self._mux._grant_credit(self)
        while not self._received:
            if self._closed:
                raise anyio.ClosedResourceError
            if self._relay_ended:
                raise anyio.EndOfStream
            if self._broken:
                raise anyio.BrokenResourceError
            await self._changed.wait()
        await self._mux.turns.next()
        if not self._received:
            raise anyio.ClosedResourceError
        data = self._received.popleft()
        if len(data) > max_bytes:
            self._received.appendleft(data[max_bytes:])
            data = data[:max_bytes]
        self._unread -= len(data)
        return data

    async def room(self) -> int:
        """How much `send` takes at once; waits until that is something. If all connections send at once, they wait for
        each other, and what waits must not take much memory."""
        while self._our_credit <= 0 or self._is_over:
            if self._is_over:
                raise anyio.BrokenResourceError
            await self._changed.wait()
        return min(
            self._our_credit,
            max(SENT_LEAST, SENDING_MAX // max(1, len(self._mux._streams))),
        )

    @property
    def _is_over(self) -> bool:
        return self._closed or self._we_ended or self._broken

    async def send(self, item: bytes) -> None:
        view = memoryview(item)
        while view:
            if self._closed or self._we_ended:
                raise anyio.ClosedResourceError
            if self._broken:
                raise anyio.BrokenResourceError
            if self._our_credit <= 0:
                await self._changed.wait()
                continue
            part, view = view[: self._our_credit], view[self._our_credit :]
            self._our_credit -= len(part)
            await self._mux._send(_frames(self.id, part))

    async def send_eof(self) -> None:
        if not (self._we_ended or self._closed or self._broken):
            self._we_ended = True
            await self._mux._send_frame(self.id, EOF)

    async def aclose(self) -> None:
        if not self._closed:
            self._closed = True
            self._received.clear()
            self._mux._we_closed(self)
            self._notify()
            with suppress(anyio.BrokenResourceError), anyio.CancelScope(shield=True):
                await self._mux._send_frame(self.id, CLOSE)


def _frames(id: int, data: memoryview) -> bytes:
    """DATA frames, to be written at once: each write wakes the relay."""
    pieces = (data[at : at + PAYLOAD_MAX] for at in range(0, len(data), PAYLOAD_MAX))
    return b"".join(
        part for piece in pieces for part in (HEAD.pack(id, DATA, len(piece)), piece)
    )


class Mux:
    """`write` sends bytes to the relay; `feed` takes what came from it. `on_open` gets each connection that the relay
    opens. `when_lost` is called once, whoever notices that the relay is gone or misbehaves; `when_taken` with how many
    bytes of the relay's need no more room.

    A frame is written whole or not at all, also if who sends it is cancelled: half of one would break all connections.
    So each stream that the relay knows of gets its CLOSE."""

    def __init__(
        self,
        write: Callable[[bytes], Awaitable[None]],
        on_open: Callable[[MuxStream], None],
        when_lost: Callable[[], None] = lambda: None,
        when_taken: Callable[[int], None] = lambda count: None,
    ) -> None:
        self._write = write
        self._on_open = on_open
        self._when_lost = when_lost
        self._when_taken = when_taken
        self.turns = Turns.here()
        self._streams: dict[int, MuxStream] = {}
        self._half_closed: dict[int, bool] = {}
        """Ids that only one side has closed; True: we did."""
        self._buffer = bytearray()
        self._behind = False
        """Whether frames wait for a later turn."""
        self._next_id = 2
        self._extra = 0
        self._lock = anyio.Lock(fast_acquire=True)
        self._queued: deque[bytes] = deque()
        self._has_queued = anyio.Event()
        self.lost = False
        self.ready = anyio.Event()

    # To the relay.

    async def _send_frame(self, id: int, kind: int, payload: bytes = b"") -> None:
        await self._send(HEAD.pack(id, kind, len(payload)) + payload)

    async def _send(self, data: bytes) -> None:
        async with self._lock:
            if self.lost:
                raise anyio.BrokenResourceError
            try:
                with anyio.CancelScope(shield=True):
                    await self._write(data)
            except OSError as error:
                self.lose()
                raise anyio.BrokenResourceError from error

    async def run(self) -> None:
        """Send queued CREDIT frames until the relay is gone."""
        while not self.lost:
            await self._has_queued.wait()
            self._has_queued = anyio.Event()
            while self._queued and not self.lost:
                frames = b"".join(self._queued)
                self._queued.clear()
                with suppress(anyio.BrokenResourceError):
                    await self._send(frames)

    async def open(self, port: int) -> MuxStream:
        """Connect to 127.0.0.1:`port` in the sandbox."""
        if self.lost or len(self._streams) >= CONNECTIONS:
            raise anyio.BrokenResourceError
        id = self._next_id
        while id in self._streams or id in self._half_closed:
            id += 2
        self._next_id = 2 if id > 1 << 30 else id + 2
        stream = self._streams[id] = MuxStream(self, id)
        try:
            await self._send_frame(id, OPEN, port.to_bytes(2, "little"))
        except BaseException:  # before a byte of it was sent
            self._streams.pop(id, None)
            raise
        return stream

    # From the relay.

    def feed(self, data: bytes) -> None:
        """Take what came; if it is more than there is time for, the rest in later turns."""
        self._buffer += data
        if not self._behind:
            self._behind = True
            self.turns.soon(self._take_frames)

    def _take_frames(self) -> None:
        self._behind = False
        at = 0
        try:
            while (after := self._take_frame(at)) > at and not self.lost:
                at = after
                if self.turns.is_used_up:
                    self._behind = True
                    break
        except RelayError:
            self.lose()
            return
        del self._buffer[:at]
        self._when_taken(at)
        if self._behind:
            self.turns.soon(self._take_frames)

    def _take_frame(self, at: int) -> int:
        """Returns where the next frame begins; `at`: this one is incomplete."""
        start = at + HEAD.size
        if len(self._buffer) < start:
            return at
        id, kind, length = HEAD.unpack_from(self._buffer, at)
        if length > PAYLOAD_MAX:
            raise RelayError("a frame is too long")
        if len(self._buffer) < start + length:
            return at
        self._on_frame(id, kind, bytes(self._buffer[start : start + length]))
        return start + int(length)

    def _on_frame(self, id: int, kind: int, payload: bytes) -> None:
        if not self.ready.is_set():
            if (id, kind, len(payload)) != (0, READY, 2):
                raise RelayError("the first frame is not READY")
            self.ready.set()
            return
        if kind == OPEN:
            self._accept(id, payload)
            return
        if (stream := self._streams.get(id)) is None:
            if self._half_closed.get(id) is not True:
                raise RelayError("a frame for an unknown connection")
            if kind == CLOSE:
                del self._half_closed[id]
            return  # the relay sent this before it got our CLOSE
        if kind == DATA and payload:
            stream._relay_credit -= len(payload)
            if stream._relay_credit < 0 or stream._relay_ended:
                raise RelayError("data after EOF, or more than its credit")
            stream._add(payload)
        elif kind == EOF and not payload and not stream._relay_ended:
            stream._relay_ended = True
        elif kind == CREDIT and len(payload) == 4:
            stream._our_credit += int.from_bytes(payload, "little")
            if stream._our_credit > RELAY_WINDOW:
                raise RelayError("more credit than its window")
        elif kind == CLOSE and not payload:
            stream._broken = not stream._relay_ended
            self._streams.pop(id)
            self._shrink_window(stream)
            self._half_closed[id] = False
        else:
            raise RelayError(f"a frame of kind {kind} is invalid")
        stream._notify()

    def _accept(self, id: int, payload: bytes) -> None:
        if (
            not id & 1
            or id in self._streams
            or id in self._half_closed
            or len(payload) != 2
        ):
            raise RelayError("an invalid OPEN")
        if len(self._streams) + len(self._half_closed) >= CONNECTIONS:
            raise RelayError("too many connections")
        stream = self._streams[id] = MuxStream(self, id)
        self._on_open(stream)

    def _grant_credit(self, stream: MuxStream) -> None:
        """Data was read: let the relay send as much again, and double the window of a busy connection."""
        if stream.id not in self._streams:
            return
        room = stream._window - stream._unread - stream._relay_credit
        if room < stream._window // 2:
            return
        if stream._window < WINDOW_MAX and self._extra + stream._window <= EXTRA_MAX:
            self._extra += stream._window
            room += stream._window
            stream._window *= 2
        stream._relay_credit += room
        if len(self._queued) >= QUEUED_MAX:  # the relay does not read our frames
            self.lose()
            return
        self._queued.append(
            HEAD.pack(stream.id, CREDIT, 4) + room.to_bytes(4, "little")
        )
        self._has_queued.set()

    def _shrink_window(self, stream: MuxStream) -> None:
        self._extra -= stream._window - WINDOW
        stream._window = WINDOW

    def _we_closed(self, stream: MuxStream) -> None:
        if self._streams.pop(stream.id, None) is not None:
            self._shrink_window(stream)
            self._half_closed[stream.id] = True
        else:
            self._half_closed.pop(stream.id, None)

    def lose(self) -> None:
        """The relay is gone, or cannot be used any longer: break every connection."""
        if self.lost:
            return
        self.lost = True
        self.ready.set()  # end the wait for READY
        self._has_queued.set()
        for stream in self._streams.values():
            stream._broken = True
            stream._notify()
        self._streams.clear()
        self._when_lost()
