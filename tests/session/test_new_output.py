"""Each byte of output is returned once, whatever filters the checks use."""

from __future__ import annotations

import random

import pytest

from belljar.session import new_output
from belljar.session.new_output import NewOutput

LINES = [b"a%d\n" % n if n % 3 else b"b%d\n" % n for n in range(300)]
TEXT = b"".join(LINES)


def check(new: NewOutput, filter: bytes | None, upto: int) -> list[bytes]:
    """One check, as a shell does it: read from its start and keep the lines that match."""
    name = None if filter is None else filter.decode()
    start = new.start(name)
    found = [
        (at + sum(map(len, lines[:n])), line)
        for at, data in new.pieces(start, TEXT[start:upto])
        for lines in [data.splitlines(keepends=True)]
        for n, line in enumerate(lines)
        if filter is None or filter in line
    ]
    new.show(name, found, max(start, upto))
    return [line for _, line in found]


@pytest.mark.parametrize("seed", range(20))
def test_reads_with_any_filters_show_each_line_exactly_once(seed: int) -> None:
    dice, new, shown, upto = random.Random(seed), NewOutput(), list[bytes](), 0
    while upto < len(TEXT):
        upto += sum(
            map(len, LINES[len(TEXT[:upto].splitlines()) :][: dice.randrange(1, 30)])
        )
        shown += check(new, dice.choice([b"a", b"b", b"7", b"1", None]), upto)
    shown += check(new, None, len(TEXT))
    assert sorted(shown) == sorted(LINES)
    assert check(new, b"a", len(TEXT)) == check(new, None, len(TEXT)) == []


def test_memory_is_bounded_and_no_output_is_lost_beyond_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(new_output, "MOST_RANGES", 5)
    monkeypatch.setattr(new_output, "MOST_FILTERS", 3)
    new = NewOutput()
    for digit in b"0123456789":
        check(new, bytes([digit]), len(TEXT) // 2)
    assert len(new._searched) == 3
    assert len(new._shown) <= 5
    check(new, b"b", len(TEXT))
    rest = check(new, None, len(TEXT))
    assert {
        line
        for line in LINES
        if b"b" not in line and line not in TEXT[: len(TEXT) // 2]
    } <= set(rest)


def test_new_output_of_a_yielded_command_starts_at_the_given_offset() -> None:
    new = NewOutput(6)
    assert new.start("a") == new.start(None) == 6
