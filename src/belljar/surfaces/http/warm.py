"""Sandboxes that are ready before anybody asks (`--warm N`), for the options that were asked for last.

After a session in a workspace of its own others are made like it, stored nowhere, until N are ready. Who asks for the
same options in the same tenant gets one, with all that is left to do being a row in the database. Other options take
the place of the oldest. What nobody asks for ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
import shutil
import time
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from anyio import to_thread

from belljar.errors import BelljarError
from belljar.sandbox.rundir import new_session_id
from belljar.surfaces.http.sessions import LiveSession

if TYPE_CHECKING:
    from belljar.surfaces.http.server import Server

LONGEST_WAIT = 600.0  # far less than a sandbox outlives its server
AT_ONCE = 2  # that are made: a start that somebody waits for comes first
CALM_SECONDS = 0.5  # without a new session, before more are made while some are ready
MOST_CALMS = 10  # that are waited for


class Warm:
    def __init__(self, server: Server, most: int) -> None:
        self._server, self._most = server, most
        self._ready: list[tuple[str, LiveSession, float]] = []
        """What it is for, oldest first."""
        self._asked = 0.0
        """When somebody asked for a session last."""
        self._making: dict[asyncio.Task[None], str] = {}
        self._unwanted: set[asyncio.Task[Any]] = set()
        """Those of `_making` whose tenant has ended meanwhile."""
        server.metrics.pool_ready.set_function(lambda: len(self._ready))

    def take(self, session: LiveSession) -> None:
        """Give the session a sandbox that is ready, if there is one for it. Before it is stored: its id changes."""
        self._asked = time.monotonic()
        if not self._most or not _can_be_made_ahead(session):
            return
        key = _key(session)
        while found := next((each for each in self._ready if each[0] == key), None):
            self._ready.remove(found)
            ahead = found[1]
            if ahead.box is not None and ahead.box.is_open:
                session.data["id"], session.box, ahead.stands_for = (
                    ahead.id,
                    ahead.box,
                    session,
                )
                self._server.metrics.pool_hits.inc()
                return
            self._start(key, self._drop(ahead))
        self._server.metrics.pool_misses.inc()

    def want(self, session: LiveSession) -> None:
        """The next session may be like this one."""
        if not self._most or not _can_be_made_ahead(session):
            return
        key = _key(session)
        others = [each for each in self._ready if each[0] != key]
        if self._places <= 0 and others:
            self._ready.remove(others[0])
            self._start("", self._drop(others[0][1]))
        self._fill(key, session)

    def _fill(self, key: str, like: LiveSession) -> None:
        while len(self._making) < AT_ONCE and self._places > 0:
            self._start(key, self._make(key, like))

    @property
    def _places(self) -> int:
        """How many more there may be."""
        return self._most - len(self._ready) - len(self._making)

    async def sweep(self) -> None:
        for each in [
            each for each in self._ready if time.monotonic() - each[2] > LONGEST_WAIT
        ]:
            self._ready.remove(each)
            await self._drop(each[1])

    async def forget(self, tenant: str) -> None:
        """It has ended. What is being made for it ends, too: a later tenant of its name must not get that."""
        making = [
            task
            for task, key in self._making.items()
            if key and json.loads(key)[0] == tenant
        ]
        self._unwanted.update(making)
        await asyncio.gather(*making, return_exceptions=True)
        gone = [each for each in self._ready if each[1].tenant == tenant]
        self._ready = [each for each in self._ready if each not in gone]
        await asyncio.gather(*(self._drop(each[1]) for each in gone))

    async def close(self) -> None:
        for task in self._making:
            task.cancel()
        await asyncio.gather(*self._making, return_exceptions=True)
        await asyncio.gather(*(self._drop(each[1]) for each in self._ready))
        self._ready.clear()

    def _start(self, key: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._making[task] = key
        task.add_done_callback(self._making.pop)
        task.add_done_callback(self._unwanted.discard)

    async def _make(self, key: str, like: LiveSession) -> None:
        """Make one like it, and then others while there is room."""
        while like.state not in ("ready", "ended"):
            await like.changed.wait(5)
        await self._calm()
        is_made = await self._made(key, like)
        while is_made and self._places >= 0:  # this task counts as one being made
            await self._calm()
            is_made = await self._made(key, like)

    async def _calm(self) -> None:
        """Leave the machine to a burst of sessions, as long as some are ready for it."""
        for _ in range(MOST_CALMS):
            if not self._ready or time.monotonic() - self._asked > CALM_SECONDS:
                return
            await asyncio.sleep(CALM_SECONDS)

    @property
    def _is_unwanted(self) -> bool:
        return asyncio.current_task() in self._unwanted

    async def _made(self, key: str, like: LiveSession) -> bool:
        if self._is_unwanted:
            return False
        data = {
            **copy.deepcopy(like.data),
            "id": new_session_id(),
            "name": None,
            "metadata": {},
        }
        row = {
            "session": data,
            "path": "",
            "ends_at": None,
            "remembered": {},
            "cause": ["", "", ""],
        }
        ahead = LiveSession(self._server, row)
        try:
            ahead.box = await ahead.made()
        except BelljarError as error:
            self._server.report(error)
            await self._drop(ahead)
            return False
        if self._is_unwanted:
            await self._drop(ahead)
            return False
        self._ready.append((key, ahead, time.monotonic()))
        return True

    async def _drop(self, ahead: LiveSession) -> None:
        with contextlib.suppress(BelljarError):
            if ahead.box is not None:
                await ahead.box.stop()
        await to_thread.run_sync(
            lambda: shutil.rmtree(ahead.workspace, ignore_errors=True)
        )


def _can_be_made_ahead(session: LiveSession) -> bool:
    """It begins with nothing of its own."""
    return all(session.data[name] is None for name in ("workspace", "from", "snapshot"))


def _key(session: LiveSession) -> str:
    options = {**session.wanted().as_dict(), "workspace": None, "id": None}
    return json.dumps([session.tenant, options], sort_keys=True, default=str)
