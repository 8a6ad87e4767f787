"""Finds the common lines of two texts, with a limit on the work."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate

MOST = 30_000_000


class Matcher(difflib.SequenceMatcher[bytes]):
    """difflib compares each line with all equal lines, again and again between matches: for a file of a few lines that
    repeat thousands of times it would take hours. After `MOST` comparisons the rest counts as changed here."""

    def __init__(self, old: Sequence[bytes], new: Sequence[bytes]) -> None:
        super().__init__(None, old, new, autojunk=False)
        alike = Counter(new)
        self._until = [0, *accumulate(1 + alike[line] for line in old)]
        self.compared = 0

    def find_longest_match(
        self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None
    ) -> difflib.Match:
        cost = self._until[-1 if ahi is None else ahi] - self._until[alo]
        if self.compared + cost > MOST:
            return difflib.Match(alo, blo, 0)
        self.compared += cost
        return super().find_longest_match(alo, ahi, blo, bhi)
