"""Programs that query their terminal."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.surfaces.cli.test_run_on_a_terminal import run

from belljar.surfaces.terminal.drawing import Drawing

pytestmark = pytest.mark.usefixtures("base_image")

ASKS = """
import os, tty
tty.setraw(0)
def ask(query, end):
    os.write(1, query)
    said = b""
    while not said.endswith(end):
        said += os.read(0, 1)
    return said[1:].decode()
print(ask(b"\\x1b[c", b"c"), ask(b"\\x1b[999;999H\\x1b[6n", b"R"), ask(b"\\x1b[?2004h\\x1b[?2004$p", b"y"), end="!")
"""


def test_a_program_s_terminal_queries_are_answered_by_belljar(workspace: Path) -> None:
    (workspace / "asks.py").write_text(ASKS)
    terminal = run(workspace, "python3 asks.py", rows=31, cols=99)
    shown = terminal.until("!")
    assert shown.endswith("[?62;22c [31;99R [?2004;1$y")
    assert "\x1b[c" not in shown
    assert "\x1b[6n" not in shown
    assert terminal.status() == 0


def test_a_program_that_never_reads_its_answers_does_not_block(workspace: Path) -> None:
    terminal = run(
        workspace, r"for i in {1..20000}; do printf '\033[6n'; done; echo do'ne'"
    )
    terminal.until("done")
    assert terminal.status() == 0


def asked(data: bytes, *, rows: int = 24, cols: int = 80) -> bytes:
    said: list[bytes] = []
    Drawing(lambda: (rows, cols), said.append).feed(data)
    return b"".join(said)


ANSWERS = [
    pytest.param(b"\x1b[c\x1b[0c", b"\x1b[?62;22c" * 2, id="what are you"),
    pytest.param(b"\x1b[>c", b"\x1b[>0;95;0c", id="which version"),
    pytest.param(b"\x1b[5n", b"\x1b[0n", id="are you well"),
    pytest.param(b"\x1b[6n", b"\x1b[24;1R", id="at the beginning, in the last row"),
    pytest.param(b"\x1b[?6n", b"\x1b[?24;1R", id="the same, as DEC has it"),
    pytest.param(
        b"\x1b[999;999H\x1b[6n", b"\x1b[24;80R", id="no further than the corner"
    ),
    pytest.param(
        b"\x1b[2;1H\xe2\x96\xbd\x1b[6n", b"\x1b[2;2R", id="vim: how wide is this"
    ),
    pytest.param(b"\x1b[3;5Habc\b\x1b[2B\x1b[6n", b"\x1b[5;7R", id="moved and written"),
    pytest.param(b"\x1b[1;79Habcd\x1b[6n", b"\x1b[2;3R", id="wrapped"),
    pytest.param(
        "\x1b[1;1H日本e\u0301\x1b[6n".encode(), b"\x1b[1;6R", id="wide and combining"
    ),
    pytest.param(
        b"\x1b[5;5H\x1b7\x1b[H\x1b8\x1b[A\x1b[6n", b"\x1b[4;5R", id="saved and restored"
    ),
    pytest.param(b"\x1b[4;9Hx\r\n\ty\x1b[6n", b"\x1b[5;10R", id="next line and a tab"),
    pytest.param(b"\x1b[18t", b"\x1b[8;24;80t", id="how large are you"),
    pytest.param(
        b"\x1b[?25$p\x1b[?1049h\x1b[?1049$p",
        b"\x1b[?25;1$y\x1b[?1049;1$y",
        id="modes that are on",
    ),
    pytest.param(
        b"\x1b[?2004$p\x1b[?9999$p",
        b"\x1b[?2004;2$y\x1b[?9999;0$y",
        id="off, and unknown",
    ),
]


@pytest.mark.parametrize(("data", "answer"), ANSWERS)
def test_each_known_query_has_its_answer(data: bytes, answer: bytes) -> None:
    assert asked(data) == answer


@settings(deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [
                b"\x1b[6n",
                b"\x1b[9A",
                b"\x1b[99C",
                b"\x1b[3;200H",
                b"\n",
                b"\x1bM",
                b"\xe6\x97\xa5" * 70,
            ]
        )
    )
)
def test_the_reported_cursor_is_never_off_the_screen(pieces: list[bytes]) -> None:
    for said in re.findall(
        rb"\x1b\[(\d+);(\d+)R", asked(b"".join(pieces), rows=10, cols=20)
    ):
        assert 1 <= int(said[0]) <= 10
        assert 1 <= int(said[1]) <= 20
