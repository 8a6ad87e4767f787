"""Many connections over one byte stream: the host's end of the relay that runs in the sandbox.

Frames both ways: id (u32), kind (u8), length (u32), little-endian, then so many bytes. Whoever opens a connection
chooses its id: the relay odd ones (a program inside called the door), the host even ones (a port inside is wanted).
Each direction of each connection has a window; CREDIT widens it. Each side sends CLOSE once; after both, the id is free
again. READY is the relay's first word: it listens.

The relay runs inside the sandbox, so nothing it says is trusted: a frame that does not fit ends it, and the door with
it. What it may send before it is read is bounded per connection and over all connections together.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress

import anyio
from anyio.abc import ByteStream

OPEN, DATA, EOF, CLOSE, CREDIT, READY = 1, 2, 3, 4, 5, 6
HEAD = struct.Struct("<IBI")
PAYLOAD_MAX = 64 << 10
WINDOW = 64 << 10  # of every connection, from the start
WIDE = 1 << 20  # of one that is busy, as long as all together stay below BUDGET
BUDGET = 16 << 20
CONNECTIONS = 2048
RELAY_WINDOW = 256 << 10  # what the relay takes before it has to be told: relay.c
MAX_DELAYED = 4096
SMALL = 4096  # bytes of a piece that others are added to


class RelayError(Exception):
    """The relay said something it must not say."""


class MuxStream(ByteStream):
    """One connection."""

    __slots__ = (
        "_allowed", "_arrived", "_broken", "_closed", "_credit", "_mux", "_news", "_our_end", "_their_end", "_waiting",
        "_window", "id", "port",
    )  # fmt: skip

    def __init__(self, mux: Mux, id: int, port: int) -> None:
        self.id, self.port = id, port
        self._mux = mux
        self._arrived: deque[bytes] = deque()
        self._waiting = 0
        """Bytes that arrived and were not taken."""
        self._allowed = WINDOW
        """How much more the relay may send."""
        self._window = WINDOW
        self._credit = RELAY_WINDOW
        self._their_end = self._our_end = False
        self._closed = False
        self._broken = False
        self._news = anyio.Event()

    def _keep(self, data: bytes) -> None:
        """Small pieces as one: a byte by itself takes forty times its size."""
        if self._arrived and len(self._arrived[-1]) + len(data) <= SMALL:
            data = self._arrived.pop() + data
        self._arrived.append(data)

    def _tell(self) -> None:
        self._news.set()
        self._news = anyio.Event()

    async def receive(self, max_bytes: int = 65536) -> bytes:
        while not self._arrived:
            if self._closed:
                raise anyio.ClosedResourceError
            if self._their_end:
                raise anyio.EndOfStream
            if self._broken:
                raise anyio.BrokenResourceError
            await self._news.wait()
        data = self._arrived.popleft()
        if len(data) > max_bytes:
            self._arrived.appendleft(data[max_bytes:])
            data = data[:max_bytes]
        self._waiting -= len(data)
        self._mux._taken(self)
        return data

    async def send(self, item: bytes) -> None:
        view = memoryview(item)
        while view:
            if self._closed or self._our_end:
                raise anyio.ClosedResourceError
            if self._broken:
                raise anyio.BrokenResourceError
            if self._credit <= 0:
                await self._news.wait()
                continue
            part, view = view[: self._credit], view[self._credit :]
            self._credit -= len(part)
            await self._mux._send(_frames(self.id, part))

    async def send_eof(self) -> None:
        if not (self._our_end or self._closed or self._broken):
            self._our_end = True
            await self._mux._write(self.id, EOF)

    async def aclose(self) -> None:
        if not self._closed:
            self._closed = True
            self._arrived.clear()
            self._mux._forget(self)
            self._tell()
            with suppress(anyio.BrokenResourceError):
                await self._mux._write(self.id, CLOSE)


def _frames(id: int, data: memoryview) -> bytes:
    """As few writes as the window allows: each one wakes the relay."""
    pieces = (data[at : at + PAYLOAD_MAX] for at in range(0, len(data), PAYLOAD_MAX))
    return b"".join(part for piece in pieces for part in (HEAD.pack(id, DATA, len(piece)), piece))


class Mux:
    """`write(data)` hands bytes to the relay and waits for room; `feed` takes what the relay wrote."""

    def __init__(self, write: Callable[[bytes], Awaitable[None]], on_open: Callable[[MuxStream], None]) -> None:
        self._out, self._on_open = write, on_open
        self._streams: dict[int, MuxStream] = {}
        self._half_closed: dict[int, bool] = {}
        """Ids that one side has closed; the value tells whether it was ours."""
        self._buffer = bytearray()
        self._next = 2
        self._granted = 0
        self._lock = anyio.Lock(fast_acquire=True)
        self._due: deque[bytes] = deque()
        self._due_news = anyio.Event()
        self.lost = False
        self.ready = anyio.Event()

    def __len__(self) -> int:
        return len(self._streams)

    # To the relay.

    async def _write(self, id: int, kind: int, payload: bytes = b"") -> None:
        await self._send(HEAD.pack(id, kind, len(payload)) + payload)

    async def _send(self, data: bytes) -> None:
        async with self._lock:
            if self.lost:
                raise anyio.BrokenResourceError
            try:
                await self._out(data)
            except OSError as error:
                self.lose()
                raise anyio.BrokenResourceError from error

    def _later(self, id: int, kind: int, payload: bytes = b"") -> None:
        """From where nothing can be waited for; `run` sends it."""
        if len(self._due) >= MAX_DELAYED:
            raise RelayError("more frames than can be answered")
        self._due.append(HEAD.pack(id, kind, len(payload)) + payload)
        self._due_news.set()

    async def run(self) -> None:
        """Send what `feed` left to be sent, for as long as the relay lives."""
        while not self.lost:
            await self._due_news.wait()
            self._due_news = anyio.Event()
            while self._due and not self.lost:
                parts = b"".join(self._due)
                self._due.clear()
                with suppress(anyio.BrokenResourceError):
                    await self._send(parts)

    async def open(self, port: int) -> MuxStream:
        """A connection to 127.0.0.1:`port` inside."""
        if self.lost or len(self._streams) >= CONNECTIONS:
            raise anyio.BrokenResourceError
        id = self._next
        while id in self._streams or id in self._half_closed:
            id += 2
        self._next = 2 if id > 1 << 30 else id + 2
        stream = self._streams[id] = MuxStream(self, id, port)
        await self._write(id, OPEN, port.to_bytes(2, "little"))
        return stream

    # From the relay.

    def feed(self, data: bytes) -> None:
        self._buffer += data
        at = 0
        while len(self._buffer) - at >= HEAD.size:
            id, kind, length = HEAD.unpack_from(self._buffer, at)
            if length > PAYLOAD_MAX:
                raise RelayError("a frame that is too long")
            if len(self._buffer) - at < HEAD.size + length:
                break
            at += HEAD.size
            self._take(id, kind, bytes(self._buffer[at : at + length]))
            at += length
        del self._buffer[:at]

    def _take(self, id: int, kind: int, payload: bytes) -> None:
        if not self.ready.is_set():
            if (id, kind, len(payload)) != (0, READY, 2):
                raise RelayError("no relay")
            self.ready.set()
            return
        if kind == OPEN:
            self._opened(id, payload)
            return
        if (stream := self._streams.get(id)) is None:
            if self._half_closed.get(id) is not True:
                raise RelayError("a frame for a connection that is not there")
            if kind == CLOSE:
                del self._half_closed[id]
            return  # it was on its way when we closed
        if kind == DATA and payload:
            stream._allowed -= len(payload)
            if stream._allowed < 0 or stream._their_end:
                raise RelayError("more than was asked for")
            stream._keep(payload)
            stream._waiting += len(payload)
        elif kind == EOF and not payload and not stream._their_end:
            stream._their_end = True
        elif kind == CREDIT and len(payload) == 4:
            stream._credit += int.from_bytes(payload, "little")
            if stream._credit > RELAY_WINDOW:
                raise RelayError("more credit than it has")
        elif kind == CLOSE and not payload:
            stream._broken = not stream._their_end
            self._streams.pop(id)
            self._release(stream)
            self._half_closed[id] = False
        else:
            raise RelayError(f"a frame of kind {kind} that does not fit")
        stream._tell()

    def _opened(self, id: int, payload: bytes) -> None:
        if not id & 1 or id in self._streams or id in self._half_closed or len(payload) != 2:
            raise RelayError("a connection that cannot be opened")
        if len(self._streams) + len(self._half_closed) >= CONNECTIONS:
            raise RelayError("more connections than it may have")
        stream = self._streams[id] = MuxStream(self, id, int.from_bytes(payload, "little"))
        self._on_open(stream)

    def _taken(self, stream: MuxStream) -> None:
        """Something was read: let the relay send as much again, and more to a connection that is busy."""
        if stream.id not in self._streams:
            return
        room = stream._window - stream._waiting - stream._allowed
        if room < stream._window // 2:
            return
        if stream._window < WIDE and self._granted + stream._window <= BUDGET:
            self._granted += stream._window
            room += stream._window
            stream._window *= 2
        stream._allowed += room
        self._later(stream.id, CREDIT, room.to_bytes(4, "little"))

    def _release(self, stream: MuxStream) -> None:
        self._granted -= stream._window - WINDOW
        stream._window = WINDOW

    def _forget(self, stream: MuxStream) -> None:
        if self._streams.pop(stream.id, None) is not None:
            self._release(stream)
            self._half_closed[stream.id] = True
        else:
            self._half_closed.pop(stream.id, None)

    def lose(self) -> None:
        """The relay is gone: every connection breaks."""
        self.lost = True
        self.ready.set()  # whoever waits for it must not wait for more
        self._due_news.set()
        for stream in self._streams.values():
            stream._broken = True
            stream._tell()
        self._streams.clear()
