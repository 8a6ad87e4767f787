"""A checkpoint is a point for everything that runs, or it is refused; a rollback ends everything first."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from anyio.lowlevel import checkpoint
from tests.session.test_staged import _nothing_stays as _nothing_stays
from tests.session.test_staged import engine_name as engine_name
from tests.session.test_staged import mine as mine

from belljar.errors import ProtectionMissing, SandboxLost, UsageError
from belljar.session.session import Session

pytestmark = [pytest.mark.anyio, pytest.mark.root, pytest.mark.engine]
Open = Callable[..., Session]
LATE = "echo begun; while test ! -e go; do sleep 0.02; done; echo late > late.txt"


@pytest.fixture
def staged(mine: Path, engine_name: str) -> Open:
    return lambda **more: Session(mine, changes="staged", engine=engine_name, **more)


class Late:
    """A command that writes late.txt once `go` is there."""

    def __init__(self, box: Session) -> None:
        self._box, self.begun, self.cause = box, anyio.Event(), ""

    async def run(self) -> None:
        self.cause = (
            await self._box.run(LATE, on_output=lambda _: self.begun.set())
        ).cause


async def test_a_checkpoint_is_refused_while_a_foreground_command_runs(
    staged: Open,
) -> None:
    async with staged() as box, anyio.create_task_group() as tasks:
        late = Late(box)
        tasks.start_soon(late.run)
        await late.begun.wait()
        with pytest.raises(UsageError, match="a command"):
            await box.checkpoint()
        assert box.checkpoints() == []
        await box.run("touch go")


async def test_a_rollback_ends_foreground_commands_and_nothing_of_them_is_written_late(
    staged: Open,
) -> None:
    async with staged() as box:
        await box.run("echo 1 > kept.txt")
        await box.checkpoint("point")
        late = Late(box)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(late.run)
            await late.begun.wait()
            await box.rollback("point")
        assert late.cause == "killed"
        assert [change.path for change in await box.changes()] == ["kept.txt"]
        assert (await box.run("ls late.txt")).exit_code == 2


async def test_automatic_checkpoints_of_two_tasks_freeze_nothing_that_is_written(
    staged: Open,
) -> None:
    async with staged(checkpoints="auto") as box:
        async with anyio.create_task_group() as tasks:
            late = Late(box)
            tasks.start_soon(late.run)
            await late.begun.wait()
            await box.run(
                "rm -rf dir"
            )  # risky: a checkpoint would be made, but cannot be now
            assert box.checkpoints() == []
            await box.run("touch go")
        assert (await box.run("cat late.txt")).stdout == "late\n"
        await box.run("rm -rf *")
        assert len(box.checkpoints()) == 1


async def test_a_job_of_the_persistent_shell_refuses_a_checkpoint_and_an_idle_one_does_not(
    staged: Open,
) -> None:
    async with staged() as box:
        await box.persistent.run("sleep 300 & echo $!")
        with pytest.raises(UsageError, match="waits until nothing runs"):
            await box.checkpoint()
        await box.persistent.run("kill %1; wait")
        await box.checkpoint()
        assert (await box.persistent.run("echo x > x; cat x")).stdout == "x\n"


async def test_commands_wait_while_the_mount_is_exchanged(staged: Open) -> None:
    async with staged() as box:
        results: list[str] = []

        async def write(number: int) -> None:
            results.append(
                (await box.run(f"echo {number} > f{number} && cat f{number}")).stdout
            )

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(box.checkpoint, "first")
            await checkpoint()
            for number in range(5):
                tasks.start_soon(write, number)
        await box.rollback("first")
        assert len(results) == 5
        assert not [
            change for change in await box.changes() if change.path.startswith("f")
        ]


async def test_a_mount_that_cannot_be_exchanged_ends_the_sandbox(
    staged: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(22, "Invalid argument")

    async with staged() as box:
        await box.run("echo kept > kept.txt")
        monkeypatch.setattr("belljar.staged.swap.swap", refuse)
        with pytest.raises(ProtectionMissing):
            await box.checkpoint()
        with pytest.raises(SandboxLost, match="its changes are kept"):
            await box.run("true")
        assert [change.path for change in await box.changes()] == ["kept.txt"]


async def test_a_checkpoint_counts_nothing_twice(staged: Open) -> None:
    async with staged() as box:
        await box.persistent.run("python3 -c 'b = bytearray(2 << 30)'; sleep 0.3")
        await box.checkpoint()
        result = await box.persistent.run("false")
        assert (result.exit_code, result.oom_kills) == (1, 0)
