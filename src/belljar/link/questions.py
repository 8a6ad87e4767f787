"""Questions to the init that are not answered yet.

An answer without a question, or one that is longer than the question allows, is a `FrameError`. A question that is
not answered in time is overdue, whatever else the init says meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from belljar.errors import UsageError
from belljar.link.frames import FrameError, From

TAGS = 256  # reads of one command that can wait at once; the answer carries the question's tag

Key = tuple[From, int, int]
"""Kind of the answer, id of the command, tag."""


class Questions:
    def __init__(self) -> None:
        self._waiting: dict[Key, deque[tuple[asyncio.Future[Any], int, float]]] = {}
        self._now = 0.0

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def __contains__(self, kind: From) -> bool:
        """Whether a question of this kind that belongs to no command is waiting."""
        return (kind, 0, 0) in self._waiting

    def ask(
        self, kind: From, id: int = 0, tag: int = 0, *, most: int = 0, wait: float = 0.0
    ) -> asyncio.Future[Any]:
        """A future for the answer, which may hold at most `most` bytes and be given after `wait` seconds."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault((kind, id, tag), deque()).append(
            (future, most, self._now + wait)
        )
        return future

    def overdue(self, passed: float, most: float) -> bool:
        """So many more seconds have passed: whether a question waits for more than `most`."""
        self._now += passed
        return any(self._now - queue[0][2] > most for queue in self._waiting.values())

    def free_tag(self, kind: From, id: int) -> int:
        tag = next(
            (tag for tag in range(TAGS) if (kind, id, tag) not in self._waiting), None
        )
        if tag is None:
            raise UsageError(
                f"{TAGS} reads of one shell are waiting already; await some of them first"
            )
        return tag

    def answer(
        self, value: Any, kind: From, id: int = 0, tag: int = 0, *, size: int = 0
    ) -> None:
        queue = self._waiting.get((kind, id, tag))
        if not queue or size > queue[0][1]:
            raise FrameError("an answer without a question")
        future, *_ = queue.popleft()
        if not queue:
            del self._waiting[kind, id, tag]
        if not future.done():
            future.set_result(value)

    def refuse(self, error: Exception, id: int) -> None:
        """Fail the oldest question about this command, if any: the init refuses at once and in order. What is no
        question (a signal) has no answer either."""
        asked = [
            (queue[0][2], key)
            for key, queue in self._waiting.items()
            if key[1] == id != 0
        ]
        if not asked:
            return
        _, key = min(asked)
        future, *_ = self._waiting[key].popleft()
        if not self._waiting[key]:
            del self._waiting[key]
        _fail(future, error)

    def fail(self, error: Exception, id: int | None = None) -> bool:
        """Fail the questions of one command, or all of them; returns False if there were none."""
        keys = [key for key in self._waiting if id is None or key[1] == id != 0]
        for future, *_ in (
            question for key in keys for question in self._waiting.pop(key)
        ):
            _fail(future, error)
        return bool(keys)


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
        future.exception()  # marks it as retrieved, in case nobody awaits it any more
