"""What is kept of an output, and in which order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.session.test_result import captured

from belljar.session.result import MOST_PIECES, Capture, decode


@given(st.lists(st.binary(max_size=50), max_size=20), st.integers(2, 64))
def test_a_long_capture_keeps_exactly_its_head_and_tail(parts: list[bytes], cap: int) -> None:
    whole, capture = b"".join(parts), captured(cap, *parts)
    head, tail = capture.joined()
    assert len(head) + len(tail) + capture.omitted == len(whole) == capture.produced
    assert whole.startswith(head)
    assert whole.endswith(tail)
    assert len(head) + len(tail) <= cap


@pytest.mark.parametrize("cut", range(1, 4))
def test_a_cut_never_shows_half_a_character(cut: int) -> None:
    text = "x😀".encode()
    assert decode(text[:-cut], cut_end=True) == "x"
    assert decode("😀x".encode()[cut:], cut_start=True) == "x"


def test_tiny_writes_cost_little_more_than_their_bytes() -> None:
    """Two streams write single bytes in turn, so that no piece can be joined with the one before it."""
    captures = (Capture("stdout", 1 << 20), Capture("stderr", 1 << 20))
    for order in range(200_000):
        captures[order % 2].add(order, b"x")
    assert sum(len(capture.head) + len(capture.tail) for capture in captures) <= 4 * MOST_PIECES
    assert all(capture.produced == 100_000 and not capture.omitted for capture in captures)
