"""SWE-ReX on Belljar: what its own suite does not say."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.adapters import examples
from tests.adapters.losing import lost_while

examples.needs("swerex")

from swerex import exceptions
from swerex.runtime.abstract import (
    BashAction,
    BashInterruptAction,
    CloseBashSessionRequest,
    Command,
    CreateBashSessionRequest,
    ReadFileRequest,
    UploadRequest,
    WriteFileRequest,
)

import belljar
from belljar.adapters import swerex
from belljar.adapters.swerex import BelljarDeployment, BelljarRuntime

pytestmark = pytest.mark.engine


@pytest.fixture
async def runtime() -> AsyncIterator[BelljarRuntime]:
    deployment = BelljarDeployment()
    await deployment.start()
    await deployment.runtime.create_session(CreateBashSessionRequest())
    yield deployment.runtime
    await deployment.stop()


@pytest.mark.quick
async def test_the_example_shows_the_directory() -> None:
    names = await examples.run(swerex)
    assert names["seen"].output == "/tmp\n"
    assert names["seen"].exit_code == 0


@pytest.mark.quick
async def test_a_denied_command_is_one_that_failed_and_says_why(
    runtime: BelljarRuntime, tmp_path: Path
) -> None:
    file = tmp_path / "rm.txt"
    file.write_text("rm -rf /\n")
    command = file.read_text().strip()
    seen = await runtime.run_in_session(BashAction(command=command, check="silent"))
    assert seen.exit_code == 126
    assert seen.output.startswith("belljar: denied: ")
    with pytest.raises(exceptions.NonZeroExitCodeError, match="denied"):
        await runtime.run_in_session(BashAction(command=command, error_msg="no"))
    response = await runtime.execute(Command(command=command, shell=True))
    assert response.exit_code == 126
    assert "denied" in response.stderr


@pytest.mark.quick
async def test_a_session_keeps_its_state_and_another_has_its_own(
    runtime: BelljarRuntime,
) -> None:
    await runtime.create_session(CreateBashSessionRequest(session="other"))
    await runtime.run_in_session(
        BashAction(command="cd /tmp; export A=1; f() { echo f; }")
    )
    here = await runtime.run_in_session(BashAction(command='f; echo "$PWD $A"'))
    there = await runtime.run_in_session(
        BashAction(command='echo "$PWD $A"', session="other")
    )
    assert (here.output, there.output) == ("f\n/tmp 1\n", "/workspace \n")
    with pytest.raises(exceptions.SessionExistsError):
        await runtime.create_session(CreateBashSessionRequest(session="other"))


async def test_a_session_of_the_same_name_begins_anew(runtime: BelljarRuntime) -> None:
    await runtime.run_in_session(BashAction(command="cd /tmp"))
    await runtime.close_session(CloseBashSessionRequest())
    await runtime.create_session(CreateBashSessionRequest())
    assert (
        await runtime.run_in_session(BashAction(command="pwd"))
    ).output == "/workspace\n"


async def test_startup_files_are_sourced(runtime: BelljarRuntime) -> None:
    await runtime.write_file(
        WriteFileRequest(path="/tmp/rc", content="echo sourced; X=7\n")
    )
    made = await runtime.create_session(
        CreateBashSessionRequest(session="s", startup_source=["/tmp/rc"])
    )
    assert made.output == "sourced\n"
    assert (
        await runtime.run_in_session(BashAction(command="echo $X", session="s"))
    ).output == "7\n"


async def test_an_interactive_program_is_talked_to_until_it_quits(
    runtime: BelljarRuntime,
) -> None:
    start = BashAction(
        command="python3 -q", is_interactive_command=True, expect=[">>> "], timeout=10
    )
    assert (await runtime.run_in_session(start)).expect_string == ">>> "
    asked = BashAction(
        command="print(6 * 7)", is_interactive_command=True, expect=[">>> "], timeout=10
    )
    assert (await runtime.run_in_session(asked)).output == "42"
    await runtime.run_in_session(
        BashAction(command="quit()", is_interactive_quit=True, timeout=10)
    )
    assert (
        await runtime.run_in_session(BashAction(command="echo back"))
    ).output == "back\n"


async def test_a_timed_out_command_goes_on_until_it_is_interrupted(
    runtime: BelljarRuntime,
) -> None:
    slow = BashAction(
        command="X=1; trap 'echo caught' INT; for i in {1..600}; do sleep 1; done",
        timeout=0.3,
    )
    with pytest.raises(exceptions.CommandTimeoutError):
        await runtime.run_in_session(slow)
    with pytest.raises(exceptions.CommandTimeoutError):
        await runtime.run_in_session(BashAction(command="echo early", timeout=0.3))
    assert (
        await runtime.execute(Command(command="pgrep -c sleep", shell=True))
    ).stdout == "1\n"
    await runtime.run_in_session(BashInterruptAction())
    assert (
        await runtime.run_in_session(BashAction(command="echo free"))
    ).output.endswith("free\n")


async def test_without_judging_wrong_syntax_is_found_too() -> None:
    deployment = BelljarDeployment(policy="none")
    await deployment.start()
    await deployment.runtime.create_session(CreateBashSessionRequest())
    with pytest.raises(exceptions.BashIncorrectSyntaxError) as raised:
        await deployment.runtime.run_in_session(BashAction(command="if true; do"))
    assert "syntax error" in raised.value.extra_info["bash_stderr"]
    await deployment.stop()


async def test_execute_is_like_subprocess_run(runtime: BelljarRuntime) -> None:
    with pytest.raises(FileNotFoundError):
        await runtime.execute(Command(command="no-such-program"))
    only = await runtime.execute(
        Command(command="env; pwd", shell=True, env={"A": "b"}, cwd="/tmp")
    )
    assert "A=b\n" in only.stdout
    assert "HOME=" not in only.stdout
    assert only.stdout.endswith("/tmp\n")
    with pytest.raises(exceptions.NonZeroExitCodeError, match="because"):
        await runtime.execute(
            Command(command=["false"], check=True, error_msg="because")
        )


async def test_a_command_that_prints_without_end_is_killed_and_says_so(
    runtime: BelljarRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("belljar.adapters.boxes.MOST_OUTPUT", 10_000)
    seen = await runtime.execute(Command(command="yes"))
    assert len(seen.stdout) == 10_000
    assert seen.exit_code != 0
    assert seen.stderr == "belljar: killed at 10000 bytes of output\n"


async def test_files_are_decoded_as_asked_and_put_into_directories(
    runtime: BelljarRuntime, tmp_path: Path
) -> None:
    (tmp_path / "latin.txt").write_bytes(b"\xe9\n")
    await runtime.upload(
        UploadRequest(source_path=str(tmp_path / "latin.txt"), target_path="/tmp")
    )
    read = ReadFileRequest(path="/tmp/latin.txt", encoding="latin-1")
    assert (await runtime.read_file(read)).content == "é\n"
    with pytest.raises(UnicodeDecodeError):
        await runtime.read_file(ReadFileRequest(path="/tmp/latin.txt"))


async def test_a_file_that_is_written_again_keeps_its_mode(
    runtime: BelljarRuntime,
) -> None:
    await runtime.execute(Command(command="touch run.sh; chmod 755 run.sh", shell=True))
    await runtime.write_file(
        WriteFileRequest(path="run.sh", content="#!/bin/sh\necho ran\n")
    )
    assert (
        await runtime.execute(Command(command="./run.sh", shell=True))
    ).stdout == "ran\n"


async def test_a_deployment_says_when_it_does_not_run() -> None:
    deployment = BelljarDeployment(image="no-such-image-anywhere")
    with pytest.raises(exceptions.DeploymentNotStartedError):
        _ = deployment.runtime
    with pytest.raises(exceptions.DeploymentStartupError):
        await deployment.start()
    good = BelljarDeployment()
    await good.start()
    runtime = good.runtime
    assert await good.is_alive(timeout=10)
    await good.stop()
    await good.stop()
    assert not await runtime.is_alive()


async def test_a_lost_sandbox_is_an_error(runtime: BelljarRuntime) -> None:
    with pytest.raises(belljar.SandboxLost):
        await lost_while(
            runtime.box, runtime.execute(Command(command="sleep 600", shell=True))
        )
    assert not await runtime.is_alive()
    deployment = BelljarDeployment()
    await deployment.start()
    other = deployment.runtime
    await other.create_session(CreateBashSessionRequest())
    with pytest.raises(belljar.SandboxLost):
        await lost_while(
            other.box, other.run_in_session(BashAction(command="sleep 600"))
        )
    await deployment.stop()
