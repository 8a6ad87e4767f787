"""Programs in safe mode get the terminal while they run."""

from __future__ import annotations

import os
from pathlib import Path

from tests.surfaces.cli.test_safe_mode import terminal as terminal
from tests.surfaces.real_terminal import Terminal


def test_a_hang_up_ends_safe_mode_while_a_program_has_the_terminal(
    terminal: Terminal,
) -> None:
    terminal.line("trap '' HUP; echo u'p'; cat")
    terminal.until("up\r\n")
    os.close(terminal.fd)
    os.waitpid(terminal.pid, 0)


def test_ctrl_z_stops_the_command_and_fg_goes_on(workspace: Path) -> None:
    shell = Terminal.host_shell(workspace)
    shell.type("belljar shell\n")
    shell.line("sh -c 'echo u\"p\"; read x; echo got $x'")
    shell.until("up\r\n")
    shell.type("\x1a")
    shell.until("Stopped")
    shell.until("exit ")
    shell.line("fg")
    shell.until("read x")
    shell.type("it\n")
    shell.until("got it")
    shell.line(":quit")
    assert "Stopped" not in shell.until("host> ")
    shell.type("exit\n")
    assert shell.status() == 0


def test_programs_have_a_terminal(terminal: Terminal) -> None:
    terminal.line("test -t 0 && test -t 1 && stty size; tput cols")
    terminal.until("24 80\r\n80\r\n")
    terminal.resize(30, 120)
    terminal.line("stty size")
    terminal.until("30 120")
    terminal.line("read -p 'name? ' name; echo hello-$name")
    terminal.until("name? ")
    terminal.type("Ada\r")
    terminal.until("hello-Ada")
    terminal.line("python3 -q")
    terminal.until(">>> ")
    terminal.type("6 * 7\r")
    terminal.until("42\r\n")
    terminal.until(
        ">>> "
    )  # earlier the key would come while the terminal's settings change
    terminal.type("\x04")
    terminal.line("seq 500 | less")
    terminal.until("\x1b[?1049h")
    terminal.type("q")
    terminal.until("\x1b[?1049l")
    terminal.line(":quit")
    assert terminal.status() == 0


def test_keys_that_nothing_read_are_thrown_away(
    terminal: Terminal, workspace: Path
) -> None:
    terminal.line("echo u'p'; sleep 1")
    terminal.until("up\r\n")
    terminal.type("touch typed-ahead\n")
    terminal.until("exit 0")
    terminal.line("echo no'w'; cat")
    terminal.until("now\r\n")
    terminal.type("own\n\x04")
    assert "touch" not in terminal.until("exit 0")
    terminal.line(":quit")
    assert terminal.status() == 0
    assert list(workspace.iterdir()) == []
