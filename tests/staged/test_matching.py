"""Comparing long texts takes bounded time, even if the result is less exact."""

from __future__ import annotations

import difflib
import random

from belljar.staged.diff import MOST_LINES, Sides, hunks, with_hunks
from belljar.staged.matching import MOST, Matcher
from belljar.staged.merge import merged


def _lines(seed: int, count: int, kinds: int) -> list[bytes]:
    chance = random.Random(seed)
    return [b"%d\n" % chance.randrange(kinds) for _ in range(count)]


def test_files_of_repeated_lines_are_compared_in_bounded_time() -> None:
    old, new = _lines(1, MOST_LINES, 2), _lines(2, MOST_LINES, 2)
    matcher = Matcher(old, new)
    matcher.get_opcodes()
    assert matcher.compared <= MOST
    sides = Sides(old, new)
    assert with_hunks(sides, hunks(sides)) == b"".join(new)
    assert merged(old * 5, old, new) is None, "what cannot be compared is a conflict"


def test_other_texts_are_compared_as_difflib_does() -> None:
    for seed in range(50):
        old, new = _lines(seed, 60, 20), _lines(seed + 1000, 60, 20)
        assert (
            Matcher(old, new).get_opcodes()
            == difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
        )
