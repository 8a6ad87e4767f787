"""Bytes both ways between a client in the sandbox and the address that was checked for it.

Where a name was allowed and TLS is spoken, the name in the ClientHello must be that name: otherwise a server that
hosts many names would serve one that nobody allowed.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable

import anyio
from anyio.abc import ByteStream

from belljar.network.tls import NotTLS, client_hello
from belljar.network.visit import Refused, Visit

CHUNK = 256 << 10
HELLO_SECONDS = 30.0
GONE = (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream, OSError)


class Meter:
    """Counts a visit's bytes and notices when nothing moves any more."""

    def __init__(self, visit: Visit, spend: Callable[[int], None], idle: float) -> None:
        self.visit, self._spend, self._idle = visit, spend, idle
        self._moved = 0

    def sent(self, count: int) -> None:
        self.visit.sent += count
        self._moved += 1
        self._spend(count)

    def received(self, count: int) -> None:
        self.visit.received += count
        self._moved += 1
        self._spend(count)

    async def end_when_idle(self, scope: anyio.CancelScope) -> None:
        """Cancel when nothing has moved for the idle time."""
        seen = -1
        while seen != self._moved:
            seen = self._moved
            await anyio.sleep(self._idle)
        self.visit.reason = "idle for too long"
        scope.cancel()


async def tunnel(client: ByteStream, upstream: ByteStream, meter: Meter, first: bytes = b"") -> None:
    """Until both sides have said all, one of them breaks, or nothing moves."""
    async with anyio.create_task_group() as both:

        async def up() -> None:
            if first:
                meter.sent(len(first))
                await upstream.send(first)
            await _pump(client, upstream, meter.sent)

        async def down() -> None:
            await _pump(upstream, client, meter.received)

        async def ended() -> None:
            async with anyio.create_task_group() as ways:
                ways.start_soon(_until_gone, up, both.cancel_scope)
                ways.start_soon(_until_gone, down, both.cancel_scope)
            both.cancel_scope.cancel()

        both.start_soon(meter.end_when_idle, both.cancel_scope)
        both.start_soon(ended)


async def _until_gone(way: Callable[[], object], scope: anyio.CancelScope) -> None:
    try:
        await way()  # type: ignore[misc]
    except GONE:
        scope.cancel()


async def _pump(source: ByteStream, target: ByteStream, count: Callable[[int], None]) -> None:
    with contextlib.suppress(anyio.EndOfStream):
        while True:
            data = await source.receive(CHUNK)
            count(len(data))
            await target.send(data)
    await target.send_eof()


async def checked_hello(client: ByteStream, name: str | None, first: bytes) -> bytes:
    """The bytes of a ClientHello that asks for `name` (None: an address was allowed); Refused for anything else."""
    data, shown = first, name or "this address"
    with anyio.move_on_after(HELLO_SECONDS):
        while True:
            try:
                hello = client_hello(data) if data else None
            except NotTLS as error:
                raise Refused(
                    f"{shown}: only TLS may be spoken there ({error}); allow 'tcp://{name}:443' for more"
                ) from error
            if hello is not None:
                break
            try:
                data += await client.receive(CHUNK)
            except GONE as error:
                raise Refused(f"{shown}: the client left before its TLS handshake") from error
        if hello.hides_name:
            raise Refused(f"{shown}: the client hides the server's name (ECH); switch that off")
        if name is not None and hello.name != name:
            asked = f"{hello.name!r}" if hello.name else "no name"
            raise Refused(f"{name} was asked for, but the TLS handshake names {asked}")
        return data
    raise Refused(f"{shown}: no TLS handshake came")


async def first_words(client: ByteStream, upstream: ByteStream) -> tuple[bytes, bytes]:
    """What the client says first, and what the server says before it; both empty if they leave."""
    words = {client: b"", upstream: b""}

    async def listen(stream: ByteStream, scope: anyio.CancelScope) -> None:
        with contextlib.suppress(*GONE):
            words[stream] = await stream.receive(CHUNK)
        scope.cancel()

    async with anyio.create_task_group() as both:
        both.start_soon(listen, client, both.cancel_scope)
        both.start_soon(listen, upstream, both.cancel_scope)
    return words[client], words[upstream]


_BLANK, _TOKEN = rb"[\r\n \t]*", rb"[!#$%&'*+.^_`|~0-9A-Za-z-]"
_MAYBE_HTTP = re.compile(_BLANK + _TOKEN + b"*")
_HTTP = re.compile(_BLANK + _TOKEN + b"+[ \t]")
UNCLEAR_MAX = 4096


async def more_if_unclear(client: ByteStream, first: bytes) -> bytes:
    """As long as it could still become an HTTP request, more of it. Servers skip blank lines in front of one."""
    while len(first) < UNCLEAR_MAX and _MAYBE_HTTP.fullmatch(first):
        first += await client.receive(CHUNK)
    return first


def looks_like_http(data: bytes) -> bool:
    return _HTTP.match(data) is not None or (len(data) >= UNCLEAR_MAX and _MAYBE_HTTP.fullmatch(data) is not None)
