"""Which output of one stream of a background shell is new: not shown by any read yet.

A read without a filter shows all of it. A read with a filter shows the lines that match; the others stay new. Nothing
is shown twice, also not by reads at the same time: each piece goes to the one that is done first.
"""

from __future__ import annotations

from itertools import islice

Piece = tuple[int, bytes]
"""Its offset in the stream, and its bytes."""

MOST_RANGES = 10_000  # remembered as shown; the oldest are forgotten, and would be shown again
MOST_FILTERS = 100  # whose position is remembered; any other searches all new output again


class NewOutput:
    def __init__(self, start: int = 0) -> None:
        self._start = start
        """Everything before it was shown."""
        self._searched: dict[str, int] = {}
        """How far each filter has searched."""
        self._shown: list[tuple[int, int]] = []
        """Ranges after `_start` that were shown: in order, none touching another."""

    def start(self, filter: str | None) -> int:
        return max(self._start, self._searched.get(filter, 0)) if filter is not None else self._start

    def pieces(self, at: int, data: bytes) -> list[Piece]:
        """The new parts of `data`, which stands at offset `at`."""
        pieces, here = [], max(at, self._start)
        for begin, end in (*self._shown, (at + len(data), at + len(data))):
            if begin > here:
                pieces.append((here, data[here - at : begin - at]))
            here = max(here, end)
        return [piece for piece in pieces if piece[1]]

    def take(self, filter: str | None, pieces: list[Piece], end: int) -> bytes:
        """What of these pieces no other read has shown meanwhile; from now on this one has."""
        left = [piece for at, data in pieces for piece in self.pieces(at, data)]
        self.show(filter, left, end)
        return b"".join(data for _, data in left)

    def show(self, filter: str | None, pieces: list[Piece], end: int) -> None:
        """A read that searched as far as `end` has shown these pieces. Another read may have been further by then."""
        if filter is None:
            self._start = max(self._start, end)
        else:
            self._searched[filter] = max(self._searched.get(filter, 0), end)
        self._searched = {name: position for name, position in self._searched.items() if position > self._start}
        for oldest in [*islice(self._searched, max(0, len(self._searched) - MOST_FILTERS))]:
            del self._searched[oldest]
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
