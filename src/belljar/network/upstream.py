"""The proxy's connection to the host of a request."""

from __future__ import annotations

import select
from typing import TYPE_CHECKING

import anyio
import h11
from anyio.abc import ByteStream, SocketAttribute

from belljar.network.tunnel import CHUNK, Meter

if TYPE_CHECKING:
    from belljar.network.door import Target

HEAD_MAX = 32 << 10


class Upstream:
    def __init__(self, target: Target, stream: ByteStream, address: str) -> None:
        self.target, self.stream, self.address = target, stream, address
        self.http = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_MAX)

    @property
    def is_idle(self) -> bool:
        """Whether it can take another request: the last one is done, and the server has not hung up since."""
        return self.http.our_state is h11.DONE and self.http.their_state is h11.DONE and not self._hung_up()

    def _hung_up(self) -> bool:
        poll = select.poll()
        poll.register(self.stream.extra(SocketAttribute.raw_socket).fileno(), select.POLLRDHUP)
        return bool(poll.poll(0))

    async def send(self, event: h11.Event, meter: Meter) -> None:
        if data := self.http.send(event):
            meter.sent(len(data))
            await self.stream.send(data)

    async def next_event(self, meter: Meter) -> object:
        while (event := self.http.next_event()) is h11.NEED_DATA:
            try:
                data = await self.stream.receive(CHUNK)
            except anyio.EndOfStream:
                data = b""
            meter.received(len(data))
            self.http.receive_data(data)
        return event
