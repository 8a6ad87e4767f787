"""Checks every ClientHello of a client in a TLS tunnel, not only the first.

A server may ask for a second ClientHello (HelloRetryRequest), and some servers take the server's name from that one. So
each must name the allowed host, until a record comes that can only follow the hellos. A second hello may come in the
same packet as the first, in pieces, or after records that change nothing.
"""

from __future__ import annotations

import anyio
from anyio.abc import ByteStream

from belljar.network import tls
from belljar.network.tunnel import CHUNK, PartlyRead, checked_hello
from belljar.network.visit import Refused
from belljar.turns import Turns

UNENCRYPTED_MAX = 64  # records: each costs us more to check than the client to send; a handshake needs a handful


class HelloGuard(PartlyRead):
    """The client's stream, of which `first` was already read. A wrong hello breaks it; `refused` has the reason."""

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
