"""How those who have much to do share an event loop's time."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial

import anyio
import anyio.lowlevel
import pytest

from belljar import turns
from belljar.turns import Turns


@pytest.fixture
def no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every piece of work uses its turn up."""
    monkeypatch.setattr(turns, "SLICE", 0.0)


@pytest.mark.usefixtures("no_time")
async def test_one_works_in_each_turn_of_the_loop_and_all_get_theirs() -> None:
    shared, turn, worked_in, pieces = Turns.here(), 0, Counter[int](), Counter[int]()

    def count() -> None:
        nonlocal turn
        turn += 1
        if len(pieces) < 20 or min(pieces.values()) < 10:
            asyncio.get_running_loop().call_soon(count)

    async def work(who: int) -> None:
        for _ in range(10):
            await shared.next()
            worked_in[turn] += 1
            pieces[who] += 1

    count()
    async with anyio.create_task_group() as tasks:
        for who in range(20):
            tasks.start_soon(work, who)
    assert max(worked_in.values()) <= 2, (
        "one that waited, and one that came when nobody did"
    )
    assert set(pieces.values()) == {10}


async def test_nobody_waits_while_there_is_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turns, "SLICE", 3600.0)
    shared, done = Turns.here(), list[int]()
    for number in range(3):
        await shared.next()
        shared.soon(partial(done.append, number))
    assert done == [0, 1, 2]


@pytest.mark.usefixtures("no_time")
async def test_who_is_cancelled_while_waiting_holds_up_nobody() -> None:
    shared = Turns.here()
    await shared.next()
    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(shared.next)
        await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    with anyio.fail_after(60):
        await shared.next()


@pytest.mark.usefixtures("no_time")
async def test_work_that_fails_holds_up_nobody() -> None:
    shared, failures = Turns.here(), list[object]()

    def fails() -> None:
        raise ZeroDivisionError

    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: failures.append(context["exception"])
    )
    await shared.next()
    shared.soon(fails)
    with anyio.fail_after(60):
        await shared.next()
    assert isinstance(failures[0], ZeroDivisionError)
