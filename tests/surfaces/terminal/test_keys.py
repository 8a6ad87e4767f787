"""Keys for the program, and the few that Belljar keeps for itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.surfaces.cli.test_run_on_a_terminal import run
from tests.surfaces.invoking import belljar
from tests.surfaces.real_terminal import Terminal

pytestmark = pytest.mark.usefixtures("base_image")


def test_ctrl_c_ctrl_d_and_ctrl_backslash_go_inside(workspace: Path) -> None:
    traps = "trap 'echo got-int' INT; trap 'echo got-quit' QUIT"
    terminal = run(workspace, f"{traps}; echo up; until cat; do :; done; echo over")
    terminal.until("up\r\n")
    terminal.insist("\x03", "got-int")
    terminal.insist("\x1c", "got-quit")
    terminal.insist("\x04", "over")
    assert terminal.status() == 0


def test_a_single_ctrl_p_reaches_the_program(workspace: Path) -> None:
    terminal = run(workspace, "stty raw -echo; echo up; head -c 1 | od -c")
    terminal.until("up")
    terminal.insist("\x10", "020")
    assert terminal.status() == 0


def test_a_detached_program_runs_on_and_its_sandbox_ends_with_it(
    workspace: Path,
) -> None:
    first = run(workspace, "echo u'p'; read -p 'say: ' x; echo got-$x; exit 7")
    first.until("say: ")
    first.type("\x10\x11")
    first.until("left running; `belljar attach ")
    id = first.until("`")
    assert first.status() == 0
    (shell,) = [each for each in belljar("shells", "--json").json if each["id"] == id]
    assert shell["status"] == "running"
    session = shell["session"]
    assert "read -p" in shell["command"]
    belljar("prune")  # must not end it, although its maker is gone
    second = Terminal.belljar("attach", id)
    second.until("attached to ")
    second.until("say: ")  # its earlier output
    second.type("it\r")
    second.until("got-it")
    assert second.status() == 7
    assert session not in belljar("session", "list").stdout
