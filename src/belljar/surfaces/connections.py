"""Limits on connections to an HTTP server, so that nobody without a key can use them all up.

Each connection takes a descriptor. Until a request with a key (or a token) arrives on it, a connection has `patience`
in all, whatever it does (nothing, half a request, not reading a refusal). If there are too many of these, the oldest is
closed. An admitted connection is closed only if it sends no next request for `idle`, reads nothing of its answer for
UNREAD_SECONDS, or is idle when there are too many. One that became a websocket is its application's.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
from collections.abc import Callable, MutableMapping
from typing import Any, ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER_SECONDS = 10.0
UNREAD_SECONDS = 300.0
"""Long: with a slow reader it may take minutes until the kernel's buffer takes more."""
ADMIT = "belljar.admit"
"""Key in the state of a request: the function to call when the key is right."""
BACKLOG = 64  # the most that are accepted at once, before the oldest is closed
_MOST = 256
_MOST_OF_ONE = 2048
_PLENTY = 1 << 20


def most_connections() -> int:
    """A quarter of our limit on descriptors; sandboxes and their links need some too."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST if soft == resource.RLIM_INFINITY else max(16, min(_MOST, soft // 4))


def raise_limit() -> None:
    """Let this process have as many descriptors as it may."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def most_admitted() -> int:
    """Half of our descriptors."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _PLENTY if soft == resource.RLIM_INFINITY else max(32, soft // 2)


def most_of_one() -> int:
    """How many requests of one client may be open: it leaves three quarters to the others."""
    return min(_MOST_OF_ONE, most_admitted() // 4)


def admit(scope: MutableMapping[str, Any]) -> None:
    """Who sent this request may be here. Does nothing for a websocket, or under another server."""
    scope.get("state", {}).get(ADMIT, _nothing)()


def _nothing() -> None:
    pass


class Guarded(H11Protocol):
    most: ClassVar[int] = most_connections()
    """Connections that are not admitted."""
    patience: ClassVar[float] = HEADER_SECONDS
    """How long one has until it is admitted."""
    idle: ClassVar[float] = HEADER_SECONDS
    """How long an admitted one may send no request."""
    waiting: ClassVar[dict[Guarded, None]] = {}
    """Connections that are not admitted yet, the oldest first."""
    admitted: ClassVar[dict[Guarded, None]] = {}

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.waiting[self] = None
        self._set_timer(self.patience, self.give_up)
        if len(self.waiting) > self.most:
            next(iter(self.waiting)).give_up()

    def connection_lost(self, exc: Exception | None) -> None:
        self.waiting.pop(self, None)
        self.admitted.pop(self, None)
        self._stop_timer()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        super().handle_events()
        if (
            self.scope is not None
        ):  # a request has arrived, and its task has not started yet
            self.scope["state"][ADMIT] = self.admit

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        self.waiting.pop(self, None)
        self.admitted.pop(self, None)
        self._stop_timer()
        super().handle_websocket_upgrade(event)

    def admit(self) -> None:
        self.waiting.pop(self, None)
        self.admitted.pop(self, None)
        if len(self.admitted) >= most_admitted():
            next(filter(Guarded._is_idle, self.admitted), self).give_up()
        self.admitted[self] = None  # behind those that were used before
        self._watch()

    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def on_response_complete(self) -> None:
        self._watch()
        super().on_response_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._watch()

    def give_up(self) -> None:
        self.waiting.pop(self, None)
        self.admitted.pop(self, None)
        self._stop_timer()
        self.transport.abort()

    def _watch(self, unsent_before: int = 0) -> None:
        """Start the timer of an admitted client: to read its answer, or to send the next request."""
        if self in self.waiting:
            return  # the timer of a connection that is not admitted is never extended
        self._stop_timer()
        answered = self.cycle.response_complete
        unsent = self.transport.get_write_buffer_size()
        if unsent and unsent == unsent_before:
            self.give_up()
        elif unsent and (answered or self.flow.write_paused):
            self._set_timer(UNREAD_SECONDS, self._watch, unsent)
        elif answered:
            self._set_timer(self.idle, self.give_up)

    def _set_timer(
        self, seconds: float, call: Callable[..., None], *arguments: int
    ) -> None:
        self._timer = self.loop.call_later(seconds, call, *arguments)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
