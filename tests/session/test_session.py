"""The contract of a session, over both ways to reach a sandbox: its own socket, or a stream through the engine."""

import gc
import os
import signal
import stat
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
from tests.owners import give
from tests.session.trusting import trusting

import belljar
from belljar import Session
from belljar import host as hosts
from belljar.errors import (
    CommandError,
    CommandNotExecutable,
    CommandNotFound,
    ImageMissing,
    PolicyDenied,
    SandboxLost,
    UsageError,
    WorkingDirectoryError,
    WorkspaceError,
)
from belljar.session.capture import Collector
from belljar.session.result import Capture, Ended, Output, Started
from belljar.session.watched_run import Run


@pytest.fixture(scope="module", params=["socket", "bridge"])
async def box(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Session]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BELLJAR_LINK", request.param)
        hosts.default().forget()
        home = tmp_path_factory.mktemp("workspace")
        give(home)
        async with belljar.Session(home) as session:
            yield session
    hosts.default().forget()


def host(box: Session) -> Path:
    return Path(box.workspace.path)


# What comes out.


def _kept_of_commands() -> list[object]:
    return [each for each in gc.get_objects() if isinstance(each, (Collector, Run, Capture))]


async def test_what_a_command_printed_goes_with_its_result(box: Session) -> None:
    """Without a cycle: a full collection holds up the loop, the longer the more a sandbox made it keep."""
    gc.collect()
    before = set(map(id, _kept_of_commands()))
    gc.disable()
    try:
        for _ in range(3):
            await box.run("seq 1000", on_output=lambda output: None)
            async with box.stream("seq 1000") as run:
                async for _event in run:
                    pass
        del run, _event
        with anyio.fail_after(60):  # the last one's goodbye may still be on its way
            while not set(map(id, _kept_of_commands())) <= before:  # noqa: ASYNC110
                await anyio.sleep(0.01)
    finally:
        gc.enable()


async def test_stdout_and_stderr_come_back_apart(box: Session) -> None:
    result = await box.run("echo out; echo err >&2")
    assert (result.cause, result.exit_code, result.stdout, result.stderr) == ("exited", 0, "out\n", "err\n")
    assert result.verdict is not None
    assert result.verdict.decision == "allow"


async def test_a_list_runs_without_a_shell(box: Session) -> None:
    assert (await box.run(["printf", "%s|", "a b", "$HOME", "*"])).stdout == "a b|$HOME|*|"


@pytest.mark.parametrize("code", [0, 1, 2, 126, 127, 128, 255])
async def test_the_exit_code_is_the_commands_own(box: Session, code: int) -> None:
    result = await box.run(f"exit {code}")
    assert (result.cause, result.exit_code, result.ok) == ("exited", code, code == 0)


async def test_a_death_by_signal_is_told(box: Session) -> None:
    result = await box.run("kill -SEGV $$")
    assert (result.cause, result.signal, result.exit_code) == ("signalled", signal.SIGSEGV, 128 + signal.SIGSEGV)


async def test_combined_output_is_in_exact_order(box: Session) -> None:
    result = await box.run("for i in $(seq 50); do echo o$i; echo e$i >&2; done", combined=True)
    assert result.stdout == "".join(f"o{i}\ne{i}\n" for i in range(1, 51))
    assert result.output == result.stdout


async def test_invalid_utf8_passes_through_as_bytes(box: Session) -> None:
    result = await box.run(r"printf '\xff\x00\xfeok'")
    assert result.stdout_bytes == b"\xff\x00\xfeok"
    assert result.stdout == "\ufffd\0\ufffdok"


async def test_a_long_output_keeps_head_and_tail(box: Session) -> None:
    result = await box.run("seq 2000000")
    assert result.truncated
    assert result.bytes_produced == 14888896
    assert result.stdout.startswith("1\n2\n")
    assert result.stdout.endswith("2000000\n")
    assert "bytes omitted" in result.stdout
    assert result.bytes_kept == box.limits.output


async def test_past_its_output_limit_a_command_is_ended(box: Session) -> None:
    result = await box.run("yes", output_limit=100_000, timeout=60)
    assert result.cause == "output_limit"
    assert result.bytes_produced > 100_000


async def test_resources_are_accounted_for(box: Session) -> None:
    result = await box.run(["python3", "-c", "x = bytearray(50_000_000); sum(range(2_000_000))"])
    assert result.peak_memory > 50_000_000
    assert result.cpu_time > 0
    assert result.duration > 0
    assert result.ended >= result.started


# What goes in.


