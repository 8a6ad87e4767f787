"""A client in a TLS tunnel that says hello more than once.

A server may ask for a second ClientHello (HelloRetryRequest), and some take the server's name from that one. So each
must name the host that was allowed, until the client speaks in a way that only follows a handshake. A second hello may
come in the same packet as the first, in pieces, or behind records that change nothing.
"""

from __future__ import annotations

import anyio
from anyio.abc import ByteStream

from belljar.network import tls
from belljar.network.tunnel import CHUNK, PartlyRead, checked_hello
from belljar.network.visit import Refused

IN_CLEAR_MOST = 64  # records


class OneName(PartlyRead):
    """`first`: what was read of `client` already. What is refused breaks the stream; `refused` tells why."""

    __slots__ = ("_early_data", "_in_clear", "_name", "_passed", "refused")

    def __init__(self, client: ByteStream, name: str, first: bytes) -> None:
        super().__init__(client, first)
        self._name = name
        self._passed = self._early_data = False
        self._in_clear = 0
        self.refused: Refused | None = None

    async def receive(self, max_bytes: int = 65536) -> bytes:
        if self._passed:
            return await self._stream.receive(max_bytes)
        data, self._first = self._first or await self._stream.receive(max_bytes), b""
        try:
            return await self._checked(data)
        except Refused as error:
            self.refused = error
            raise anyio.BrokenResourceError from error

    async def _checked(self, data: bytes) -> bytes:
        at = 0
        while at < len(data) and not self._passed:
            data = await self._at_least(data, at + 5)
            kind, length = data[at], int.from_bytes(data[at + 3 : at + 5], "big")
            if not 0 < length <= tls.RECORD_MAX:
                raise Refused(f"{self._name}: a TLS record of a wrong size")
            data = await self._at_least(data, at + 5 + min(length, 6))
            self._count(kind)
            shown = data[at : at + (11 if length >= tls.SHORTEST_ENCRYPTED else 6)]
            if kind == tls.HANDSHAKE and tls.says_hello_again(shown):
                hello = await checked_hello(self._stream, self._name, data[at:])
                data, at = data[:at] + hello, at + self._size(hello)
            elif kind in (tls.CHANGE_CIPHER, tls.ALERT) or (kind == tls.ENCRYPTED and self._early_data):
                at += 5 + length
                data = await self._at_least(data, at)
            elif kind in (tls.HANDSHAKE, tls.ENCRYPTED):
                self._passed = True
            else:
                raise Refused(f"{self._name}: only TLS may be spoken there")
        return data

    def _count(self, kind: int) -> None:
        """Two hellos and what belongs to them are a handful; each costs us more to look at than the client to say."""
        self._in_clear += kind != tls.ENCRYPTED
        if self._in_clear > IN_CLEAR_MOST:
            raise Refused(f"{self._name}: a TLS handshake that does not end")

    def _size(self, hello: bytes) -> int:
        found = tls.client_hello(hello)
        assert found is not None  # it was checked
        self._early_data = self._early_data or found.early_data
        return found.size

    async def _at_least(self, data: bytes, length: int) -> bytes:
        while len(data) < length:
            data += await self._stream.receive(CHUNK)
        return data
