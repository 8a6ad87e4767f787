"""Detaching from a program that runs in a session, and attaching to it again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.surfaces.invoking import belljar
from tests.surfaces.real_terminal import Terminal

PROGRAM = "echo u'p'; while read -p 'say: ' x; do echo you-said-$x; [[ $x == quit ]] && exit 7; done"


@pytest.fixture
def session(workspace: Path) -> Iterator[str]:
    id = belljar(
        "session", "start", "--workspace", workspace, "--name", "desk"
    ).stdout.strip()
    yield id
    belljar("session", "stop", id)


def test_a_program_can_be_detached_and_attached_again(session: str) -> None:
    first = Terminal.belljar("run", "--session", "desk", PROGRAM)
    first.until("up\r\n")
    first.until("say: ")
    first.type("one\r")
    first.until("you-said-one")
    first.type("\x10\x11")
    left = first.until("comes back")
    assert first.status() == 0
    id = next(
        word for word in left.replace("`", " ").split() if word.startswith("shell_")
    )
    (shell,) = belljar("shells", "--json").json
    assert (shell["id"], shell["status"]) == (id, "running")
    second = Terminal.belljar("attach", rows=33, cols=90)  # the only one that runs
    second.until("you-said-one")  # its earlier output
    second.type("\x10two\r")  # a single Ctrl+P goes to the program
    second.until("two")
    second.type("quit\r")
    second.until("you-said-quit")
    assert second.status() == 7
    assert belljar("wait", id).status == 7


def test_a_detached_session_keeps_its_policy(workspace: Path) -> None:
    (workspace / "text").write_text("begun\n")
    terminal = Terminal.belljar(
        "run", "--workspace", str(workspace), "--policy", "strict", "cat text -"
    )
    terminal.until("begun\r\n")  # not the echo of keys that were typed too early
    terminal.type("\x10\x11")
    terminal.until("comes back")
    assert terminal.status() == 0
    (shell,) = belljar("shells", "--json").json
    try:
        assert belljar("run", "--session", shell["session"], "dd --help").status == 126
    finally:
        belljar("session", "stop", shell["session"])


def test_attaching_shows_only_the_end_of_long_output(session: str) -> None:
    command = "seq -f 'line-%.0f' 300000; echo a'b'; read x; echo got-$x"
    id = belljar("start", "--session", session, "--tty", command).stdout.strip()
    while "ab" not in belljar("logs", "-n", "3", id).stdout:
        pass
    terminal = Terminal.belljar("attach", id)
    terminal.until("leaves it running\r\n")
    shown = terminal.until("ab\r\n")
    assert len(shown) <= 70_000
    assert shown.startswith("line-")
    assert "line-300000" in shown
    terminal.type("it\r")
    terminal.until("got-it")
    assert terminal.status() == 0


def test_an_attached_program_gets_the_terminal_s_size(session: str) -> None:
    terminal = Terminal.belljar(
        "run",
        "--session",
        session,
        "stty size; until [ \"$(stty size)\" = '20 60' ]; do sleep 0.1; done; stty size",
        rows=31,
        cols=77,
    )
    terminal.until("31 77")
    terminal.resize(20, 60)
    terminal.until("20 60")
    assert terminal.status() == 0


def test_a_flood_of_output_in_a_session_loses_nothing(session: str) -> None:
    shown = Terminal.belljar("run", "--session", session, "seq 300000").rest()
    assert shown.split() == [str(number) for number in range(1, 300001)]


def test_a_lost_terminal_leaves_the_program_running(session: str) -> None:
    terminal = Terminal.belljar("run", "--session", session, "echo u'p'; cat")
    terminal.until("up\r\n")
    os.close(terminal.fd)
    os.waitpid(terminal.pid, 0)
    (shell,) = belljar("shells", "--session", session, "--json").json
    assert shell["status"] == "running"


def test_attach_needs_a_terminal(session: str) -> None:
    answer = belljar("attach", "shell_00000000")
    assert answer.status == 2
    assert "needs a terminal" in answer.complaint


def test_wait_returns_the_status_or_times_out(session: str) -> None:
    quick = belljar("start", "--session", "desk", "exit 5").stdout.strip()
    assert belljar("wait", quick).status == 5
    slow = belljar("start", "--session", "desk", "sleep 60").stdout.strip()
    given_up = belljar("wait", "--timeout", "0.2", slow)
    assert given_up.status == 124
    assert "still running" in given_up.complaint
    belljar("kill", slow)


def test_logs_show_the_last_lines(session: str) -> None:
    id = belljar("start", "--session", "desk", "seq 100").stdout.strip()
    belljar("wait", id)
    assert belljar("logs", "-n", "2", id).stdout == "99\n100\n"
    assert belljar("logs", "-n", "0", id).stdout == ""
    assert len(belljar("logs", id).stdout.splitlines()) == 100


def test_attach_without_an_id_says_what_to_name(session: str) -> None:
    terminal = Terminal.belljar("attach")
    terminal.until("no background shell runs")
    assert terminal.status() == 2
    for _ in range(2):
        belljar("start", "--session", "desk", "sleep 600")
    terminal = Terminal.belljar("attach")
    terminal.until("2 background shells run (shell_")
    assert terminal.status() == 2
