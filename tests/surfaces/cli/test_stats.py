"""The resources that a session uses."""

from __future__ import annotations

from tests.surfaces.cli.test_attach import session as session
from tests.surfaces.invoking import belljar
from tests.surfaces.real_terminal import Terminal


def test_stats_show_what_a_session_uses(session: str) -> None:
    (row,) = [
        each
        for each in belljar("stats", "desk", "--json").json
        if each["id"] == session
    ]
    assert row["memory"] > 0
    assert row["pids"] > 0
    assert "desk" in belljar("stats", "--once").stdout


def test_on_a_terminal_stats_are_refreshed_until_ctrl_c(session: str) -> None:
    terminal = Terminal.belljar("stats", "desk")
    terminal.until("desk")
    again = terminal.until("\x1b[2A\x1b[J")
    assert "MiB" in again
    terminal.until("desk")
    terminal.type("\x03")
    assert terminal.status() == 130


def test_q_ends_stats_too(session: str) -> None:
    terminal = Terminal.belljar("stats", "desk")
    terminal.until("MiB")
    terminal.type("q")
    assert terminal.status() == 0
