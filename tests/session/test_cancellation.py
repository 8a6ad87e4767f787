"""A cancellation at any await leaves nothing behind: no container, directory, process or descriptor."""

import asyncio
import gc
import json
import os
from collections.abc import Callable, Coroutine, Generator
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread

from belljar import Allow, Host, Pool, Session
from belljar.audit.writer import Audit
from belljar.engines.docker.engine import DockerEngine
from belljar.errors import AuditError, BelljarError, UsageError
from belljar.sandbox.rundir import LABEL

Work = Callable[[], Coroutine[Any, Any, object]]
MOST_AWAITS = 200


class Cancelling:
    """Drives a coroutine and cancels its own task when it waits for the n-th time."""

    def __init__(self, work: Coroutine[Any, Any, object], at: int) -> None:
        self._work, self._at = work, at
        self.waits = 0

    def __await__(self) -> Generator[Any, Any, object]:
        steps = self._work.__await__()
        task = asyncio.current_task()
        assert task is not None
        try:
            waited_for = next(steps)
            while True:
                self.waits += 1
                if self.waits == self._at:
                    task.get_loop().call_soon(task.cancel)
                try:
                    sent = yield waited_for
                except BaseException as error:
                    waited_for = steps.throw(error)
                else:
                    waited_for = steps.send(sent)
        except StopIteration as done:
            return done.value


async def _driven(cancelling: Cancelling) -> object:
    return await cancelling


async def cancelled_everywhere(
    work: Work, nothing_left: Callable[[], Coroutine[Any, Any, None]]
) -> int:
    """Run `work` again and again, cancelled at each of its awaits in turn. Returns the number of awaits."""
    for at in range(1, MOST_AWAITS):
        cancelling = Cancelling(work(), at)
        task = asyncio.create_task(_driven(cancelling))
        done, _ = await asyncio.wait([task], timeout=60)
        assert done, f"cancelled at await {at}, it never ended"
        if not task.cancelled():
            assert task.exception() is None
        await nothing_left()
        if cancelling.waits < at:
            return at - 1
    raise AssertionError("it waits without end")


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(run=tmp_path / "run", state=tmp_path / "state")


async def sandboxes(engine: DockerEngine, host: Host) -> list[str]:
    """Directories of sessions in this host's run directory."""
    found = os.listdir(host.run_root) if host.run_root.exists() else []
    return [name for name in found if "bj-" in name]


async def trail_is_whole(host: Host) -> None:
    """Every start has its end, and every session that was opened was closed."""
    await to_thread.run_sync(host.audit.flush)
    trail = host.state_root / "audit.jsonl"
    kinds: dict[str, list[str]] = {
        "start": [],
        "end": [],
        "session_open": [],
        "session_close": [],
    }
    for line in trail.read_text().splitlines() if trail.exists() else ():
        record = json.loads(line)
        if record["kind"] in kinds:
            kinds[record["kind"]].append(record.get("run") or record["session"])
    assert sorted(kinds["start"]) == sorted(kinds["end"])
    assert sorted(kinds["session_open"]) == sorted(kinds["session_close"])


def own_containers(engine: DockerEngine) -> set[str]:
    return {
        each.id
        for each in engine.list()
        if each.labels.get(LABEL + "owner", "").startswith(f"{os.getpid()}:")
    }


@pytest.fixture
def nothing_left(
    engine: DockerEngine, host: Host
) -> Callable[[], Coroutine[Any, Any, None]]:
    others = own_containers(engine)  # those of fixtures that outlive this test

    async def check() -> None:
        await trail_is_whole(host)
        assert await sandboxes(engine, host) == []
        with anyio.fail_after(120):
            while await to_thread.run_sync(own_containers, engine) - others:  # noqa: ASYNC110 - they remove themselves
                await anyio.sleep(0.05)

    return check


async def test_opening_a_session_can_be_cancelled_at_every_step(
    workspace: Path, host: Host, nothing_left: Any
) -> None:
    async def work() -> None:
        box = await Session(workspace, host=host).open()
        await box.close()

    assert await cancelled_everywhere(work, nothing_left) >= 3


async def test_a_session_with_a_command_and_a_stream_can_be_cancelled_at_every_step(
    workspace: Path, host: Host, nothing_left: Any
) -> None:
    async def work() -> None:
        async with Session(workspace, host=host) as box:
            await box.run("echo hi; sleep 600 &")
            await box.start("sleep 600")
            async with box.stream("seq 1000") as events:
                async for _ in events:
                    pass

    assert await cancelled_everywhere(work, nothing_left) >= 5


