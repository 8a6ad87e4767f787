"""Pools of warm sandboxes, each used once."""

import json
import os
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from anyio import to_thread

import belljar
from belljar import Limits, Pool, Session
from belljar.errors import EngineError, ImageMissing, UsageError
from belljar.sandbox.sandbox import Sandbox
from belljar.session import kept
from belljar.session import pool as pools


async def full(pool: Pool) -> None:
    with anyio.fail_after(120):
        await pool.ready()


async def test_a_claimed_sandbox_was_never_used_and_is_never_used_again(
    workspace: Path,
) -> None:
    async with Pool(workspace, size=2) as pool:
        await full(pool)
        seen = set()
        for _ in range(4):
            async with pool.session() as box:
                seen.add(box.sandbox.launched.id)
                assert (await box.run("ls /tmp; touch /tmp/used")).stdout == ""
        assert len(seen) == 4


async def test_a_claimed_sandbox_is_replaced(workspace: Path) -> None:
    async with Pool(workspace, size=2) as pool:
        await full(pool)
        async with pool.session() as box:
            assert pool.waiting == 1
            await full(pool)
            assert pool.waiting == 2
            assert (await box.run("echo hi")).stdout == "hi\n"


async def test_a_claim_writes_down_only_what_its_session_changes(
    workspace: Path,
) -> None:
    async with Pool(workspace, size=2) as pool:
        await full(pool)
        before = {written(each).stat().st_ino for each in pool._ready}
        async with pool.session() as box:
            assert written(box.sandbox).stat().st_ino in before
            assert said(box) == own(box)
            listed = await to_thread.run_sync(kept.running, pool.host)
            assert [one["owner"] for one in listed if one["id"] == box.id] == [
                os.getpid()
            ]
        async with pool.session(policy="strict", env={"CI": "1"}) as box:
            assert said(box) == own(box)
            assert said(box)["policy"]["name"] == "strict"
            assert said(box)["env"] == [["CI", "1"]]


def written(sandbox: Sandbox) -> Path:
    return sandbox.run_dir / "session.json"


def said(box: Session) -> dict[str, Any]:
    """The options that other processes read."""
    options: dict[str, Any] = json.loads(written(box.sandbox).read_text())["options"]
    return options


def own(box: Session) -> object:
    return json.loads(json.dumps(box.options.as_dict()))


async def test_a_burst_beyond_the_pool_falls_back_to_cold_starts(
    workspace: Path,
) -> None:
    answers: list[str] = []

    async def one(pool: Pool, number: int) -> None:
        async with pool.session() as box:
            answers.append((await box.run(f"echo {number}")).stdout)

    async with Pool(workspace, size=2) as pool:
        await full(pool)
        async with anyio.create_task_group() as tasks:
            for number in range(6):
                tasks.start_soon(one, pool, number)
        assert pool.waiting <= 2
    assert sorted(answers) == [f"{number}\n" for number in range(6)]


async def test_the_refill_waits_until_a_burst_is_over(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "PATIENCE_SECONDS", 60.0)  # this machine may be slow
    async with Pool(workspace, size=3) as pool:
        await full(pool)
        async with pool.session() as first, pool.session() as second, pool.session():
            for box in (first, second):
                assert (await box.run("echo hi")).stdout == "hi\n"
                assert not pool._filling
        monkeypatch.undo()
        await full(pool)


async def test_a_used_sandbox_is_destroyed_when_the_burst_is_over(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "PATIENCE_SECONDS", 60.0)
    async with Pool(workspace, size=2) as pool:
        await full(pool)
        gone = anyio.Event()
        async with pool.session():
            async with pool.session() as box:
                used = box.sandbox
                used.link.when_lost(gone.set)
                await box.run("true")
            await used.link.ping()
        monkeypatch.undo()
        with anyio.fail_after(60):
            await gone.wait()


async def test_processes_in_a_used_sandbox_end_at_once(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "PATIENCE_SECONDS", 60.0)
    async with Pool(workspace, size=4) as pool:
        await full(pool)
        async with pool.session():
            async with (
                pool.session() as shells,
                pool.session() as remembering,
                pool.session(env={"A": "b"}) as idle,
            ):
                await shells.start("sleep 600")
                await remembering.persistent.run("sleep 600 &")
                kept, ended = idle.sandbox, [shells.sandbox, remembering.sandbox]
            assert all(sandbox.link.lost for sandbox in ended)
            await kept.link.ping()
    assert kept.link.lost, "a pool that is closed leaves nothing"


