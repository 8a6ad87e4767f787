"""Shares an event loop's time: who has much to do waits for its turn, and in each turn of the loop a little is done.

A peer that is not trusted may send its bytes in tiny pieces over many connections, and each piece costs us far more to
handle than it cost to send. So whoever handles such bytes calls `next` before a piece of work, and in a long loop looks
at `is_used_up`. All of them together take SLICE of each turn, and everything else that the loop has to do (commands,
timers, other sessions) comes in between.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from time import perf_counter
from weakref import WeakKeyDictionary

SLICE = 0.0003
"""Seconds per turn of the loop. A short command waits for several turns."""


class Turns:
    """Of one event loop; `Turns.here()` is that of the running one."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[Callable[[], None]] = deque()
        self._until = 0.0
        self._begun = False
        """Whether somebody has worked in this turn already."""

    @classmethod
    def here(cls) -> Turns:
        loop = asyncio.get_running_loop()
        if loop not in _OF:
            _OF[loop] = cls(loop)
        return _OF[loop]

    @property
    def is_used_up(self) -> bool:
        """Whether who works now should stop, and call `next`."""
        return perf_counter() >= self._until

    async def next(self) -> None:
        """Wait until there is time to work: at once, if nobody waits and this turn's time is not used up."""
        if self._is_free():
            return
        turn: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append(partial(wake, turn))
        await turn

    def soon(self, work: Callable[[], None]) -> None:
        """Call `work` in this turn if there is time, else in a later one."""
        if self._is_free():
            work()
        else:
            self._waiting.append(work)

    def _is_free(self) -> bool:
        if not self._begun:
            self._begin()
            return True
        return not self._waiting and not self.is_used_up

    def _begin(self) -> None:
        self._begun = True
        self._until = perf_counter() + SLICE
        self._loop.call_soon(self._end)

    def _end(self) -> None:
        """The next turn has come: it is for the first who waits."""
        self._begun = False
        if self._waiting:
            self._begin()
            self._waiting.popleft()()


def wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


_OF: WeakKeyDictionary[asyncio.AbstractEventLoop, Turns] = WeakKeyDictionary()
