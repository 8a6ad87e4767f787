"""What is new in one stream of a background shell: the bytes that no check has shown yet.

A check without a filter shows all of them. One with a filter shows the lines that match; the others stay new for later
checks. Nothing is shown twice.
"""

from __future__ import annotations

from itertools import islice

Piece = tuple[int, bytes]
"""Where it stands in the stream, and its bytes."""

MOST_RANGES = 10_000  # that are remembered as shown; the oldest are forgotten, and would be shown again
MOST_FILTERS = 100  # whose place is remembered; another looks again at all that is new


class NewOutput:
    def __init__(self, start: int = 0) -> None:
        self._start = start
        """All before it was shown."""
        self._looked: dict[str, int] = {}
        """How far each filter has looked: what it did not show before, it would not show now."""
        self._shown: list[tuple[int, int]] = []
        """Behind `_start`, in order, none touching another."""

    def start(self, filter: str | None) -> int:
        return max(self._start, self._looked.get(filter, 0)) if filter is not None else self._start

    def pieces(self, at: int, data: bytes) -> list[Piece]:
        """What is new of the bytes that stand there."""
        found, here = [], at
        for begin, end in (*self._shown, (at + len(data), at + len(data))):
            if begin > here:
                found.append((here, data[here - at : begin - at]))
            here = max(here, end)
        return [piece for piece in found if piece[1]]

    def show(self, filter: str | None, pieces: list[Piece], end: int) -> None:
        """These were shown by a check that looked as far as `end`."""
        if filter is None:
            self._start = end
        else:
            self._looked[filter] = end
        self._looked = {each: place for each, place in self._looked.items() if place > self._start}
        for oldest in [*islice(self._looked, max(0, len(self._looked) - MOST_FILTERS))]:
            del self._looked[oldest]
        self._shown = self._merged([(at, at + len(data)) for at, data in pieces])

    def _merged(self, more: list[tuple[int, int]]) -> list[tuple[int, int]]:
        merged: list[tuple[int, int]] = []
        for begin, end in sorted(self._shown + more):
            if end <= self._start:
                continue
            if merged and begin <= merged[-1][1]:
                merged[-1] = merged[-1][0], max(merged[-1][1], end)
            else:
                merged.append((begin, end))
        return merged[-MOST_RANGES:]
