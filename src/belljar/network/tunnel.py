"""Passes bytes both ways between a client in the sandbox and the address that was checked for it.

A ClientHello must name the allowed host: otherwise a server of many hosts would serve one that nobody allowed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Protocol, runtime_checkable

import anyio
from anyio.abc import ByteStream

from belljar.network import tls
from belljar.network.tls import Hello, HelloReader, NotTLS
from belljar.network.visit import Refused, Visit
from belljar.patterns import lazy_pattern
from belljar.turns import Turns

CHUNK = 256 << 10
HELLO_SECONDS = 30.0
HELLO_PIECE = 1 << 10
GONE = (
    anyio.BrokenResourceError,
    anyio.ClosedResourceError,
    anyio.EndOfStream,
    OSError,
)


class Meter:
    """Counts a visit's bytes, and ends it when it is idle for too long."""

    # A timer instead of a task, and slots: a thousand tunnels may be open at once.
    __slots__ = (
        "_count",
        "_idle",
        "_scope",
        "_timer",
        "_transfers",
        "_transfers_before",
        "visit",
    )

    def __init__(self, visit: Visit, count: Callable[[int], None], idle: float) -> None:
        self.visit = visit
        self._count = count
        self._idle = idle
        self._transfers = self._transfers_before = 0
        self._scope: anyio.CancelScope | None = None
        self._timer: asyncio.TimerHandle | None = None

    def sent(self, count: int) -> None:
        self.visit.sent += count
        self._transfers += 1
        self._count(count)

    def received(self, count: int) -> None:
        self.visit.received += count
        self._transfers += 1
        self._count(count)

    def watch(self, scope: anyio.CancelScope) -> None:
        """Cancel `scope` when nothing was transferred for the idle time."""
        self._scope, self._transfers_before = scope, self._transfers
        self._timer = asyncio.get_running_loop().call_later(self._idle, self._check)

    def _check(self) -> None:
        if self._scope is None:
            return
        if self._transfers_before == self._transfers:
            self.visit.reason = "idle for too long"
            self._scope.cancel()
        self.watch(self._scope)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._scope = None


@runtime_checkable
class HasRoom(Protocol):
    """A stream that says how much it takes at once."""

    async def room(self) -> int: ...


async def room(target: ByteStream) -> int:
    """How much to read for it: what it cannot take yet would wait in our memory."""
    under_tls = getattr(target, "transport_stream", target)
    return (
        min(CHUNK, await under_tls.room()) if isinstance(under_tls, HasRoom) else CHUNK
    )


class PartlyRead(ByteStream):
    """A stream whose `first` bytes were already read."""

    __slots__ = ("_first", "_stream")

    def __init__(self, stream: ByteStream, first: bytes) -> None:
        self._stream, self._first = stream, first

    async def receive(self, max_bytes: int = 65536) -> bytes:
        first, self._first = self._first[:max_bytes], self._first[max_bytes:]
        return first or await self._stream.receive(max_bytes)

    async def send(self, item: bytes) -> None:
        await self._stream.send(item)

    async def room(self) -> int:
        return await room(self._stream)

    async def send_eof(self) -> None:
        await self._stream.send_eof()

    async def aclose(self) -> None:
        await self._stream.aclose()


async def tunnel(
    client: ByteStream, upstream: ByteStream, meter: Meter, first: bytes = b""
) -> None:
    """Pass bytes until both sides have ended, one breaks, or both are idle for too long."""
    try:
        async with anyio.create_task_group() as both:
            scope = both.cancel_scope
            meter.watch(scope)
            both.start_soon(_pump, client, upstream, meter.sent, scope, first)
            await _pump(upstream, client, meter.received, scope)
    finally:
        meter.stop()


async def _pump(
    source: ByteStream,
    target: ByteStream,
    count: Callable[[int], None],
    scope: anyio.CancelScope,
    first: bytes = b"",
) -> None:
    try:
        if first:
            count(len(first))
            await target.send(first)
        with contextlib.suppress(anyio.EndOfStream):
            while True:
                data = await source.receive(await room(target))
                count(len(data))
                await target.send(data)
        await target.send_eof()
    except (
        NotImplementedError,
        *GONE,
    ):  # NotImplementedError: TLS has no EOF for one direction
        scope.cancel()


async def checked_hello(
    client: ByteStream, name: str | None, first: bytes, port: int = 443
) -> tuple[Hello, bytes]:
    """A ClientHello that names `name` (None: an address was allowed), and all that was received; else Refused."""
    reader = HelloReader()
    data = first
    shown = name or "this address"
    with anyio.move_on_after(HELLO_SECONDS):
        while True:
            try:
                hello = await _fed(reader, data)
            except NotTLS as error:
                raise Refused(
                    f"{shown}: only TLS is allowed there ({error}); allow 'tcp://{name}:{port}' for other protocols"
                ) from error
            if hello is not None:
                break
            try:
                data = await client.receive(CHUNK)
            except GONE as error:
                raise Refused(
                    f"{shown}: the client left before its TLS handshake"
                ) from error
        if hello.hides_name:
            raise Refused(
                f"{shown}: the client hides the server's name (ECH); switch that off"
            )
        if name is not None and hello.name != name:
            other = repr(hello.name) if hello.name else "no host"
            raise Refused(f"{name} was requested, but the TLS handshake names {other}")
        return hello, bytes(reader.data)
    raise Refused(f"{shown}: no TLS handshake came")


