"""Safe mode's own commands."""

from __future__ import annotations

from tests.surfaces.cli.test_safe_mode import terminal as terminal
from tests.surfaces.real_terminal import Terminal


def test_our_own_commands_answer(terminal: Terminal) -> None:
    terminal.line(":help")
    terminal.until("Ctrl+C interrupts")
    terminal.line(":polcy")
    terminal.until("did you mean :policy?")
    terminal.line(":policy")
    terminal.until("default (")
    terminal.until("delete.root")
    terminal.line(":shells")
    terminal.until("STATUS")
    terminal.line("for i in 1 2; do")
    terminal.until(">")
    terminal.type("echo n$((i + 5)); done\r")
    terminal.until("n7")
    terminal.line("exit 5")
    assert terminal.status() == 5
