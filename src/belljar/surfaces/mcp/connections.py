"""Connections to the HTTP server that nobody can hold without asking for anything.

Without the token a connection costs us a descriptor until its request is refused, so one that sends its request slowly,
or never, is closed after HEADER_SECONDS; when there are too many, the one that has kept us waiting longest makes room.
A client that does send its request is never closed for others.
"""

from __future__ import annotations

import asyncio
import resource
from typing import Any, ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER_SECONDS = 10.0
BACKLOG = 64  # accepted in one go, before the oldest can make room
_MOST = 256


def most_connections() -> int:
    """A quarter of the descriptors that we may have; the sandbox and its link need some too."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST if soft == resource.RLIM_INFINITY else max(16, min(_MOST, soft // 4))


class Guarded(H11Protocol):
    most: ClassVar[int] = most_connections()
    waiting: ClassVar[dict[Guarded, None]] = {}
    """Those whose request we wait for, the longest waiting first."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_request()
        if len(self.connections) > self.most:
            next(iter(self.waiting)).give_up()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        super().handle_events()
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_waiting()

    def on_response_complete(self) -> None:
        self._await_request()
        super().on_response_complete()

    def give_up(self) -> None:
        self._stop_waiting()
        self.transport.abort()

    def _await_request(self) -> None:
        self._stop_waiting()
        self.waiting[self] = None
        self._timer = self.loop.call_later(HEADER_SECONDS, self.give_up)

    def _stop_waiting(self) -> None:
        self.waiting.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
