"""Full-screen programs and interactive prompts, on a real terminal inside the sandbox."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.surfaces.real_terminal import Terminal

from belljar.engines.docker.engine import DockerEngine
from belljar.images import catalog

pytestmark = pytest.mark.usefixtures("base_image")
LEFT = "\x1b[?1049l"
"""Sent when a program leaves the alternate screen."""


def run(workspace: Path, *args: str, rows: int = 24, cols: int = 80) -> Terminal:
    return Terminal.belljar(
        "run", "--workspace", workspace, *args, rows=rows, cols=cols
    )


def test_vim_edits_a_file_saves_it_and_quits(workspace: Path) -> None:
    terminal = run(workspace, "vim notes.txt")
    terminal.until("notes.txt")
    terminal.type("ihello from inside\x1b")
    terminal.insist(":wq\r", LEFT)
    assert terminal.status() == 0
    assert (workspace / "notes.txt").read_text() == "hello from inside\n"


def test_vim_in_safe_mode_is_stopped_brought_back_and_redrawn_at_another_size(
    workspace: Path,
) -> None:
    (workspace / "long.txt").write_text("".join(f"line {n}\n" for n in range(1, 100)))
    terminal = Terminal.belljar("shell", "--workspace", workspace, rows=20, cols=80)
    terminal.line("vim long.txt")
    terminal.until("line 19")
    terminal.resize(40, 80)
    terminal.until("line 39")
    terminal.type("\x1a")
    terminal.until("Stopped")
    terminal.line("fg")
    terminal.until("line 39")
    terminal.type("\x03")  # vim then prints how to leave it
    terminal.until(":qa")
    terminal.insist(":q!\r", LEFT)
    terminal.line("exit")
    assert terminal.status() == 0


def test_less_turns_pages_follows_the_size_and_quits(workspace: Path) -> None:
    terminal = run(workspace, "seq 1000 | less", rows=10)
    terminal.until("9\r\n:")
    terminal.resize(30, 80)
    terminal.until("29\r\n:")
    terminal.type("G")
    terminal.until("1000\r\n")
    terminal.until("(END)")
    terminal.type("/^5$\r")
    terminal.until("Pattern not found")
    terminal.type("\r")
    terminal.insist("q", LEFT)
    assert terminal.status() == 0


@pytest.mark.parametrize(
    ("program", "shows"), [("top", "load average"), ("htop", "Load average")]
)
def test_a_monitor_draws_itself_again_at_another_size_and_quits(
    workspace: Path, program: str, shows: str
) -> None:
    terminal = run(workspace, program, rows=24, cols=100)
    terminal.until(shows)
    terminal.resize(12, 70)
    terminal.until(shows)
    terminal.insist("q", "\x1b[?25h")
    assert terminal.status() == 0


def test_pythons_prompt_takes_lines_ctrl_c_and_ctrl_d(workspace: Path) -> None:
    terminal = run(workspace, "python3 -q")
    terminal.until(">>> ")
    terminal.type("6 * 7\r")
    terminal.until("42\r\n")
    terminal.until(">>> ")
    terminal.type("import time; time.sleep(600)\r")
    terminal.until("sleep(600)")
    terminal.insist("\x03", "KeyboardInterrupt")
    terminal.until(">>> ")
    terminal.type("\x04")
    assert terminal.status() in (
        0,
        130,
    )  # some Pythons end with a caught signal's status, also outside


def test_nodes_prompt_takes_lines_ctrl_c_and_ctrl_d(
    workspace: Path, engine: DockerEngine
) -> None:
    if engine.image(catalog.reference("node")) is None:
        pytest.skip("the image node is not built here: belljar images build node")
    terminal = run(workspace, "--image", "node", "node")
    terminal.until("> ")
    terminal.type("6 * 7\r")
    terminal.until("42")
    terminal.type("console.log('u' + 'p'); while (true) {}\r")
    terminal.until("up\r\n")
    terminal.type("\x03")
    terminal.until("Script execution was interrupted")
    terminal.until("\x1b[3G")
    terminal.type("\x04")
    assert terminal.status() == 0


def test_ctrl_backslash_quits_a_program_and_not_the_prompt(workspace: Path) -> None:
    terminal = Terminal.belljar("shell", "--workspace", workspace)
    terminal.line("echo u'p'; sleep 600")
    terminal.until("up")
    terminal.insist("\x1c", "exit 131")
    terminal.line("echo still-'here'")
    terminal.until("still-here")
    terminal.line("exit")
    assert terminal.status() == 0