async def test_variables_and_directory_hold_for_one_command(box: Session) -> None:
    (host(box) / "sub").mkdir(exist_ok=True)
    result = await box.run('echo "$GREETING"; pwd', env={"GREETING": "hé llo\n$x"}, cwd="sub")
    assert result.stdout == "hé llo\n$x\n/workspace/sub\n"
    assert (await box.run('echo "[$GREETING]"; pwd')).stdout == "[]\n/workspace\n"


async def test_nothing_of_the_hosts_environment_gets_in(box: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOST_SECRET", "hunter2")
    result = await box.run("env")
    names = {line.partition("=")[0] for line in result.stdout.splitlines()}
    assert names <= {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LC_CTYPE", "TERM", "PWD", "SHLVL", "_", "OLDPWD"}


async def test_a_clean_environment_is_empty(box: Session) -> None:
    assert (await box.run(["/usr/bin/env"], clean_env=True)).stdout == ""
    assert (await box.run(["/usr/bin/env"], clean_env=True, env={"A": "1"})).stdout == "A=1\n"


async def test_stdin_is_what_was_given_and_otherwise_empty(box: Session) -> None:
    data = os.urandom(300_000)
    assert (await box.run(["cat"], stdin=data)).stdout_bytes == data
    assert (await box.run("cat; echo done")).stdout == "done\n"


async def test_stdin_that_nobody_reads_does_not_hang(box: Session) -> None:
    assert (await box.run("exit 4", stdin=b"x" * 5_000_000)).exit_code == 4


async def test_a_command_of_a_mebibyte_runs(box: Session) -> None:
    text = "true " + "x" * (1 << 20)
    with trusting(box):  # the policy has its own bound on what it judges
        assert (await box.run(text)).exit_code == 0


async def test_ten_thousand_variables_arrive(box: Session) -> None:
    env = {f"VARIABLE_{n}": str(n) for n in range(10_000)}
    result = await box.run("env | grep -c ^VARIABLE_", env=env)
    assert result.stdout == "10000\n"


async def test_a_terminal_is_one_if_asked(box: Session) -> None:
    result = await box.run("test -t 1 && tty && stty size", pty=True, timeout=60)
    assert result.stdout.replace("\r", "").splitlines()[1:] == ["24 80"]


# Time.


async def test_a_timeout_ends_the_whole_tree(box: Session) -> None:
    result = await box.run(
        "(trap '' TERM; sleep 600) & setsid sleep 601 & echo begun; sleep 602", timeout=0.5, grace=0.2
    )
    assert (result.cause, result.exit_code, result.stdout) == ("timeout", 124, "begun\n")
    assert (await box.run("pgrep -c sleep")).stdout == "0\n"


async def test_sigterm_comes_first(box: Session) -> None:
    result = await box.run("trap 'echo cleaned; exit 9' TERM; while :; do sleep 0.01; done", timeout=0.3, grace=5)
    assert (result.cause, result.stdout) == ("timeout", "cleaned\n")


async def test_what_a_command_leaves_running_is_killed_and_counted(box: Session) -> None:
    result = await box.run("sleep 600 & setsid sleep 601 & (sleep 602 &) ; echo done")
    assert (result.exit_code, result.stdout, result.survivors_killed) == (0, "done\n", 3)
    assert (await box.run("pgrep -c sleep")).stdout == "0\n"


async def test_cancelling_kills_the_command(box: Session) -> None:
    with anyio.move_on_after(0.3) as scope:
        await box.run("echo x > started; sleep 600")
    assert scope.cancelled_caught
    assert (await box.run("pgrep -c sleep; rm started")).stdout == "0\n"


# Streams.


async def test_events_come_while_the_command_runs(box: Session) -> None:
    async with box.stream("echo ready; read -r line; echo got $line; exit 3", stdin=b"") as run:
        events = [await anext(run), await anext(run)]
        assert isinstance(events[0], Started)
        assert events[1] == Output("stdout", b"ready\n")
        await run.write(b"it\n")
        rest = [event async for event in run]
    assert rest[0] == Output("stdout", b"got it\n")
    assert isinstance(rest[-1], Ended)
    assert rest[-1].result.exit_code == 3


async def test_leaving_a_stream_early_kills_its_command(box: Session) -> None:
    async with box.stream("echo hi; sleep 600") as run:
        async for event in run:
            if isinstance(event, Output):
                break
    assert (await box.run("pgrep -c sleep")).stdout == "0\n"


async def test_an_interrupt_is_a_ctrl_c(box: Session) -> None:
    async with box.stream("echo go; sleep 600") as run:
        async for event in run:
            if isinstance(event, Output):
                run.interrupt()
    assert run.result is not None
    assert run.result.cause == "interrupted"


async def test_a_slow_reader_holds_back_only_its_own_command(box: Session) -> None:
    async with box.stream("yes") as run:
        await anext(run)
        for n in range(20):
            assert (await box.run(f"echo {n}")).stdout == f"{n}\n"


async def test_many_commands_at_once_do_not_mix(box: Session) -> None:
    found: dict[int, str] = {}

    async def one(n: int) -> None:
        found[n] = (await box.run(f"for i in 1 2 3; do echo {n}; done; echo e{n} >&2")).output

    async with anyio.create_task_group() as tasks:
        for n in range(40):
            tasks.start_soon(one, n)
    assert all(sorted(found[n].split()) == [str(n)] * 3 + [f"e{n}"] for n in range(40))


# What is refused.


async def test_a_program_that_is_not_there(box: Session) -> None:
    with pytest.raises(CommandNotFound, match="no-such-program"):
        await box.run(["no-such-program"])


async def test_a_file_that_is_not_executable(box: Session) -> None:
    (host(box) / "notes.txt").write_text("hello")
    with pytest.raises(CommandNotExecutable):
        await box.run(["./notes.txt"])


async def test_bash_says_itself_what_it_cannot_find(box: Session) -> None:
    result = await box.run("no-such-program")
    assert result.exit_code == 127
    assert result.stderr == "bash: line 1: no-such-program: command not found\n"


@pytest.mark.parametrize("cwd", ["missing", "..", "/etc", "a\0b"])
async def test_a_working_directory_that_cannot_be(box: Session, cwd: str) -> None:
    with pytest.raises(WorkingDirectoryError, match="Invalid working directory"):
        await box.run("pwd", cwd=cwd)


@pytest.mark.parametrize("env", [{"A=B": "1"}, {"": "1"}, {"A": "x\0y"}])
async def test_a_variable_that_cannot_be(box: Session, env: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        await box.run("true", env=env)


async def test_an_environment_beyond_all_bounds(box: Session) -> None:
    with pytest.raises((UsageError, CommandError)):
        await box.run("true", env={"HUGE": "x" * (9 << 20)})


@pytest.mark.parametrize("command", ["echo a\0b", "", "   "])
async def test_a_command_that_cannot_be_judged(box: Session, command: str) -> None:
    with pytest.raises(PolicyDenied):
        await box.run(command)


async def test_what_the_policy_denies_does_not_run(box: Session) -> None:
    with pytest.raises(PolicyDenied) as denied:
        await box.run("touch denied-marker; rm -rf /")
    assert denied.value.verdict.risk == "blocked"
    assert not (host(box) / "denied-marker").exists()


async def test_what_must_be_asked_is_denied_without_anyone_to_ask(box: Session) -> None:
    with pytest.raises(PolicyDenied):
        await box.run("sudo ls")


async def test_approval_is_asked_with_the_verdict(box: Session) -> None:
    asked: list[str] = []

    async def approve(verdict: belljar.Verdict) -> bool:
        asked.append(verdict.risk)
        return "true" in verdict.canonical

    box.judge._approve = approve
    try:
        assert (await box.run("sudo ls true")).exit_code != 0  # asked, approved, and no sudo in there
        with pytest.raises(PolicyDenied):
            await box.run("sudo ls false")
    finally:
        box.judge._approve = None
    assert asked == ["critical", "critical"]


# Files.


async def test_files_made_inside_belong_to_the_workspaces_owner(box: Session) -> None:
    await box.run("echo hi > made; mkdir -p dir; id -u")
    made = (host(box) / "made").stat()
    assert (made.st_uid, made.st_gid) == (1000, 1000)
    assert stat.S_IMODE(made.st_mode) == 0o644


async def test_a_deleted_working_directory_is_an_error_not_a_hang(box: Session) -> None:
    (host(box) / "gone").mkdir()
    (host(box) / "gone").rmdir()
    with pytest.raises(WorkingDirectoryError):
        await box.run("pwd", cwd="gone")


# Workspaces, images, ends: these make sandboxes of their own.


async def test_roots_workspace_is_written_by_an_unprivileged_user_and_stays_roots(root_workspace: Path) -> None:
    result = await belljar.run("id -u; touch made; stat -c %u made", root_workspace)
    inside, owner = result.stdout.split()
    assert inside != "0"
    assert inside == owner
    assert (root_workspace / "made").stat().st_uid == os.geteuid()


@pytest.mark.parametrize(
    "name", ["with space", "new\nline", "co:lon", "com,ma", "ünïcödé", "n" * 200, "quo'te\"s", "-dash", "$(x)"]
)
async def test_odd_names_of_workspaces_work(tmp_path: Path, name: str) -> None:
    odd = tmp_path / name
    odd.mkdir()
    give(odd)
    assert (await belljar.run("touch here && ls", odd)).stdout == "here\n"
    assert (odd / "here").exists()


@pytest.mark.parametrize("path", ["/", "/no/such/dir", "/etc/passwd", "/proc", ""])
async def test_what_is_no_workspace_is_refused(path: str) -> None:
    with pytest.raises(WorkspaceError):
        await belljar.run("true", path)


async def test_an_image_that_is_not_there(workspace: Path) -> None:
    with pytest.raises(ImageMissing):
        await belljar.run("true", workspace, image="no/such:image")


async def test_a_throwaway_leaves_nothing_to_the_next(workspace: Path) -> None:
    await belljar.run("touch /tmp/trace ~/trace", workspace)
    assert (await belljar.run("ls /tmp ~", workspace)).stdout.split() == ["/home/sandbox:", "/tmp:"]


async def test_limits_are_in_force(workspace: Path) -> None:
    limits = belljar.Limits(memory="64m", pids=32, tmp="2m")
    async with belljar.Session(workspace, limits=limits) as small:
        hog = await small.run(["python3", "-c", "x = bytearray(200_000_000)"])
        assert hog.cause == "out_of_memory"
        full = await small.run("head -c 5000000 /dev/zero > /tmp/fill")
        assert full.exit_code != 0
        assert (await small.run("echo fine")).stdout == "fine\n"


async def test_a_container_killed_from_outside_is_a_lost_sandbox(workspace: Path, docker_client: object) -> None:
    async with belljar.Session(workspace) as box:
        with anyio.fail_after(120):
            async with box.stream("echo up; sleep 600") as run:
                async for event in run:
                    if isinstance(event, Output):
                        container = docker_client.containers.get(box.sandbox.launched.id)  # type: ignore[attr-defined]
                        await anyio.to_thread.run_sync(container.kill)
        assert run.result is not None
        assert (run.result.cause, run.result.exit_code, run.result.stdout) == ("sandbox_lost", 125, "up\n")
        with pytest.raises(SandboxLost):
            await box.run("true")


async def test_a_paused_container_is_a_lost_sandbox(workspace: Path, docker_client: object) -> None:
    async with belljar.Session(workspace) as box:
        container = docker_client.containers.get(box.sandbox.launched.id)  # type: ignore[attr-defined]
        await anyio.to_thread.run_sync(container.pause)
        with anyio.fail_after(120):
            assert (await box.run("true")).cause == "sandbox_lost"


async def test_a_session_that_is_not_open_says_so() -> None:
    with pytest.raises(UsageError, match="not open"):
        await belljar.Session().run("true")


@pytest.mark.parametrize("error", [OSError("no"), ValueError("no"), KeyError("no")])
async def test_an_on_output_that_raises_ends_its_command_and_nothing_else(box: Session, error: Exception) -> None:
    def fail(_: Output) -> None:
        raise error

    results: list[str] = []

    async def beside() -> None:
        results.append((await box.run("sleep 0.3; echo beside")).stdout)

    async def watch(stream: AbstractAsyncContextManager[AsyncIterator[object]]) -> None:
        async with stream as events:
            async for _ in events:
                pass

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(beside)
        for run in (box.run, box.persistent.run):
            with anyio.fail_after(120), pytest.raises(type(error), match="no"):
                await run("echo one; sleep 60", on_output=fail)
        with anyio.fail_after(120), pytest.raises(type(error), match="no"):
            await watch(box.stream("echo one; sleep 60", on_output=fail))
    assert results == ["beside\n"]
    assert (await box.run("pgrep -c sleep")).stdout == "0\n"


async def test_an_image_that_was_removed_is_not_run_from_memory(
    base_image: str, tmp_path: Path, docker_client: Any
) -> None:
    give(tmp_path)
    docker = docker_client.api
    name = f"bj-moved-{os.getpid()}:1"
    await anyio.to_thread.run_sync(docker.tag, base_image, *name.split(":"))
    try:
        assert (await belljar.run("echo hi", tmp_path, image=name)).stdout == "hi\n"
    finally:
        await anyio.to_thread.run_sync(docker.remove_image, name)
    with pytest.raises(ImageMissing):
        await belljar.run("echo hi", tmp_path, image=name)
