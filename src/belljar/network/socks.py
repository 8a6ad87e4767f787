"""SOCKS5 (RFC 1928), CONNECT only, without a password: the door itself knows who may go where."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

import anyio
from anyio.abc import ByteStream

from belljar.network.visit import Refused

if TYPE_CHECKING:
    from belljar.network.door import Door

CONNECT, IPV4, NAME, IPV6 = 1, 1, 3, 4
GRANTED, NOT_ALLOWED, UNREACHABLE, BAD_COMMAND, BAD_KIND = 0, 2, 4, 7, 8
SECONDS = 30.0


class _Input:
    def __init__(self, client: ByteStream, data: bytes) -> None:
        self._client, self.data = client, data

    async def take(self, count: int) -> bytes:
        while len(self.data) < count:
            self.data += await self._client.receive(4096)
        taken, self.data = self.data[:count], self.data[count:]
        return taken


async def serve_socks(door: Door, client: ByteStream, first: bytes) -> None:
    from belljar.network.door import Unreachable

    words = _Input(client, first)
    with anyio.fail_after(SECONDS):
        asked = await _request(words, client)
    if asked is None:
        return
    host, port = asked
    try:
        async with door.visit(host, port, "SOCKS5") as visit:
            target = await door.admit(host, port)
            upstream = await door.dial(target, visit)
            async with upstream:
                await client.send(_reply(GRANTED))
                await door.tunnel(client, target, upstream, visit, words.data)
    except Refused as error:
        await client.send(_reply(UNREACHABLE if error.status == 502 else NOT_ALLOWED))
    except Unreachable:
        await client.send(_reply(UNREACHABLE))


async def _request(words: _Input, client: ByteStream) -> tuple[str, int] | None:
    methods = await words.take((await words.take(2))[1])
    if 0 not in methods:
        await client.send(b"\x05\xff")
        return None
    await client.send(b"\x05\x00")
    version, command, _, kind = await words.take(4)
    if version != 5 or command != CONNECT:
        await client.send(_reply(BAD_COMMAND))
        return None
    host = await _host(words, kind)
    if host is None:
        await client.send(_reply(BAD_KIND))
        return None
    return host, int.from_bytes(await words.take(2), "big")


async def _host(words: _Input, kind: int) -> str | None:
    if kind == IPV4:
        return str(ipaddress.IPv4Address(await words.take(4)))
    if kind == IPV6:
        return str(ipaddress.IPv6Address(await words.take(16)))
    if kind == NAME:
        return (await words.take((await words.take(1))[0])).decode("ascii", "replace")
    return None


def _reply(code: int) -> bytes:
    return bytes([5, code, 0, IPV4]) + bytes(6)
