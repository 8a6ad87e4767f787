"""The proxy's connection to the host of a request."""

from __future__ import annotations

import select
from typing import TYPE_CHECKING

import anyio
import h11
from anyio.abc import ByteStream, SocketAttribute

from belljar.network.tunnel import Meter

if TYPE_CHECKING:
    from belljar.network.gate import Target

HEAD_MAX = 32 << 10


class Upstream:
    def __init__(self, target: Target, stream: ByteStream, address: str) -> None:
        self.target = target
        self.stream = stream
        self.address = address
        self.http = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_MAX)
        self._unsent = bytearray()

    @property
    def is_idle(self) -> bool:
        """Whether it can take another request: the last one is done, and the server has not hung up since."""
        return (
            self.http.our_state is h11.DONE
            and self.http.their_state is h11.DONE
            and not self._hung_up()
        )

    def _hung_up(self) -> bool:
        poll = select.poll()
        poll.register(
            self.stream.extra(SocketAttribute.raw_socket).fileno(), select.POLLRDHUP
        )
        return bool(poll.poll(0))

    def add(self, event: h11.Event) -> None:
        """To be sent with the next `flush`: a body may come in pieces of a byte."""
        self._unsent += self.http.send(event) or b""

    async def flush(self, meter: Meter) -> None:
        data, self._unsent = bytes(self._unsent), bytearray()
        if data:
            meter.sent(len(data))
            await self.stream.send(data)

    async def receive(self, most: int, meter: Meter) -> None:
        try:
            data = await self.stream.receive(most)
        except anyio.EndOfStream:
            data = b""
        meter.received(len(data))
        self.http.receive_data(data)
