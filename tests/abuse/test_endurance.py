"""Endurance: many sandboxes in a row, many at once, commands that end in races, and clocks that jump."""

from __future__ import annotations

import time
from pathlib import Path

import anyio
import pytest
from tests.abuse.conftest import (
    PROMPT,
    Victim,
    nothing_left,
    number,
    warmed_up,
    well_formed,
)

import belljar
from belljar.engines.docker.engine import DockerEngine


async def test_a_timeout_that_races_the_exit_gives_one_well_formed_result(
    victim: Victim,
) -> None:
    """`make test` runs 200 commands that end just as their time runs out; 2,000 at full length."""
    count = number(200, 2000)
    causes: dict[str, int] = {}

    async def race(n: int) -> None:
        result = await victim.run(
            ["sleep", "0.05"], timeout=0.04 + 0.02 * (n % 50) / 50
        )
        assert (result.cause, result.exit_code) in {("exited", 0), ("timeout", 124)}
        causes[result.cause] = causes.get(result.cause, 0) + 1

    for start in range(0, count, 10):
        async with anyio.create_task_group() as tasks:
            for n in range(start, start + 10):
                tasks.start_soon(race, n)
    print(causes)
    assert sum(causes.values()) == count


async def test_an_interrupt_or_kill_that_races_the_exit_gives_a_well_formed_result(
    victim: Victim,
) -> None:
    for n in range(60):
        async with victim.box.stream(["sleep", "0.01"]) as run:
            await anyio.sleep(0.0005 * (n % 30))
            run.kill() if n % 2 else run.interrupt()
            async for _ in run:
                pass
        assert run.result is not None
        well_formed(run.result)


async def test_many_sandboxes_in_a_row_leave_nothing_behind(
    base_image: str, workspace: Path, engine: DockerEngine
) -> None:
    """20 sandboxes in `make test`, 1,000 at full length."""
    before = await warmed_up(workspace, engine)
    for n in range(number(20, 1000)):
        result = await belljar.run(
            f"echo {n} > /tmp/n; cat /tmp/n", workspace, timeout=PROMPT
        )
        assert result.stdout == f"{n}\n"
    await nothing_left(engine, before)


async def test_many_sandboxes_of_a_pool_are_each_fresh_and_leave_nothing_behind(
    base_image: str, workspace: Path, engine: DockerEngine
) -> None:
    """20 sandboxes in `make test`, 1,000 at full length."""
    before = await warmed_up(workspace, engine)
    async with belljar.Pool(workspace, size=4) as pool:
        for n in range(number(20, 1000)):
            async with pool.session() as box:
                assert (
                    await box.run("ls /tmp | wc -l; touch /tmp/used", timeout=PROMPT)
                ).stdout == "0\n", n
    await nothing_left(engine, before)


async def test_many_sessions_at_once_each_get_their_own_output(
    base_image: str, workspace: Path, engine: DockerEngine
) -> None:
    """16 sessions in `make test`, 200 at full length."""
    count = number(16, 200)
    before = await warmed_up(workspace, engine)
    answers: dict[int, str] = {}
    all_open = anyio.Event()
    limits = belljar.Limits(memory="64m", pids=32, cpus=0.5)

    async def one(n: int) -> None:
        async with belljar.Session(workspace, limits=limits) as box:
            first = await box.run(f"echo {n}", timeout=60)
            answers[n] = first.stdout
            if len(answers) == count:
                all_open.set()
            await all_open.wait()
            assert (await box.run(f"echo {n}", timeout=60)).stdout == first.stdout

    with anyio.fail_after(60 + 3 * count):
        async with anyio.create_task_group() as tasks:
            for n in range(count):
                tasks.start_soon(one, n)
    assert answers == {n: f"{n}\n" for n in range(count)}
    await nothing_left(engine, before)


@pytest.mark.parametrize("jump", [-86400.0, 86400.0, -3e9])
async def test_a_wall_clock_that_jumps_moves_no_deadline(
    victim: Victim, monkeypatch: pytest.MonkeyPatch, jump: float
) -> None:
    """Deadlines, leases and heartbeats use the monotonic clock, here and in the init. Only dates use the wall clock."""
    real, jumped = time.time, False
    monkeypatch.setattr(time, "time", lambda: real() + (jump if jumped else 0.0))
    async with victim.box.stream(
        ["bash", victim.script("echo on; sleep 1; echo off")], timeout=60
    ) as run:
        async for _ in run:
            jumped = True
    assert run.result is not None
    assert (run.result.cause, run.result.stdout) == ("exited", "on\noff\n")
    assert run.result.duration >= 1
    assert (await victim.bash("sleep 600", timeout=0.5)).cause == "timeout"


async def test_file_dates_and_a_set_clock_inside_move_no_deadline(
    victim: Victim,
) -> None:
    forge = "touch -d 1970-01-01 old; touch -d 2200-01-01 new; date -s 2000-01-01; sleep 600"
    result = await victim.bash(forge, timeout=1)
    assert result.cause == "timeout"
