"""A pool at a service: sessions that are opened ahead, each used once. `Pool(host=belljar.connect(…))` makes one."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Never, Self, Unpack

from belljar.errors import BelljarError, UsageError
from belljar.options import known, whole
from belljar.remote.box import RemoteSession
from belljar.session.options import ClaimOptions
from belljar.tasks import see_through

if TYPE_CHECKING:
    from belljar.host import FarHost

RETRY_SECONDS = 1.0  # pause after a session could not be opened
MOST_WAITING = 1000
_NOT_OPEN = "this pool is not open; write `async with belljar.Pool(...) as pool:`"


class RemotePool:
    """Sessions of one kind that are open already. What the service lets a key have, its quota says."""

    def __init__(
        self, host: FarHost, make: Callable[..., RemoteSession], size: int
    ) -> None:
        whole("size", size, 0, MOST_WAITING)
        make()  # raises for wrong options now, not at the first claim
        self.host = host
        self.size = size
        self._make = make
        self._ready: deque[RemoteSession] = deque()
        self._filling: set[asyncio.Task[None]] = set()
        self._change = asyncio.Event()
        self._failure: BelljarError | None = None
        self._is_open = False

    async def __aenter__(self) -> Self:
        self._is_open = True
        self._fill()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_open = False
        self._change.set()
        await see_through(self._end_all())

    def __enter__(self) -> Never:
        raise UsageError(
            "a Pool is asynchronous: write `async with`, or use belljar.sync.Pool"
        )

    def __exit__(self, *_: object) -> None: ...

    async def _end_all(self) -> None:
        for task in self._filling:
            task.cancel()
        await asyncio.gather(*self._filling, return_exceptions=True)
        await asyncio.gather(
            *(box.close() for box in self._ready), return_exceptions=True
        )
        self._ready.clear()

    @property
    def waiting(self) -> int:
        """Sessions that could be claimed now."""
        return len(self._ready)

    async def ready(self) -> None:
        """Wait until the pool is full: `await pool.ready()`."""
        while self._is_open and len(self._ready) < self.size:
            if self._failure is not None:
                raise self._failure
            self._change.clear()
            await self._change.wait()
        if not self._is_open:
            raise UsageError(_NOT_OPEN)

    @asynccontextmanager
    async def session(
        self, **options: Unpack[ClaimOptions]
    ) -> AsyncIterator[RemoteSession]:
        """A session of its own, ended afterwards. With another policy or variables it is opened now."""
        known(options, ClaimOptions.__annotations__.keys(), "Pool.session")
        if not self._is_open:
            raise UsageError(_NOT_OPEN)
        box = self._claimed() if not options else None
        if box is None:
            box = await self._make(**options).open()
        try:
            yield box
        finally:
            await box.close()

    def _claimed(self) -> RemoteSession | None:
        box = next((box for box in iter(self._taken, None) if box.is_open), None)
        self._fill()
        return box

    def _taken(self) -> RemoteSession | None:
        return self._ready.popleft() if self._ready else None

    def _fill(self) -> None:
        while self._is_open and len(self._ready) + len(self._filling) < self.size:
            task = asyncio.get_running_loop().create_task(self._add())
            self._filling.add(task)
            task.add_done_callback(self._added)

    async def _add(self) -> None:
        try:
            self._ready.append(await self._make().open())
            self._failure = None
        except BelljarError as failure:
            self._failure = failure
            self._change.set()
            await asyncio.sleep(RETRY_SECONDS)

    def _added(self, task: asyncio.Task[None]) -> None:
        self._filling.discard(task)
        self._change.set()
        if not task.cancelled() and task.exception() is None:
            self._fill()


def of_host(
    host: FarHost, workspace: Any, size: int, options: dict[str, Any]
) -> RemotePool:
    def make(**more: Any) -> RemoteSession:
        box: RemoteSession = host.session(workspace, **{**options, **more})
        return box

    return RemotePool(host, make, size)
