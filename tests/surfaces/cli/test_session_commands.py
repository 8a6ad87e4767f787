"""Sessions and background shells: separate calls of `belljar` use the same sandbox."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.surfaces.invoking import belljar, start

from belljar import Session


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    workspace = tmp_path_factory.mktemp("session")
    workspace.chmod(0o755)
    answer = belljar("session", "start", "--workspace", workspace, "--lease", "60")
    assert answer.status == 0, answer.stderr
    id = answer.stdout.strip()
    yield id
    assert belljar("session", "stop", id).status == 0
    assert id not in belljar("session", "list").stdout


def background(session: str, command: str) -> str:
    answer = belljar("start", "--session", session, command)
    assert answer.status == 0, answer.stderr
    return answer.stdout.strip()


def test_invocations_share_a_session(session: str) -> None:
    assert belljar("run", "--session", session, "echo kept > /tmp/file").status == 0
    assert belljar("run", "--session", session, "cat /tmp/file").stdout == "kept\n"


def test_sessions_are_listed(session: str) -> None:
    listed = belljar("session", "list", "--json").json
    assert session in [each["id"] for each in listed]
    assert session in belljar("session", "list").stdout


def test_a_shell_of_a_session_keeps_its_state_from_run_to_run(session: str) -> None:
    first = belljar(
        "run",
        "--session",
        session,
        "--shell",
        "build",
        "cd /tmp; x=1; f() { echo $x $PWD; }; exit 3",
    )
    assert first.status == 3, first.stderr
    assert (
        belljar("run", "--session", session, "--shell", "build", "f").stdout
        == "1 /tmp\n"
    )
    assert (
        belljar("run", "--session", session, "--shell", "other", "pwd").stdout
        == "/workspace\n"
    )
    for words in (
        ("run", "--shell", "build", "pwd"),
        ("run", "--session", session, "--shell", "../up", "pwd"),
        ("run", "--session", session, "--shell", "build", "--", "pwd", "-P"),
    ):
        refused = belljar(*words)
        assert (refused.status, "--shell" in refused.stderr) == (2, True), words


def test_a_command_may_run_as_another_user_only_where_there_is_root(
    session: str,
) -> None:
    assert (
        belljar("run", "--session", session, "--user", "sandbox", "id -un").stdout
        == "sandbox\n"
    )
    refused = belljar("run", "--session", session, "--user", "root", "id -un")
    assert (refused.status, "root" in refused.stderr) == (2, True)


def test_a_session_is_paused_and_goes_on(session: str) -> None:
    shell = background(session, "while :; do echo tick; sleep 0.01; done")
    paused = belljar("session", "pause", session, "--lease", "300")
    assert paused.status == 0, paused.stderr
    (listed,) = [
        each
        for each in belljar("session", "list", "--json").json
        if each["id"] == session
    ]
    assert listed["paused"]
    (line,) = [line for line in belljar("ps").stdout.splitlines() if session in line]
    assert " paused " in line
    refused = belljar("run", "--session", session, "true")
    assert (refused.status, f"belljar session resume {session}" in refused.stderr) == (
        2,
        True,
    )
    assert belljar("session", "resume", session).status == 0
    assert belljar("run", "--session", session, "echo on").stdout == "on\n"
    assert belljar("kill", shell).status == 0


def test_a_paused_session_can_be_stopped(tmp_path: Path) -> None:
    id = belljar("session", "start", "--workspace", tmp_path).stdout.strip()
    assert belljar("session", "pause", id).status == 0
    assert belljar("session", "stop", id).status == 0
    assert id not in belljar("session", "list").stdout


async def test_a_sandbox_that_ends_with_its_process_is_listed_with_it(
    workspace: Path,
) -> None:
    async with Session(workspace) as box:
        (listed,) = [
            each for each in belljar("ps", "--json").json if each["id"] == box.id
        ]
        assert (listed["keep"], listed["owner"]) == (False, os.getpid())
        (line,) = [
            line
            for line in belljar("session", "list").stdout.splitlines()
            if box.id in line
        ]
        assert f"pid {os.getpid()} " in line
        assert box.id in [each["id"] for each in belljar("stats", "--json").json]
        assert box.id not in [each.id for each in await Session.list()], (
            "nobody kept it"
        )


def test_a_shell_goes_on_between_invocations_and_is_read_again(session: str) -> None:
    shell = background(session, "echo out; echo err >&2; read line; echo got $line")
    listed = {each["id"]: each for each in belljar("shells", "--json").json}
    assert (listed[shell]["status"], listed[shell]["session"]) == ("running", session)
    for _ in range(2):
        answer = belljar("logs", shell)
        assert (answer.stdout, answer.stderr) == ("out\n", "err\n")
    assert belljar("kill", shell).status == 0
    assert belljar("kill", shell).status == 0
    told = belljar("logs", "--json", shell).json
    assert (told["status"], told["stdout"], told["stderr"]) == (
        "killed",
        "out\n",
        "err\n",
    )
    assert shell in belljar("shells", "--session", session).stdout


def test_logs_follow_to_the_end(session: str) -> None:
    shell = background(
        session, "until test -e /tmp/go; do sleep 0.05; done; echo late; exit 3"
    )
    with start("logs", "-f", shell) as process:
        assert belljar("run", "--session", session, "touch /tmp/go").status == 0
        out, err = process.communicate(timeout=120)
        assert (process.returncode, out, err) == (0, b"late\n", b"")
    (ended,) = [
        each for each in belljar("shells", "--json").json if each["id"] == shell
    ]
    assert (ended["status"], ended["exit_code"]) == ("failed", 3)


def test_logs_into_a_closed_pipe_end_quietly(session: str) -> None:
    shell = background(session, "yes")
    with start("logs", "-f", shell) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(120) == 141
        assert process.stderr.read() == b""
    assert belljar("kill", shell, "--json").json == {"killed": [shell]}


def test_a_denied_command_does_not_become_a_shell(session: str) -> None:
    answer = belljar("start", "--session", session, "rm -rf /")
    assert answer.status == 126
    assert "denied" in answer.complaint


def test_a_session_that_is_never_stopped_ends_with_its_lease(
    workspace: Path, docker_client: object
) -> None:
    id = belljar(
        "session", "start", "--workspace", workspace, "--lease", "1"
    ).stdout.strip()
    gone = subprocess.run(
        ["docker", "wait", f"belljar-{id}"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert gone.returncode == 0 or "No such container" in gone.stderr
    answer = belljar("run", "--session", id, "true")
    assert answer.status == 2
    assert belljar("prune").status == 0
    assert id not in belljar("session", "list").stdout
