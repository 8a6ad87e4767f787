"""Four things that are easy to get wrong about tasks, each done once.

A cancellation may come at any await, from anyio or straight from asyncio, also a second time while the first is being
dealt with. What must not be left half done goes through here.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from concurrent.futures import Future
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import anyio
from anyio.abc import TaskGroup

T = TypeVar("T")

LEFT_BEHIND_SECONDS = 3.0  # how long a cancelled caller waits for what it began to be undone; then it happens beside us


async def see_through(work: Coroutine[Any, Any, T]) -> T:
    """The outcome of `work`, which is never cancelled; a cancellation meanwhile is raised when it is done."""
    task = asyncio.get_running_loop().create_task(work)
    cancelled: asyncio.CancelledError | None = None
    with anyio.CancelScope(shield=True):
        while not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError as error:
                cancelled = error
    if cancelled is not None:
        if not task.cancelled():
            task.exception()  # dropped: the cancellation goes first
        raise cancelled
    return task.result()


async def made_in_thread(
    make: Callable[[], T], undo: Callable[[T], object], limiter: anyio.CapacityLimiter | None = None
) -> T:
    """What `make` makes in a thread. A caller that is cancelled meanwhile leaves nothing: the thread undoes it."""
    if limiter is None:
        return await _made(make, undo)
    async with limiter:
        return await _made(make, undo)


async def _made(make: Callable[[], T], undo: Callable[[T], object]) -> T:
    made: Future[T] = Future()
    taken: Future[bool] = Future()
    """Whether the caller took it, or was cancelled."""
    over: Future[None] = Future()

    def work() -> None:
        try:
            made.set_result(make())
            if not taken.result():
                undo(made.result())
        except BaseException as error:
            if not made.done():
                made.set_exception(error)
        finally:
            over.set_result(None)

    threading.Thread(target=work, name="belljar-launch", daemon=True).start()
    try:
        found = await asyncio.shield(asyncio.wrap_future(made))
    except asyncio.CancelledError:
        taken.set_result(False)
        await see_through(_for_a_while(over))
        raise
    except BaseException:
        taken.set_result(False)
        raise
    taken.set_result(True)
    return found


async def _for_a_while(over: Future[None]) -> None:
    await asyncio.wait([asyncio.wrap_future(over)], timeout=LEFT_BEHIND_SECONDS)


@asynccontextmanager
async def beside() -> AsyncIterator[TaskGroup]:
    """A task group for company of the block: it ends with it, and an error of the block comes out as it is."""
    failure: Exception | None = None
    async with anyio.create_task_group() as tasks:
        try:
            yield tasks
        except Exception as error:  # carried past the group, which would wrap it
            failure = error
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure


async def a_few_at_once(work: Callable[[T], Awaitable[None]], items: Iterable[T], most: int = 8) -> None:
    """`work` for each of them; no more are begun after a failure, and the first comes out as it is."""
    waiting, failures = iter(items), list[Exception]()

    async def take() -> None:
        for item in waiting:
            try:
                await work(item)
            except Exception as error:  # carried past the group, which would wrap it
                failures.append(error)
            if failures:
                return

    async with anyio.create_task_group() as tasks:
        for _ in range(most):
            tasks.start_soon(take)
    if failures:
        raise failures[0]
