"""Opening a session, and giving it up if a signal ends Belljar meanwhile."""

from __future__ import annotations

import signal
import socket
from pathlib import Path

import pytest
from tests.surfaces.cli.test_safe_mode import terminal as terminal
from tests.surfaces.invoking import belljar, start
from tests.surfaces.real_terminal import Terminal

OWN_POLICY = """
[policy]
name = "own"
extends = "default"

[[rule]]
id = "no.date"
program = ["date"]
decision = "deny"
reason = "Not in this house."
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_command_while_its_session_opens(
    workspace: Path, tmp_path: Path, number: signal.Signals
) -> None:
    with socket.socket(socket.AF_UNIX) as engine:  # never answers
        engine.bind(str(tmp_path / "engine"))
        engine.listen()
        env = {"DOCKER_HOST": f"unix://{tmp_path}/engine"}
        with (
            start("shell", "--workspace", workspace, stdin=-1, env=env) as process,
            engine.accept()[0],
        ):
            process.send_signal(number)
            assert process.wait(120) == 128 + number


def test_safe_mode_works_in_a_running_session(workspace: Path, tmp_path: Path) -> None:
    id = belljar("session", "start", "--workspace", workspace).stdout.strip()
    try:
        terminal = Terminal.belljar(
            "shell", "--session", id, BELLJAR_STATE=str(tmp_path / "state")
        )
        terminal.line("echo left > /tmp/there")
        terminal.until("exit 0")
        terminal.line(":quit")
        assert terminal.status() == 0
        assert belljar("run", "--session", id, "cat /tmp/there").stdout == "left\n"
    finally:
        belljar("session", "stop", id)


def test_a_session_is_judged_by_the_policy_that_it_was_started_with(
    workspace: Path, tmp_path: Path
) -> None:
    (tmp_path / "own.toml").write_text(OWN_POLICY)
    id = belljar(
        "session",
        "start",
        "--workspace",
        workspace,
        "--policy",
        "own.toml",
        cwd=tmp_path,
    ).stdout.strip()
    try:
        for command in (["run"], ["start"]):
            assert (
                "Not in this house."
                in belljar(*command, "--session", id, "date", cwd=workspace).complaint
            )
        refused = belljar(
            "call", "--session", id, "Bash", "command=date", cwd=workspace
        )
        assert "Not in this house." in refused.stdout
        assert (
            belljar("run", "--session", id, "--policy", "default", "date").status == 0
        )
        (tmp_path / "own.toml").write_text('[policy]\nname = "own"\n')
        assert "Not in this house." in belljar("run", "--session", id, "date").complaint
    finally:
        belljar("session", "stop", id)


@pytest.mark.parametrize(
    "option",
    [
        "--network=full",
        "--memory=64m",
        "--image=python",
        "--workspace=.",
        "--mount=/usr:/data",
        "--staged",
    ],
)
@pytest.mark.parametrize(
    "command", [["run", "true"], ["shell"], ["call", "Bash", "command=true"]]
)
def test_options_that_a_running_session_cannot_follow_are_refused(
    command: list[str], option: str
) -> None:
    first, *rest = command
    answer = belljar(first, option, "--session", "bj-0123456789ab", *rest)
    flag = option.partition("=")[0]
    assert (answer.status, answer.complaint) == (
        2, f"belljar: {flag} and --session do not go together: use `belljar session start {flag}`",
    )  # fmt: skip