async def test_a_session_with_a_door_can_be_cancelled_at_every_step(
    workspace: Path, host: Host, nothing_left: Any
) -> None:
    ports: set[str] = set()

    async def work() -> None:
        async with Session(workspace, host=host, network=Allow("a.example")) as box:
            ports.add(await box.forward(8000))
            await box.allow_host("b.example")
            await box.run("curl -s http://a.example & true")

    async def nothing_listens() -> None:
        await nothing_left()
        while ports:
            name, _, port = ports.pop().rpartition("/")[2].rpartition(":")
            with pytest.raises(OSError, match="connect"):
                await anyio.connect_tcp(name, int(port))

    assert await cancelled_everywhere(work, nothing_listens) >= 5


async def test_a_staged_session_can_be_cancelled_at_every_step(
    workspace: Path, host: Host, nothing_left: Any
) -> None:
    """Whatever is cancelled, the workspace has all of an apply or nothing."""

    async def work() -> None:
        for each in (workspace / "a", workspace / "b"):
            each.unlink(missing_ok=True)
        async with Session(workspace, host=host, changes="staged") as box:
            await box.run("echo a > a; echo b > b")
            await box.checkpoint("one")
            await box.apply()
            await box.discard()

    async def all_or_nothing() -> None:
        await nothing_left()
        assert sorted(each.name for each in workspace.iterdir()) in ([], ["a", "b"])

    assert await cancelled_everywhere(work, all_or_nothing) >= 5


async def test_a_command_that_is_cancelled_anywhere_leaves_no_process(
    workspace: Path, host: Host
) -> None:
    async with Session(workspace, host=host) as box:

        async def no_process() -> None:
            assert (await box.run("pgrep -c sleep")).stdout == "0\n"

        async def run() -> None:
            await box.run("sleep 0.05", timeout=30)

        async def stream() -> None:
            async with box.stream("sleep 0.05 & wait", stdin=b"text") as events:
                async for _ in events:
                    pass

        async def yielding() -> None:
            await box.yielding("sleep 0.05", yield_after=30)

        async def persistent() -> None:
            await box.persistent.run("sleep 0.05", timeout=30)

        for work in (run, stream, yielding, persistent):
            assert await cancelled_everywhere(work, no_process) >= 1


async def test_a_call_of_the_persistent_shell_that_is_cancelled_anywhere_leaves_nothing_to_the_next(
    workspace: Path, host: Host
) -> None:
    async with Session(workspace, host=host) as box:
        shell = box.persistent

        async def run() -> None:
            await shell.run(
                "f() { echo f; }; export N=$((N + 1)); echo SECRET; sleep 0.05",
                timeout=30,
            )

        async def nothing_of_it() -> None:
            after = await shell.run("echo next; echo ran >> /tmp/runs")
            assert after.stdout == "next\n"
            assert (await shell.run("cat /tmp/runs; rm /tmp/runs")).stdout == "ran\n", (
                "once"
            )
            assert (await shell.run("echo well")).stdout == "well\n"

        assert await cancelled_everywhere(run, nothing_of_it) >= 1


async def test_claiming_a_sandbox_from_a_pool_can_be_cancelled_at_every_step(
    workspace: Path, host: Host, nothing_left: Any
) -> None:
    async def work() -> None:
        async with Pool(workspace, size=1, host=host) as pool:
            await pool.ready()
            async with pool.session() as box:
                await box.run("true")

    assert await cancelled_everywhere(work, nothing_left) >= 5


async def test_attaching_can_be_cancelled_at_every_step_and_leaves_the_session_alive(
    workspace: Path, host: Host, engine: DockerEngine
) -> None:
    async with Session(workspace, host=host, keep=True) as kept:

        async def work() -> None:
            await (await Session.attach(kept.id, host=host)).close()

        async def still_there() -> None:
            assert (await kept.run("echo alive")).stdout == "alive\n"

        await cancelled_everywhere(
            work, still_there
        )  # the first round opens what is opened once and kept
        gc.collect()
        before = len(os.listdir("/proc/self/fd"))
        assert (tries := await cancelled_everywhere(work, still_there)) >= 2
        gc.collect()
        assert len(os.listdir("/proc/self/fd")) < before + tries, (
            "no descriptor is left by each try"
        )
        await kept.stop()


async def test_a_session_that_cannot_be_recorded_leaves_no_sandbox(
    workspace: Path, host: Host, tmp_path: Path, nothing_left: Any
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(AuditError):
        await Session(
            workspace, host=host, audit=Audit(tmp_path / "file" / "x", required=True)
        ).open()
    await nothing_left()


async def test_a_wrong_option_takes_no_sandbox_from_a_pool(
    workspace: Path, host: Host, nothing_left: Any
) -> None:
    async with Pool(workspace, size=1, host=host) as pool:
        with anyio.fail_after(120):
            await pool.ready()
        with pytest.raises(BelljarError, match="nosuch"):
            async with pool.session(policy="nosuch"):
                pass
        assert pool.waiting == 1
    with pytest.raises(UsageError):
        Pool(workspace, host=host, policy="nosuch")
    await nothing_left()
