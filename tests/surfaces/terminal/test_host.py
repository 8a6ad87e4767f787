"""The host's terminal is restored, however the run ends."""

from __future__ import annotations

import os
import shlex
import signal
import termios
from pathlib import Path
from typing import Any

import pytest
from tests.surfaces.cli.test_run_on_a_terminal import run
from tests.surfaces.real_terminal import Terminal

pytestmark = pytest.mark.usefixtures("base_image")


def test_keys_that_the_program_did_not_read_never_reach_the_host_shell(
    workspace: Path,
) -> None:
    shell = Terminal.host_shell(workspace)
    shell.type("belljar run 'echo up; sleep 1.5'\n")
    shell.until("up\r\n")
    shell.type("touch typed-ahead\ntouch again\n")
    shell.until("host> ")
    shell.type("echo still-'here'\n")
    assert "touch" not in shell.until("still-here\r\n").split("still-")[-1]
    assert sorted(path.name for path in workspace.iterdir()) == []
    shell.type("exit\n")
    shell.status()


def test_keys_typed_for_a_denied_run_never_reach_the_host_shell(
    workspace: Path,
) -> None:
    shell = Terminal.host_shell(workspace)
    shell.type("belljar run 'rm -rf /'\ntouch for-the-sandbox\n")  # as one paste
    shell.until("denied")
    shell.until("host> ")
    shell.type("echo a'b'c\n")
    shell.until("abc\r\n")
    assert list(workspace.iterdir()) == []
    shell.type("exit\n")
    shell.status()


DRAWING = (
    r"stty raw -echo; printf '\033[?1049h\033[?25lup\n'; head -c 1 >/dev/null; exit 3"
)


@pytest.mark.parametrize(
    "ending", ["the program's own", "SIGTERM", "SIGHUP", "the sandbox is lost"]
)
def test_the_terminal_is_restored_however_the_run_ends(
    workspace: Path, tmp_path: Path, docker_client: Any, ending: str
) -> None:
    shell = Terminal.host_shell(workspace)
    (tmp_path / "drawing").write_text(f"belljar run {shlex.quote(DRAWING)}")
    shell.type(f"stty -g > {tmp_path}/before; source {tmp_path}/drawing\n")
    shell.until("\x1b[?1049h")
    shell.until("up")
    local = shell.settings()[3]
    assert isinstance(local, int)
    assert not local & (termios.ECHO | termios.ISIG | termios.ICANON)
    (own,) = Path(f"/proc/{shell.pid}/task/{shell.pid}/children").read_text().split()
    if ending == "the program's own":
        shell.type("\x03")  # an ordinary byte on a raw terminal
    elif ending == "the sandbox is lost":
        listed = docker_client.api.containers(filters={"label": "org.belljar.owner"})
        (id,) = [
            each["Id"]
            for each in listed
            if each["Labels"]["org.belljar.owner"].startswith(f"{own}:")
        ]
        docker_client.api.kill(id)
    else:
        os.kill(int(own), getattr(signal, ending))
    shell.until("\x1b[?25h")
    shell.until("\x1b[?1049l")
    shell.until("host> ")
    shell.type(f"stty -g > {tmp_path}/after; exit\n")
    shell.status()
    assert (tmp_path / "before").read_text() == (tmp_path / "after").read_text()


def test_a_hang_up_ends_the_run(workspace: Path) -> None:
    terminal = run(workspace, "trap '' HUP; echo up; cat")
    terminal.until("up\r\n")
    os.close(terminal.fd)
    os.waitpid(terminal.pid, 0)
