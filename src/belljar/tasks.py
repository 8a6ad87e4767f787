"""Work that is never cancelled, work in a thread that can be undone, tasks beside a block, a few tasks at once.

A cancellation may arrive at any await, from anyio or from asyncio, and a second one while the first is being handled.
Work that must not be left half done goes through this module.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from concurrent.futures import Future
from contextlib import asynccontextmanager, nullcontext
from typing import Any, TypeVar

import anyio
from anyio.abc import TaskGroup

T = TypeVar("T")

UNDO_SECONDS = 3.0  # how long a cancelled caller waits for `undo`; after that it goes on in the background


async def see_through(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` to its end without ever cancelling it; raise a cancellation that came meanwhile afterwards."""
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
            task.exception()  # read so that asyncio does not log it; the cancellation takes precedence
        raise cancelled
    return task.result()


async def made_in_thread(
    make: Callable[[], T],
    undo: Callable[[T], object],
    limiter: anyio.CapacityLimiter | None = None,
) -> T:
    """Call `make` in a thread and return its result. If the caller is cancelled meanwhile, the thread calls `undo`."""
    made: Future[T] = Future()
    accepted: Future[bool] = Future()
    """False: the caller was cancelled."""
    finished: Future[None] = Future()

    def work() -> None:
        try:
            made.set_result(make())
            if not accepted.result():
                undo(made.result())
        except BaseException as error:
            if not made.done():
                made.set_exception(error)
        finally:
            finished.set_result(None)

    async with limiter or nullcontext():
        threading.Thread(target=work, name="belljar-launch", daemon=True).start()
        try:
            result = await asyncio.shield(asyncio.wrap_future(made))
        except asyncio.CancelledError:
            accepted.set_result(False)
            await see_through(_wait_for_undo(finished))
            raise
        except BaseException:
            accepted.set_result(False)
            raise
        accepted.set_result(True)
        return result


async def _wait_for_undo(finished: Future[None]) -> None:
    await asyncio.wait([asyncio.wrap_future(finished)], timeout=UNDO_SECONDS)


@asynccontextmanager
async def beside() -> AsyncIterator[TaskGroup]:
    """A task group that is cancelled when the block ends; an exception of the block or a task is raised unwrapped."""
    failure: Exception | None = None
    try:
        async with anyio.create_task_group() as tasks:
            try:
                yield tasks
            except Exception as error:  # kept for after the group, which would wrap it in an ExceptionGroup
                failure = error
            tasks.cancel_scope.cancel()
    except ExceptionGroup as group:
        failure = failure or group.exceptions[0]
    if failure is not None:
        raise failure


async def a_few_at_once(
    work: Callable[[T], Awaitable[None]], items: Iterable[T], most: int = 8
) -> None:
    """Await `work` for each item, `most` at once. After a failure no more begin; the first is raised unwrapped."""
    remaining, failures = iter(items), list[Exception]()

    async def worker() -> None:
        for item in remaining:
            try:
                await work(item)
            except Exception as error:  # kept for after the group, which would wrap it in an ExceptionGroup
                failures.append(error)
            if failures:
                return

    async with anyio.create_task_group() as tasks:
        for _ in range(most):
            tasks.start_soon(worker)
    if failures:
        raise failures[0]
