from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from belljar.surfaces.terminal.render import Screen, exact, plain, safe


def shown(*chunks: bytes) -> str:
    screen = Screen()
    return (b"".join(map(screen.feed, chunks)) + screen.feed(b"", final=True)).decode()


@pytest.mark.parametrize(
    ("sent", "seen"),
    [
        (b"plain\ttext\n", "plain\ttext\n"),
        (b"\x1b[1;31mred\x1b[0m", "\x1b[1;31mred\x1b[0m"),
        (b"\x1b]52;c;aGk=\x07", "^[]52;c;aGk=^G"),
        (b"\x1b]0;title\x1b\\", "^[]0;title^[\\"),
        (b"\x1b[2J\x1b[H", "^[[2J^[[H"),
        (b"\x1b[6n", "^[[6n"),
        (b"safe\rdanger", "safe\ndanger"),
        (b"dos\r\n", "dos\n"),
        (b"ab\x08c", "ab^Hc"),
        (b"\xc2\x9b2J", "<U+009B>2J"),
        (b"\x9b2J", "�2J"),
        ("a\u202eb".encode(), "a<U+202E>b"),
        (b"\x1b[8mhidden", "hidden"),
        (b"\xff\xfe", "��"),
        ("grüße 🫙".encode(), "grüße 🫙"),
    ],
)
def test_only_text_and_colours_reach_the_terminal(sent: bytes, seen: str) -> None:
    assert shown(sent) == seen
    assert shown(*(sent[i : i + 1] for i in range(len(sent)))) == seen


def test_a_colour_that_was_left_on_is_reset() -> None:
    assert shown(b"\x1b[31mred") == "\x1b[31mred\x1b[0m"


def test_an_endless_escape_sequence_is_cut_off() -> None:
    assert len(shown(b"\x1b[" + b"1;" * 5000)) > 5000


def test_a_message_is_one_line_without_controls() -> None:
    assert plain("a\nb\x1b[31mc\x1b]0;t\x07\td") == "a\\nb^[[31mc^[]0;t^G d"


@given(st.binary(), st.integers(min_value=1, max_value=7))
def test_no_control_character_passes_however_the_output_is_cut(
    data: bytes, step: int
) -> None:
    seen = shown(*(data[i : i + step] for i in range(0, len(data), step)))
    rest = re.sub(r"\x1b\[[0-9;:]*m", "", seen)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", rest)


@given(st.text())
def test_exact_text_has_no_control_characters_but_newlines_and_tabs(text: str) -> None:
    shown = exact(text)
    assert all(each in "\n\t" or ord(each) >= 0x20 for each in shown)
    assert exact(shown) == shown


@pytest.mark.parametrize(
    "hidden",
    "\xad\u034f\u115f\u180e\u206a\u2800\u3164\ufe01\uffa0\U000e0101\u200d\ufe0f",
)
def test_exact_text_shows_every_invisible_character(hidden: str) -> None:
    """Such a character can be a variable's whole name, or make a word look like another."""
    for text in (
        f"if (a{hidden}) run({hidden})",
        f"{hidden}x",
        f"=\u00e9{hidden}{hidden}\u200b\u200d",
    ):
        assert hidden not in exact(text).replace("\u00e9" + 2 * hidden, "")


@pytest.mark.parametrize(
    "text", ["⚠\ufe0f", "👩\u200d💻", "❤\ufe0f\u200d🔥", "می\u200cخواهم", "grüße"]
)
def test_emoji_joiners_and_accents_are_kept(text: str) -> None:
    assert exact(text) == safe(text) == text


@given(st.text())
def test_safe_is_stable(text: str) -> None:
    assert safe(safe(text)) == safe(text)


def test_halves_of_pairs_are_shown_as_text() -> None:
    """No stream takes them, and anybody can write one in JSON."""
    assert plain("a\ud800b\udcff") == "a<U+D800>b<U+DCFF>"
    assert safe("\udfff") == "<U+DFFF>"
