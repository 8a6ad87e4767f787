"""The contract of a session, over both kinds of link (a socket, or a stream through the engine), and over a service."""

import gc
import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
from tests.owners import give
from tests.session.trusting import Answers, approving, trusting
from tests.surfaces.http.serving import KEY, serving

import belljar
from belljar import Session
from belljar import host as hosts
from belljar.errors import (
    CommandError,
    CommandNotExecutable,
    CommandNotFound,
    ImageMissing,
    PolicyDenied,
    UsageError,
    WorkingDirectoryError,
    WorkspaceError,
)
from belljar.session.output import Capture
from belljar.session.running_command import RunningCommand
from belljar.session.watched_run import Run


@pytest.fixture(scope="module", params=["socket", "bridge", "service"])
async def box(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Session]:
    if request.param == "service":
        with serving(tmp_path_factory.mktemp("serve")) as server:
            far = belljar.connect(server.url, key=KEY)
            async with belljar.Session(
                far.workspace("contract"), host=far, approve=Answers()
            ) as remote:
                vars(remote)["workspace"] = SimpleNamespace(
                    path=server.workspace("contract")
                )
                yield remote
        return
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


# Output.


def _kept_of_commands() -> list[object]:
    return [
        each
        for each in gc.get_objects()
        if isinstance(each, (RunningCommand, Run, Capture))
    ]


async def test_output_is_freed_with_its_result(box: Session) -> None:
    """Without a reference cycle. Else a full garbage collection must free it, and that delays the loop."""
    if not isinstance(box, Session):
        pytest.skip("a client of a service keeps no such objects of a command")
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
        with anyio.fail_after(60):  # the last command's end may still be on its way
            while not set(map(id, _kept_of_commands())) <= before:  # noqa: ASYNC110
                await anyio.sleep(0.01)
    finally:
        gc.enable()


async def test_stdout_and_stderr_come_back_apart(box: Session) -> None:
    result = await box.run("echo out; echo err >&2")
    assert (result.cause, result.exit_code, result.stdout, result.stderr) == (
        "exited",
        0,
        "out\n",
        "err\n",
    )
    assert result.verdict is not None
    assert result.verdict.decision == "allow"


async def test_a_list_runs_without_a_shell(box: Session) -> None:
    assert (
        await box.run(["printf", "%s|", "a b", "$HOME", "*"])
    ).stdout == "a b|$HOME|*|"


async def test_combined_output_is_in_exact_order(box: Session) -> None:
    result = await box.run(
        "for i in $(seq 50); do echo o$i; echo e$i >&2; done", combined=True
    )
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


# Input and environment.


async def test_variables_and_directory_hold_for_one_command(box: Session) -> None:
    (host(box) / "sub").mkdir(exist_ok=True)
    result = await box.run(
        'echo "$GREETING"; pwd', env={"GREETING": "hé llo\n$x"}, cwd="sub"
    )
    assert result.stdout == "hé llo\n$x\n/workspace/sub\n"
    assert (await box.run('echo "[$GREETING]"; pwd')).stdout == "[]\n/workspace\n"


