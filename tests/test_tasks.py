"""A cancellation at any moment leaves nothing half done."""

import asyncio
import threading

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from belljar.tasks import beside, made_in_thread, see_through


async def test_see_through_finishes_its_work_before_a_cancellation() -> None:
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


async def test_made_in_thread_undoes_its_result_when_cancelled() -> None:
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


async def test_an_error_in_the_block_is_raised_without_a_group() -> None:
    with pytest.raises(ValueError, match="its own"):
        await _fails_in_company()
