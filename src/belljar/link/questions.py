"""What was asked of the init and not answered yet.

An answer needs its question: one that nobody asked for, or that is longer than was asked for, is a `FrameError`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from belljar.errors import UsageError
from belljar.link.frames import FrameError, From

TAGS = 256  # reads of one command that can wait at once, each with a tag that comes back with its answer

Key = tuple[From, int, int]
"""Kind of the answer, command, tag."""


class Questions:
    def __init__(self) -> None:
        self._asked: dict[Key, deque[tuple[asyncio.Future[Any], int]]] = {}

    def __bool__(self) -> bool:
        return bool(self._asked)

    def __contains__(self, kind: From) -> bool:
        """Whether one that is no command's waits."""
        return (kind, 0, 0) in self._asked

    def ask(self, kind: From, id: int = 0, tag: int = 0, *, most: int = 0) -> asyncio.Future[Any]:
        """The answer to come; `most`: so many bytes may be in it."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._asked.setdefault((kind, id, tag), deque()).append((future, most))
        return future

    def free_tag(self, kind: From, id: int) -> int:
        tag = next((tag for tag in range(TAGS) if (kind, id, tag) not in self._asked), None)
        if tag is None:
            raise UsageError(f"{TAGS} reads of one shell are waiting already; await some of them first")
        return tag

    def answer(self, value: Any, kind: From, id: int = 0, tag: int = 0, *, size: int = 0) -> None:
        queue = self._asked.get((kind, id, tag))
        if not queue or size > queue[0][1]:
            raise FrameError("an answer to no question")
        future, _ = queue.popleft()
        if not queue:
            del self._asked[kind, id, tag]
        if not future.done():
            future.set_result(value)

    def fail(self, error: Exception, id: int | None = None) -> bool:
        """No answer will come, of all or of one command; False where none was waited for."""
        keys = [key for key in self._asked if id is None or key[1] == id != 0]
        for future, _ in (each for key in keys for each in self._asked.pop(key)):
            if not future.done():
                future.set_exception(error)
                future.exception()  # nobody may be left to look at it
        return bool(keys)