async def test_nothing_of_the_hosts_environment_gets_in(
    box: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOST_SECRET", "hunter2")
    result = await box.run("env")
    names = {line.partition("=")[0] for line in result.stdout.splitlines()}
    names.discard("container")  # Podman sets it to the engine's name
    assert names <= {
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "SHELL",
        "LC_CTYPE",
        "TERM",
        "PWD",
        "SHLVL",
        "_",
        "OLDPWD",
    }


async def test_a_clean_environment_is_empty(box: Session) -> None:
    assert (await box.run(["/usr/bin/env"], clean_env=True)).stdout == ""
    assert (
        await box.run(["/usr/bin/env"], clean_env=True, env={"A": "1"})
    ).stdout == "A=1\n"


async def test_stdin_is_what_was_given_and_otherwise_empty(box: Session) -> None:
    data = os.urandom(300_000)
    assert (await box.run(["cat"], stdin=data)).stdout_bytes == data
    assert (await box.run("cat; echo done")).stdout == "done\n"


async def test_unread_stdin_does_not_hang(box: Session) -> None:
    assert (await box.run("exit 4", stdin=b"x" * 5_000_000)).exit_code == 4


async def test_a_command_of_a_mebibyte_runs(box: Session) -> None:
    if not isinstance(box, Session):
        pytest.skip("a service takes at most a mebibyte of JSON")
    text = "true " + "x" * (1 << 20)
    with trusting(box):  # skip the policy, which has a size limit of its own
        assert (await box.run(text)).exit_code == 0


async def test_ten_thousand_variables_arrive(box: Session) -> None:
    env = {f"VARIABLE_{n}": str(n) for n in range(10_000)}
    result = await box.run("env | grep -c ^VARIABLE_", env=env)
    assert result.stdout == "10000\n"


async def test_a_command_gets_a_terminal_only_if_asked(box: Session) -> None:
    result = await box.run("test -t 1 && tty && stty size", pty=True, timeout=60)
    assert result.stdout.replace("\r", "").splitlines()[1:] == ["24 80"]


# Timeouts.


async def test_sigterm_comes_first(box: Session) -> None:
    result = await box.run(
        "trap 'echo cleaned; exit 9' TERM; while :; do sleep 0.01; done",
        timeout=0.3,
        grace=5,
    )
    assert (result.cause, result.stdout) == ("timeout", "cleaned\n")


# Streams.


async def test_many_commands_at_once_do_not_mix(box: Session) -> None:
    found: dict[int, str] = {}

    async def one(n: int) -> None:
        found[n] = (
            await box.run(f"for i in 1 2 3; do echo {n}; done; echo e{n} >&2")
        ).output

    async with anyio.create_task_group() as tasks:
        for n in range(40):
            tasks.start_soon(one, n)
    assert all(sorted(found[n].split()) == [str(n)] * 3 + [f"e{n}"] for n in range(40))


# Refusals.


async def test_a_missing_program_is_command_not_found(box: Session) -> None:
    with pytest.raises(CommandNotFound, match="no-such-program"):
        await box.run(["no-such-program"])


async def test_a_file_that_is_not_executable_is_refused(box: Session) -> None:
    (host(box) / "notes.txt").write_text("hello")
    with pytest.raises(CommandNotExecutable):
        await box.run(["./notes.txt"])


async def test_bash_reports_a_missing_command_itself(box: Session) -> None:
    result = await box.run("no-such-program")
    assert result.exit_code == 127
    assert result.stderr == "bash: line 1: no-such-program: command not found\n"


@pytest.mark.parametrize("cwd", ["missing", "..", "/missing", "a\0b"])
async def test_an_invalid_working_directory_is_refused(box: Session, cwd: str) -> None:
    with pytest.raises(WorkingDirectoryError, match="Invalid working directory"):
        await box.run("pwd", cwd=cwd)


@pytest.mark.parametrize("env", [{"A=B": "1"}, {"": "1"}, {"A": "x\0y"}])
async def test_an_invalid_variable_is_refused(
    box: Session, env: dict[str, str]
) -> None:
    with pytest.raises(UsageError):
        await box.run("true", env=env)


async def test_an_environment_beyond_all_bounds_is_refused(box: Session) -> None:
    with pytest.raises((UsageError, CommandError)):
        await box.run("true", env={"HUGE": "x" * (9 << 20)})


@pytest.mark.parametrize("command", ["echo a\0b", "", "   "])
async def test_a_command_that_cannot_be_judged_is_denied(
    box: Session, command: str
) -> None:
    with pytest.raises(PolicyDenied):
        await box.run(command)


async def test_a_denied_command_does_not_run(box: Session) -> None:
    with pytest.raises(PolicyDenied) as denied:
        await box.run("touch denied-marker; rm -rf /")
    assert denied.value.verdict.risk == "blocked"
    assert not (host(box) / "denied-marker").exists()


async def test_a_command_that_needs_approval_is_denied_without_an_approver(
    box: Session,
) -> None:
    with pytest.raises(PolicyDenied):
        await box.run("sudo ls")


async def test_approval_is_asked_with_the_verdict(box: Session) -> None:
    asked: list[str] = []

    async def approve(verdict: belljar.Verdict) -> bool:
        asked.append(verdict.risk)
        return "true" in verdict.canonical

    with approving(box, approve):
        assert (
            await box.run("sudo ls true")
        ).exit_code != 0  # approved, but there is no sudo inside
        with pytest.raises(PolicyDenied):
            await box.run("sudo ls false")
    assert asked == ["high", "high"]


# Files.


async def test_files_made_inside_belong_to_the_workspaces_owner(box: Session) -> None:
    await box.run("echo hi > made; mkdir -p dir; id -u")
    owner, made = host(box).stat(), (host(box) / "made").stat()
    assert (made.st_uid, made.st_gid) == (owner.st_uid, owner.st_gid)
    assert stat.S_IMODE(made.st_mode) == 0o644


async def test_a_deleted_working_directory_is_an_error_not_a_hang(box: Session) -> None:
    (host(box) / "gone").mkdir()
    (host(box) / "gone").rmdir()
    with pytest.raises(WorkingDirectoryError):
        await box.run("pwd", cwd="gone")


# Workspaces, images, endings. These tests make their own sandboxes.


async def test_roots_workspace_is_written_by_an_unprivileged_user_and_stays_roots(
    root_workspace: Path,
) -> None:
    result = await belljar.run("id -u; touch made; stat -c %u made", root_workspace)
    inside, owner = result.stdout.split()
    assert inside != "0"
    assert inside == owner
    assert (root_workspace / "made").stat().st_uid == os.geteuid()


@pytest.mark.parametrize(
    "name",
    [
        "with space",
        "new\nline",
        "co:lon",
        "com,ma",
        "ünïcödé",
        "n" * 200,
        "quo'te\"s",
        "-dash",
        "$(x)",
    ],
)
async def test_odd_names_of_workspaces_work(tmp_path: Path, name: str) -> None:
    odd = tmp_path / name
    odd.mkdir()
    give(odd)
    assert (await belljar.run("touch here && ls", odd)).stdout == "here\n"
    assert (odd / "here").exists()


@pytest.mark.parametrize("path", ["/", "/no/such/dir", "/etc/passwd", "/proc", ""])
async def test_an_invalid_workspace_is_refused(path: str) -> None:
    with pytest.raises(WorkspaceError):
        await belljar.run("true", path)


async def test_a_missing_image_is_an_error(workspace: Path) -> None:
    with pytest.raises(ImageMissing):
        await belljar.run("true", workspace, image="no/such:image")


async def test_a_session_that_is_not_open_says_so() -> None:
    with pytest.raises(
        UsageError, match=r"not open, or was closed.*belljar\.sync: `with`"
    ):
        await belljar.Session().run("true")


async def test_a_denial_without_an_approver_says_how_to_set_one(
    base_image: str, workspace: Path
) -> None:
    with pytest.raises(PolicyDenied, match=r"Session\(approve=…\)"):
        await belljar.run("kubectl delete ns prod", workspace)
    with pytest.raises(PolicyDenied) as declined:
        await belljar.run(
            "kubectl delete ns prod", workspace, approve=lambda verdict: False
        )
    assert "approve=" not in str(declined.value)


async def test_a_removed_image_is_not_used_from_a_cache(
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


async def test_a_session_and_a_shell_say_what_they_are(workspace: Path) -> None:
    box = Session(workspace)
    assert repr(box) == f"<belljar.Session of {workspace}, image base, not open>"
    async with box:
        assert (
            repr(box) == f"<belljar.Session {box.id} of {workspace}, image base, open>"
        )
        shell = await box.start("sleep 600")
        assert repr(shell) == f"<belljar.Shell {shell.id}, running: 'sleep 600'>"
    assert "closed" in repr(box) or "not open" in repr(box)
