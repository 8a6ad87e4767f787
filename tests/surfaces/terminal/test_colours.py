"""Colours of diffs."""

from __future__ import annotations

import re
import signal
import threading

import pytest
from pygments.lexer import RegexLexer
from pygments.token import Text

from belljar.surfaces.terminal import colours
from belljar.surfaces.terminal.colours import LONGEST, coloured, fragments

DIFF = [
    "diff --git a/x.py b/x.py",
    "@@ -1,2 +1,2 @@",
    " def f(x):",
    "-    return 1",
    "+    return 'a'  # why",
]


@pytest.fixture(autouse=True)
def _on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)


def texts(lines: list[str], path: str) -> list[str]:
    return ["".join(text for _, text in line) for line in fragments(lines, path)]


@pytest.mark.parametrize("path", ["x.py", "x.unknown", "x.txt", "Makefile"])
def test_no_character_is_lost_or_added(path: str) -> None:
    assert texts(DIFF, path) == DIFF


def test_a_language_s_words_are_told_apart() -> None:
    found = [*fragments(DIFF, "dir/x.py")]
    assert ("ansiblue", "def") in found[2]
    assert found[3] == [("ansired", DIFF[3])]
    assert {style for style, text in found[4] if text in ("'", "a", "# why")} == {
        "ansiyellow",
        "italic",
    }


def test_text_that_was_made_to_keep_a_language_s_rules_busy_gets_no_colours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Slow(RegexLexer):
        tokens = {"root": [(r"(a+)+b", Text), (r".|\n", Text)]}  # noqa: RUF012

    monkeypatch.setattr(colours, "_lexer", lambda name: Slow())
    before = signal.getsignal(signal.SIGALRM)
    lines = ["@@ -1 +1 @@", f"+{'a' * 60}"]
    assert texts(lines, "x") == lines
    assert signal.getsignal(signal.SIGALRM) is before


def test_a_long_line_is_cut_and_says_so() -> None:
    (line,) = texts([f"+{'x' * LONGEST}y"], "x.py")
    assert line.endswith(" … 2 more characters")


def test_another_thread_gets_no_colours_of_a_language() -> None:
    found: list[list[str]] = []
    thread = threading.Thread(target=lambda: found.append(texts(DIFF, "x.py")))
    thread.start()
    thread.join()
    assert found == [DIFF]


@pytest.fixture(params=[{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def plain(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in request.param.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("plain")
def test_who_wants_no_colours_gets_none() -> None:
    assert coloured("+x") == "+x"
    assert not any(
        style == "ansiblue" for line in fragments(DIFF, "x.py") for style, _ in line
    )


def test_a_line_for_a_terminal_is_coloured_by_its_sign_as_a_whole() -> None:
    assert coloured("+x") == "\x1b[32m+x\x1b[0m"
    assert coloured(" x") == " x"
    assert re.sub(r"\x1b\[[0-9]*m", "", coloured("@@ -1 +1 @@")) == "@@ -1 +1 @@"
