"""SOCKS5 (RFC 1928): only CONNECT, and no password, because the door checks every connection anyway."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

import anyio
from anyio.abc import ByteStream

from belljar.network.visit import Refused

if TYPE_CHECKING:
    from belljar.network.gate import Gate

CONNECT, IPV4, NAME, IPV6 = 1, 1, 3, 4
GRANTED, NOT_ALLOWED, UNREACHABLE, BAD_COMMAND, BAD_KIND = 0, 2, 4, 7, 8
SECONDS = 30.0


class _Input:
    """Reads an exact number of bytes; `data` is what was received beyond them."""

    def __init__(self, client: ByteStream, data: bytes) -> None:
        self._client, self.data = client, data

    async def take(self, count: int) -> bytes:
        while len(self.data) < count:
            self.data += await self._client.receive(4096)
        taken, self.data = self.data[:count], self.data[count:]
        return taken


async def serve_socks(door: Gate, client: ByteStream, first: bytes) -> None:
    received = _Input(client, first)
    with anyio.fail_after(SECONDS):
        request = await _request(received, client)
    if request is None:
        return
    host, port = request
    try:
        async with door.visit(host, port, "SOCKS5") as visit:
            target = await door.admit(host, port)
            async with await door.dial(target, visit) as upstream:
                await client.send(_reply(GRANTED))
                try:
                    await door.tunnel(client, target, upstream, visit, received.data)
                except Refused as error:  # too late for an answer
                    visit.refused_by(error)
    except Refused as error:
        await client.send(_reply(UNREACHABLE if error.status == 502 else NOT_ALLOWED))


async def _request(received: _Input, client: ByteStream) -> tuple[str, int] | None:
    """The host and port that the client asks for; None after it was refused."""
    methods = await received.take((await received.take(2))[1])
    if 0 not in methods:
        await client.send(b"\x05\xff")
        return None
    await client.send(b"\x05\x00")
    version, command, _, kind = await received.take(4)
    if version != 5 or command != CONNECT:
        await client.send(_reply(BAD_COMMAND))
        return None
    host = await _host(received, kind)
    if host is None:
        await client.send(_reply(BAD_KIND))
        return None
    return host, int.from_bytes(await received.take(2), "big")


async def _host(received: _Input, kind: int) -> str | None:
    if kind == IPV4:
        return str(ipaddress.IPv4Address(await received.take(4)))
    if kind == IPV6:
        return str(ipaddress.IPv6Address(await received.take(16)))
    if kind == NAME:
        return (await received.take((await received.take(1))[0])).decode(
            "ascii", "replace"
        )
    return None


def _reply(code: int) -> bytes:
    return bytes([5, code, 0, IPV4]) + bytes(6)
