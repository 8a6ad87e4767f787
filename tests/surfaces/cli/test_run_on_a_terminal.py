"""`belljar run` on a real terminal: the program inside gets one too, and no key typed for it reaches the host."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from tests.surfaces.invoking import belljar
from tests.surfaces.real_terminal import Terminal

pytestmark = pytest.mark.usefixtures("base_image")


def run(workspace: Path, *args: str, rows: int = 24, cols: int = 80) -> Terminal:
    return Terminal.belljar(
        "run", "--workspace", workspace, *args, rows=rows, cols=cols
    )


def test_an_interactive_shell_runs_what_is_typed_inside(workspace: Path) -> None:
    shell = Terminal.host_shell(workspace)
    shell.type("belljar run 'PS1=inside: bash --norc'\n")
    shell.until("inside:")
    shell.type("touch here-$((40 + 2)); hostname; exit 5\n")
    name = shell.until("host> ")
    assert os.uname().nodename not in name
    assert (workspace / "here-42").stat().st_uid != 0
    shell.type("echo status=$?\n")
    shell.until("status=5")
    shell.until("host> ")
    shell.type("exit\n")
    assert shell.status() == 0


def test_ctrl_z_stops_the_program_inside_and_not_us(workspace: Path) -> None:
    shell = Terminal.host_shell(workspace)
    shell.type("belljar run 'PS1=inside: bash --norc'\n")
    shell.until("inside:")
    shell.type("sh -c 'echo a\"b\"; exec sleep 100'\n")
    shell.until("ab\r\n")
    shell.type("\x1a")
    shell.until("Stopped")
    shell.type("jobs; exec true\n")
    shell.until("host> ")
    shell.type("jobs; echo no'jobs'\n")
    assert "belljar" not in shell.until("nojobs\r\n").replace("jobs; echo", "")
    shell.type("exit\n")
    shell.status()


def test_the_program_learns_the_size_and_every_change_of_it(workspace: Path) -> None:
    terminal = run(
        workspace,
        "trap 'stty size' WINCH; stty size; echo $TERM; while :; do sleep 0.1; done",
        rows=31,
        cols=99,
    )
    terminal.until("31 99\r\nxterm\r\n")
    terminal.resize(17, 45)
    terminal.until("17 45")
    terminal.signal(signal.SIGTERM)
    assert terminal.status() == 128 + signal.SIGTERM


def test_a_program_s_question_can_be_answered(workspace: Path) -> None:
    terminal = run(workspace, "read -p 'name? ' name; echo hello $name")
    terminal.until("name? ")
    terminal.type("Ada\r")
    terminal.until("hello Ada")
    assert terminal.status() == 0


def test_a_terminal_can_be_forced_and_refused(workspace: Path) -> None:
    forced = belljar(
        "run",
        "--workspace",
        workspace,
        "-t",
        "test -t 0 && test -t 1 && echo a terminal",
    )
    assert (forced.status, forced.stdout) == (0, "a terminal\r\n")
    piped = belljar(
        "run",
        "--workspace",
        workspace,
        "-it",
        "read line; echo got $line",
        stdin=b"typed\n",
    )
    assert piped.stdout.splitlines()[-1] == "got typed"
    terminal = run(
        workspace, "-T", "test -t 1 || echo no terminal; read line; echo got $line"
    )
    terminal.until("no terminal")
    terminal.type("typed\n")
    terminal.until("got typed")
    assert terminal.status() == 0


def test_sequences_that_attack_the_terminal_do_not_pass(workspace: Path) -> None:
    terminal = run(
        workspace,
        r"printf 'a\033]52;c;aGk=\007b\033]0;title\033\\c\033[6n\033[c\033[31mred\033[2J\033P+q\033\\end'",
    )
    shown = terminal.until("end")
    assert shown == "abc\x1b[31mred\x1b[2J"
    assert terminal.status() == 0
