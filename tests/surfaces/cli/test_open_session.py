"""A session is opened, and given up where a signal ends us meanwhile."""

from __future__ import annotations

import signal
import socket
from pathlib import Path

import pytest
from tests.surfaces.cli.test_safe_mode import terminal as terminal
from tests.surfaces.invoking import belljar, start
from tests.surfaces.real_terminal import Terminal


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_while_it_opens(workspace: Path, tmp_path: Path, number: signal.Signals) -> None:
    with socket.socket(socket.AF_UNIX) as engine:  # that never answers
        engine.bind(str(tmp_path / "engine"))
        engine.listen()
        env = {"DOCKER_HOST": f"unix://{tmp_path}/engine"}
        with start("shell", "--workspace", workspace, stdin=-1, env=env) as process, engine.accept()[0]:
            process.send_signal(number)
            assert process.wait(120) == 128 + number


def test_safe_mode_works_in_a_session_that_goes_on(workspace: Path, tmp_path: Path) -> None:
    id = belljar("session", "start", "--workspace", workspace).stdout.strip()
    try:
        terminal = Terminal.belljar("shell", "--session", id, BELLJAR_STATE=str(tmp_path / "state"))
        terminal.line("echo left > /tmp/there")
        terminal.until("exit 0")
        terminal.line(":quit")
        assert terminal.status() == 0
        assert belljar("run", "--session", id, "cat /tmp/there").stdout == "left\n"
    finally:
        belljar("session", "stop", id)
