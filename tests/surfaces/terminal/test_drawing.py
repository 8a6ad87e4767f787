"""What passes from a program in the sandbox to a person's terminal, and what does not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from belljar.surfaces.terminal.drawing import Drawing


def drawn(*chunks: bytes) -> bytes:
    drawing = Drawing()
    return b"".join(drawing.feed(chunk) for chunk in chunks)


PASS = [
    b"text, \xc3\xa9 and \xe6\x97\xa5\r\n\tmore\x08\x07",
    b"\x1b[1;38;5;8mgrey\x1b[48;2;8;8;8m\x1b[4:3m\x1b[0m",
    b"\x1b[2J\x1b[J\x1b[1J\x1b[H\x1b[12;40H\x1b[K\x1b[3A\x1b[5X\x1b[2L\x1b[1M\x1b[4P\x1b[@\x1b[9d\x1b[7G",
    b"\x1b[2;20r\x1bM\x1bD\x1b7\x1b8\x1b[3S\x1b[2T",
    b"\x1b[?1049h\x1b[?1h\x1b=\x1b[?25l\x1b[?2004h\x1b[?1002;1006h\x1b[?7l",
    b"\x1b(0lqk\x1b(B",
    b"\x1b[4h\x1b[4l\x1b[2 q\x1b[!p",
]

DROP = [
    pytest.param(b"\x1b]52;c;aGk=\x07", id="clipboard"),
    pytest.param(b"\x1b]0;title\x1b\\", id="title"),
    pytest.param(b"\x1b]2;title\xc2\x9c", id="title, ended by C1"),
    pytest.param(b"\x1bktitle\x1b\\", id="title of screen"),
    pytest.param(b"\x1b]8;;http://example.com\x1b\\", id="link"),
    pytest.param(b"\x1bP+q544e\x1b\\", id="DCS: asks for capabilities"),
    pytest.param(b"\x1b_Gi=1;AAAA\x1b\\\x1b^x\x1b\\\x1bXy\x1b\\", id="APC, PM, SOS"),
    pytest.param(
        b"\x1b[c\x1b[>c\x1b[=c\x1b[5n\x1b[6n\x1b[?6n\x1bZ\x05",
        id="who are you, where are you",
    ),
    pytest.param(
        b"\x1b[21t\x1b[14t\x1b[22;0t\x1b[8;1;1t", id="window and title reports"
    ),
    pytest.param(
        b"\x1b[?2004$p\x1b[>0q\x1b[?u\x1b[>4;2m\x1b[>1u\x1bP$qm\x1b\\",
        id="modes asked for, keys changed",
    ),
    pytest.param(b"\x1b[5i\x1b[4i\x1b[?5i", id="printer"),
    pytest.param(
        b"\x1b[?3h\x1b[?69h\x1b[20h\x1bc\x1b%@\x1b#8\x1bH\x1b[g",
        id="column mode, reset, character sets, tabs",
    ),
    pytest.param(
        b"\x1b[3J\x1b[03J\x1b[2;3J\x1b[;3J", id="the lines that scrolled away, erased"
    ),
    pytest.param(b"\x1b[8m\x1b[0;8m\x1b[1;38;5;3;8m", id="concealed"),
    pytest.param(b"\x1b[99999999b", id="an endless repetition"),
    pytest.param(b"\x00\x0e\x0f\x11\x13\x7f\xc2\x9b\xc2\x90", id="other controls"),
]


@pytest.mark.parametrize("data", PASS)
def test_drawing_sequences_pass_unchanged(data: bytes) -> None:
    assert drawn(data) == data
    assert drawn(*(data[i : i + 1] for i in range(len(data)))) == data


@pytest.mark.parametrize("data", DROP)
def test_attacking_sequences_are_dropped_and_the_text_around_them_stays(
    data: bytes,
) -> None:
    assert drawn(b"a" + data + b"b") == b"ab"
    assert drawn(b"a", *(data[i : i + 1] for i in range(len(data))), b"b") == b"ab"


def test_of_several_modes_only_the_known_ones_pass() -> None:
    assert drawn(b"\x1b[?3;25;69l") == b"\x1b[?25l"


def test_characters_that_reorder_or_hide_text_are_replaced() -> None:
    assert (
        drawn("a\u202eb\u2066c\u200bd\ufeff".encode()).decode()
        == "a\ufffdb\ufffdc\ufffdd\ufffd"
    )


def test_a_sequence_broken_off_by_a_control_is_dropped_and_the_control_stays() -> None:
    assert drawn(b"\x1b[3\n1mx\x1b\x1b[31my") == b"\n1mx\x1b[31my"


def test_an_unfinished_string_hides_only_what_a_terminal_would_hide() -> None:
    assert drawn(b"a\x1b]52;c;never ended", b" and on \x1b[31mred") == b"a\x1b[31mred"


def test_at_the_end_every_terminal_mode_is_reset() -> None:
    drawing = Drawing()
    drawing.feed(
        b"\x1b[?1049h\x1b[?25l\x1b[?1003h\x1b[?2004h\x1b[?2004l\x1b[3;5r\x1b[31m\x1b=\x1b(0\x1b[5 q\x1b[4h"
    )
    assert drawing.close() == (
        b"\x1b[?25h\x1b[?1003l\x1b[?1049l\x1b7\x1b[r\x1b8\x1b[0m\x1b>\x1b(B\x1b[0 q\x1b[4l"
    )
    assert drawing.close() == b""


ALPHABET = st.sampled_from(
    [
        b"\x1b",
        b"[",
        b"]",
        b"?",
        b"2",
        b";",
        b"h",
        b"m",
        b"n",
        b"P",
        b"\\",
        b"\x07",
        b"\xc2",
        b"\x9b",
        b"a",
    ]
)


@given(st.lists(st.one_of(st.binary(max_size=4), ALPHABET), max_size=40))
def test_the_filter_s_result_does_not_depend_on_cuts_and_holds_no_control_string(
    pieces: list[bytes],
) -> None:
    """Only text and known sequences pass. Harmless parts never combine to an OSC, a DCS or a query."""
    once = drawn(b"".join(pieces))
    assert drawn(*pieces) == once
    assert drawn(once) == once
    for opener in (
        b"\x1b]",
        b"\x1bP",
        b"\x1b_",
        b"\x1bX",
        b"\x1b^",
        b"\x1bk",
        b"\x05",
        b"\xc2\x9b",
    ):
        assert opener not in once