async def _fed(reader: HelloReader, data: bytes) -> Hello | None:
    """Feed it a little at a time: a client may send each byte in a record of its own."""
    turns, hello = Turns.here(), None
    for at in range(0, len(data), HELLO_PIECE):
        if turns.is_used_up:
            await turns.next()
        hello = reader.feed(data[at : at + HELLO_PIECE])
        if hello is not None:
            reader.data += data[at + HELLO_PIECE :]
            break
    return hello


async def first_data(client: ByteStream, upstream: ByteStream) -> tuple[bytes, bytes]:
    """What client and server have sent as soon as one of them sends or leaves."""
    received = {client: b"", upstream: b""}

    async def receive(stream: ByteStream, scope: anyio.CancelScope) -> None:
        with contextlib.suppress(*GONE):
            received[stream] = await stream.receive(CHUNK)
        scope.cancel()

    async with anyio.create_task_group() as both:
        both.start_soon(receive, client, both.cancel_scope)
        both.start_soon(receive, upstream, both.cancel_scope)
    return received[client], received[upstream]


_BLANK, _TOKEN = rb"[\r\n \t]*", rb"[!#$%&'*+.^_`|~0-9A-Za-z-]"
_MAYBE_HTTP = lazy_pattern(_BLANK + _TOKEN + b"*")
_HTTP = lazy_pattern(rb"[\r\n \t]|" + _TOKEN + b"+[ \t]")
"""Blanks first count as HTTP: a binary PROXY header begins so, and a request for any host may follow it."""
UNCLEAR_MAX = 4096


async def read_while_unclear(client: ByteStream, first: bytes) -> bytes:
    """Read on until it is clear whether this is an HTTP request. Servers skip blank lines before one."""
    while len(first) < UNCLEAR_MAX and _MAYBE_HTTP.fullmatch(first):
        first += await client.receive(CHUNK)
    return first


def looks_like_http(data: bytes) -> bool:
    return _HTTP.match(data) is not None or (
        len(data) >= UNCLEAR_MAX and _MAYBE_HTTP.fullmatch(data) is not None
    )


def is_http2_settings(server_first: bytes) -> bool:
    """Whether a server begins with HTTP/2's SETTINGS, as gRPC's do: requests to it could name other hosts."""
    return server_first[:1] == b"\0" and server_first[3:4] in (b"", b"\4")


UNENCRYPTED_MAX = 64  # records: each costs us more to check than the client to send; a handshake needs a handful


class HelloGuard(PartlyRead):
    """The client's stream, of which `first` was already read. A wrong hello breaks it; `refused` has the reason.

    A server may ask for a second ClientHello (HelloRetryRequest), and some servers take the server's name from that
    one. So each must name the allowed host, until a record comes that can only follow the hellos. A second hello may
    come in the same packet as the first, in pieces, or after records that change nothing.
    """

    __slots__ = (
        "_early_data",
        "_hellos_over",
        "_name",
        "_port",
        "_unencrypted",
        "refused",
    )

    def __init__(
        self, client: ByteStream, name: str, first: bytes, port: int = 443
    ) -> None:
        super().__init__(client, first)
        self._name, self._port = name, port
        self._hellos_over = self._early_data = False
        self._unencrypted = 0
        self.refused: Refused | None = None

    async def receive(self, max_bytes: int = 65536) -> bytes:
        if self._hellos_over:
            return await self._stream.receive(max_bytes)
        data, self._first = self._first or await self._stream.receive(max_bytes), b""
        try:
            return await self._checked(data)
        except Refused as error:
            self.refused = error
            raise anyio.BrokenResourceError from error

    async def _checked(self, data: bytes) -> bytes:
        """Check the records in `data`, and read on where one is cut off."""
        at, turns = 0, Turns.here()
        while at < len(data) and not self._hellos_over:
            if turns.is_used_up:
                await turns.next()
            data = await self._at_least(data, at + 5)
            kind, length = data[at], int.from_bytes(data[at + 3 : at + 5], "big")
            if not 0 < length <= tls.RECORD_MAX:
                raise Refused(f"{self._name}: a TLS record of a wrong size")
            data = await self._at_least(data, at + 5 + min(length, 6))
            self._unencrypted += kind != tls.ENCRYPTED
            if self._unencrypted > UNENCRYPTED_MAX:
                raise Refused(f"{self._name}: a TLS handshake that does not end")
            start = data[at : at + (11 if length >= tls.SHORTEST_ENCRYPTED else 6)]
            if kind == tls.HANDSHAKE and tls.starts_hello(start):
                hello, received = await checked_hello(
                    self._stream, self._name, data[at:], self._port
                )
                data, at = data[:at] + received, at + hello.size
                self._early_data = self._early_data or hello.early_data
            elif kind in (tls.CHANGE_CIPHER, tls.ALERT) or (
                kind == tls.ENCRYPTED and self._early_data
            ):
                at += 5 + length
                data = await self._at_least(data, at)
            elif kind in (tls.HANDSHAKE, tls.ENCRYPTED):
                self._hellos_over = True
            else:
                raise Refused(f"{self._name}: only TLS is allowed there")
        return data

    async def _at_least(self, data: bytes, length: int) -> bytes:
        while len(data) < length:
            data += await self._stream.receive(CHUNK)
        return data