async def test_run_and_session_take_from_an_open_pool_of_their_kind(
    workspace: Path,
) -> None:
    async with Pool(workspace, size=1) as pool:
        await full(pool)
        waiting = pool._ready[0].launched.id
        async with Session(workspace) as box:
            assert box.sandbox.launched.id == waiting
        await full(pool)
        waiting = pool._ready[0].launched.id
        async with Session(workspace, limits=Limits(memory="64m")) as other:
            assert other.sandbox.launched.id != waiting
        assert (await belljar.run("echo pooled", workspace)).stdout == "pooled\n"


async def test_a_waiting_sandbox_that_died_is_not_handed_out(
    workspace: Path, docker_client: object
) -> None:
    async with Pool(workspace, size=1) as pool:
        await full(pool)
        dead = pool._ready[0].launched.id
        await to_thread.run_sync(docker_client.containers.get(dead).kill)  # type: ignore[attr-defined]
        async with pool.session() as box:
            assert box.sandbox.launched.id != dead
            assert (await box.run("echo alive")).stdout == "alive\n"


async def test_a_replaced_workspace_directory_is_noticed(workspace: Path) -> None:
    async with Pool(workspace, size=1) as pool:
        await full(pool)
        workspace.rename(workspace.with_name("moved"))
        workspace.mkdir()
        (workspace / "new").touch()
        async with pool.session() as box:
            assert (await box.run("ls")).stdout == "new\n"


async def test_an_idle_pool_lets_its_sandboxes_go_and_fills_again(
    workspace: Path,
) -> None:
    async with Pool(workspace, size=1, idle=5) as pool:
        await full(pool)
        with anyio.fail_after(120):
            while pool.waiting:  # noqa: ASYNC110 - the pool sends no event when it is drained
                await anyio.sleep(0.05)
        async with pool.session() as box:
            assert (await box.run("echo cold")).stdout == "cold\n"


async def test_a_memory_budget_bounds_what_waits(workspace: Path) -> None:
    assert Pool(workspace, size=100, memory="64m").size == 4
    with pytest.raises(UsageError):
        Pool(workspace, size=-1)


async def test_a_pool_that_cannot_be_filled_says_why(workspace: Path) -> None:
    async with Pool(workspace, size=1, image="no/such:image") as pool:
        with anyio.fail_after(120), pytest.raises(ImageMissing):
            await pool.ready()


async def test_a_pool_without_memory_for_its_sandboxes_says_so(workspace: Path) -> None:
    async with Pool(workspace, size=1, limits=Limits(memory="900g")) as pool:
        with (
            pytest.raises(EngineError, match=r"may use 900\.?0* ?GiB of memory"),
            anyio.fail_after(60),
        ):
            await pool.ready()


async def test_a_launch_that_fails_in_any_way_is_told_and_not_repeated_at_once(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error that was not foreseen once made 19,545 launches in a second, and told nobody."""
    launches = 0

    async def launch(*_: object) -> None:
        nonlocal launches
        launches += 1
        raise KeyError("a fault of ours")

    monkeypatch.setattr(pools.Sandbox, "launch", launch)
    async with Pool(workspace, size=1) as pool:
        with pytest.raises(KeyError, match="a fault of ours"), anyio.fail_after(60):
            await pool.ready()
        for _ in range(100):
            await anyio.lowlevel.checkpoint()
        assert launches == 1


async def test_who_waits_for_a_pool_that_closes_is_told(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = anyio.Event()

    async def launch(*_: object) -> None:
        await go.wait()
        raise UsageError("closed before")

    monkeypatch.setattr(pools.Sandbox, "launch", launch)
    monkeypatch.setattr(pools, "RETRY_SECONDS", 0.0)
    async with anyio.create_task_group() as tasks:

        async def wait(pool: Pool) -> None:
            with pytest.raises(UsageError, match="not open"), anyio.fail_after(60):
                await pool.ready()
            go.set()

        async with Pool(workspace, size=1) as pool:
            tasks.start_soon(wait, pool)
            await anyio.wait_all_tasks_blocked()
