"""What is kept of an output, and in which order."""

from hypothesis import given
from hypothesis import strategies as st

from belljar.session.output import MOST_PIECES, Capture


def captured(cap: int, *parts: bytes) -> Capture:
    capture = Capture("stdout", cap)
    for order, part in enumerate(parts):
        capture.add(order, part)
    return capture


@given(st.lists(st.binary(max_size=50), max_size=20), st.integers(2, 64))
def test_a_long_capture_keeps_exactly_its_head_and_tail(
    parts: list[bytes], cap: int
) -> None:
    whole, capture = b"".join(parts), captured(cap, *parts)
    asked_first = captured(cap, *parts).omitted
    head, tail = capture.joined()
    assert capture.omitted == asked_first
    assert len(head) + len(tail) + capture.omitted == len(whole) == capture.produced
    assert whole.startswith(head)
    assert whole.endswith(tail)
    assert len(head) + len(tail) <= cap


def test_tiny_writes_cost_little_more_than_their_bytes() -> None:
    """Two streams write single bytes in turn, so that no piece can be joined with the one before it."""
    captures = (Capture("stdout", 1 << 20), Capture("stderr", 1 << 20))
    for order in range(200_000):
        captures[order % 2].add(order, b"x")
    assert (
        sum(len(capture.head) + len(capture.tail) for capture in captures)
        <= 4 * MOST_PIECES
    )
    assert all(
        capture.produced == 100_000 and not capture.omitted for capture in captures
    )
