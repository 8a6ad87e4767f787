"""Sandboxes that are ready before anybody asks (`--warm N`), for the options that were asked for last.

After a session in a workspace of its own another one is made like it, stored nowhere. Who asks for the same options in
the same tenant gets it, with all that is left to do being a row in the database. What nobody asks for ends.
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


class Warm:
    def __init__(self, server: Server, most: int) -> None:
        self._server, self._most = server, most
        self._ready: list[tuple[str, LiveSession, float]] = []
        """What it is for, oldest first."""
        self._making: dict[asyncio.Task[None], str] = {}

    def take(self, session: LiveSession) -> None:
        """Give the session a sandbox that is ready, if there is one for it. Before it is stored: its id changes."""
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
        if len(self._ready) + len(self._making) >= self._most:
            if not others:
                return
            self._ready.remove(others[0])
            self._start("", self._drop(others[0][1]))
        self._start(key, self._make(key, session))

    async def sweep(self) -> None:
        for each in [
            each for each in self._ready if time.monotonic() - each[2] > LONGEST_WAIT
        ]:
            self._ready.remove(each)
            await self._drop(each[1])

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

    async def _make(self, key: str, like: LiveSession) -> None:
        data = {
            **copy.deepcopy(like.data),
            "id": new_session_id(),
            "name": None,
            "metadata": {},
        }
        while like.state not in (
            "ready",
            "ended",
        ):  # a start that somebody waits for comes first
            await like.changed.wait(5)
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
        else:
            self._ready.append((key, ahead, time.monotonic()))

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
