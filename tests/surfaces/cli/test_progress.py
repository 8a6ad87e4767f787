"""Progress of long operations."""

from __future__ import annotations

import io

import pytest

from belljar.surfaces.cli import console


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_one_line_that_rewrites_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", screen := Screen())
    bar = console.Bar()
    bar(0.5, "half\nway")
    bar(None, "more")
    assert screen.getvalue() == "\r\x1b[K[##########          ]  50% half\\nway\r\x1b[Kmore"
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
    assert capsys.readouterr().err == "belljar: building it …\nbelljar: 50% installing (12 s) …\n"


def test_progress_says_nothing_where_there_was_nothing_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    console.Bar()(1.0, "it is ready")
    assert capsys.readouterr().err == ""
