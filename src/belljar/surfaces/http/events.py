"""What happens, for whoever follows it (`GET /v1/events`).

Each change of a session, command or approval is published as the whole object. A follower gets a snapshot first, then
the changes; a burst is merged, so that it sees the last state of each object at most a quarter of a second later. A
follower that comes back with the id of the last event it saw gets what it missed, as long as that is remembered.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

REMEMBERED = 5000
MERGE_SECONDS = 0.25


class Signal:
    """Wakes all who wait for the next change of something."""

    def __init__(self) -> None:
        self._waiters: set[asyncio.Future[None]] = set()

    def fire(self) -> None:
        waiters, self._waiters = self._waiters, set()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self, timeout: float | None = None) -> bool:
        """False: nothing happened for so long."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            async with asyncio.timeout(timeout):
                await waiter
        except TimeoutError:
            return False
        finally:
            self._waiters.discard(waiter)
        return True


@dataclass(frozen=True)
class Change:
    number: int
    topic: str
    kind: str
    """put or remove."""
    id: str
    item: Any
    tenant: str
    path: str
    """Of the key that made the thing."""

    @property
    def data(self) -> dict[str, Any]:
        return (
            {"kind": "put", "item": self.item}
            if self.kind == "put"
            else {"kind": "remove", "id": self.id}
        )


class Events:
    def __init__(self) -> None:
        self._boot = secrets.token_hex(4)
        self._number = 0
        self._past: deque[Change] = deque(maxlen=REMEMBERED)
        self._followers: set[Follower] = set()
        self.listeners: list[Callable[[Change], None]] = []
        """Called with each change that happens here."""

    def put(self, topic: str, item: Any, tenant: str, path: str, id: str = "") -> None:
        self._publish(topic, "put", id or str(item["id"]), item, tenant, path)

    def remove(self, topic: str, id: str, tenant: str, path: str) -> None:
        self._publish(topic, "remove", id, None, tenant, path)

    def repeat(
        self, topic: str, kind: str, id: str, item: Any, tenant: str, path: str
    ) -> None:
        """What happened at another server."""
        self._keep(self._change(topic, kind, id, item, tenant, path))

    def _publish(
        self, topic: str, kind: str, id: str, item: Any, tenant: str, path: str
    ) -> None:
        change = self._change(topic, kind, id, item, tenant, path)
        self._keep(change)
        for listener in self.listeners:
            listener(change)

    def _change(
        self, topic: str, kind: str, id: str, item: Any, tenant: str, path: str
    ) -> Change:
        self._number += 1
        return Change(self._number, topic, kind, id, item, tenant, path)

    def _keep(self, change: Change) -> None:
        self._past.append(change)
        for follower in self._followers:
            follower.take(change)

    @property
    def now(self) -> str:
        """The id of the last event."""
        return f"{self._boot}-{self._number}"

    def id_of(self, number: int) -> str:
        return f"{self._boot}-{number}"

    def missed(self, id: str, wanted: Callable[[Change], bool]) -> list[Change] | None:
        """What came after the event `id`; None: not known any more."""
        boot, _, number = id.partition("-")
        if boot != self._boot or not number.isdigit() or int(number) > self._number:
            return None
        oldest = self._past[0].number if self._past else self._number + 1
        if int(number) + 1 < oldest:
            return None
        return [
            change
            for change in self._past
            if change.number > int(number) and wanted(change)
        ]

    def follow(self, wanted: Callable[[Change], bool]) -> Follower:
        follower = Follower(self, wanted)
        self._followers.add(follower)
        return follower

    def leave(self, follower: Follower) -> None:
        self._followers.discard(follower)


class Follower:
    """Changes that one reader has not been sent yet: of each object only the last."""

    def __init__(self, events: Events, wanted: Callable[[Change], bool]) -> None:
        self._events, self._wanted = events, wanted
        self._waiting: dict[tuple[str, str], Change] = {}
        self._news = Signal()

    def take(self, change: Change) -> None:
        if self._wanted(change):
            self._waiting.pop((change.topic, change.id), None)
            self._waiting[change.topic, change.id] = change
            self._news.fire()

    async def changes(self, timeout: float) -> list[Change]:
        """The next changes, in order; empty after `timeout` seconds without any."""
        if not self._waiting:
            await self._news.wait(timeout)
        waiting, self._waiting = self._waiting, {}
        return list(waiting.values())

    def close(self) -> None:
        self._events.leave(self)
