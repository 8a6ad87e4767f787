"""How a command ended: the cause and its numbers."""

import signal
from pathlib import Path
from typing import get_args

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
from tests.session.test_session import box as box

import belljar
from belljar import Session
from belljar.errors import SandboxLost
from belljar.link import frames
from belljar.session.result import CAUSES, Cause, Output, cause_of


@pytest.mark.parametrize("code", [0, 1, 2, 126, 127, 128, 255])
async def test_the_exit_code_is_the_commands_own(box: Session, code: int) -> None:
    result = await box.run(f"exit {code}")
    assert (result.cause, result.exit_code, result.ok) == ("exited", code, code == 0)


async def test_a_death_by_signal_is_in_the_result(box: Session) -> None:
    result = await box.run("kill -SEGV $$")
    assert (result.cause, result.signal, result.exit_code) == (
        "signalled",
        signal.SIGSEGV,
        128 + signal.SIGSEGV,
    )


async def test_past_its_output_limit_a_command_is_ended(box: Session) -> None:
    result = await box.run("yes", output_limit=100_000, timeout=60)
    assert result.cause == "output_limit"
    assert (result.bytes_kept, result.truncated) == (100_000, True)
    assert result.stdout.startswith("y\n" * 50_000 + "\n[... ")
    assert result.bytes_produced > 100_000


def test_a_command_that_ends_before_the_limits_kill_counts_as_output_limit() -> None:
    exited = frames.EndedBody(frames.EndCause.EXITED, *[0] * 10)
    assert cause_of(exited, "output_limit") == "output_limit"
    assert cause_of(exited, "killed") == "exited"


async def test_a_result_has_the_resources_that_were_used(box: Session) -> None:
    result = await box.run(
        ["python3", "-c", "x = bytearray(50_000_000); sum(range(2_000_000))"]
    )
    assert result.peak_memory > 50_000_000
    assert result.cpu_time > 0
    assert result.duration > 0
    assert result.ended >= result.started


async def test_a_timeout_ends_the_whole_tree(box: Session) -> None:
    result = await box.run(
        "(trap '' TERM; sleep 600) & setsid sleep 601 & echo begun; sleep 602",
        timeout=3,
        grace=0.2,
    )
    assert (result.cause, result.exit_code, result.stdout) == (
        "timeout",
        124,
        "begun\n",
    )
    assert (await box.run("pgrep -c sleep")).stdout == "0\n"


async def test_what_a_command_leaves_running_is_killed_and_counted(
    box: Session,
) -> None:
    result = await box.run("sleep 600 & setsid sleep 601 & (sleep 602 &) ; echo done")
    assert (result.exit_code, result.stdout, result.survivors_killed) == (
        0,
        "done\n",
        3,
    )
    assert (await box.run("pgrep -c sleep")).stdout == "0\n"


async def test_a_container_killed_from_outside_is_a_lost_sandbox(
    workspace: Path, docker_client: object
) -> None:
    async with belljar.Session(workspace) as box:
        with anyio.fail_after(120):
            async with box.stream("echo up; sleep 600") as run:
                async for event in run:
                    if isinstance(event, Output):
                        container = docker_client.containers.get(
                            box.sandbox.launched.id
                        )  # type: ignore[attr-defined]
                        await anyio.to_thread.run_sync(container.kill)
        assert run.result is not None
        assert (run.result.cause, run.result.exit_code, run.result.stdout) == (
            "sandbox_lost",
            125,
            "up\n",
        )
        with pytest.raises(SandboxLost):
            await box.run("true")


def test_each_end_cause_of_the_init_has_a_name() -> None:
    assert CAUSES == {
        1: "exited",
        2: "signalled",
        3: "timeout",
        4: "killed",
        5: "out_of_memory",
    }
    assert set(CAUSES.values()) <= set(get_args(Cause))
