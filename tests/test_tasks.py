"""What must not be left half done is not, whenever a cancellation comes."""

import asyncio
import threading

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from belljar.tasks import beside, made_in_thread, see_through


async def test_work_is_seen_through_and_the_cancellation_comes_after() -> None:
    done = anyio.Event()

    async def work() -> None:
        await anyio.sleep(0.01)
        done.set()

    task = asyncio.create_task(see_through(work()))
    await anyio.lowlevel.checkpoint()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done.is_set()


async def test_what_a_cancelled_caller_had_made_is_undone() -> None:
    begun, go_on = threading.Event(), threading.Event()
    undone: list[str] = []

    def make() -> str:
        begun.set()
        go_on.wait(30)
        return "made"

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made_in_thread, make, undone.append)
        await anyio.to_thread.run_sync(begun.wait)
        tasks.cancel_scope.cancel()
        go_on.set()
    assert undone == ["made"]


async def _fails_in_company() -> None:
    async with beside() as tasks:
        tasks.start_soon(anyio.sleep_forever)
        raise ValueError("its own")


async def test_an_error_of_the_block_comes_out_as_it_is() -> None:
    with pytest.raises(ValueError, match="its own"):
        await _fails_in_company()
