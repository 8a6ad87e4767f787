"""Which output of one stream of a background shell is new: not shown by any read yet.

A read without a filter shows all of it. A read with a filter shows the lines that match; the others stay new. Nothing
is shown twice, also not by reads at the same time: each piece goes to the one that is done first.
"""

from __future__ import annotations

import time
from itertools import islice
from typing import Any

from belljar.errors import UsageError
from belljar.patterns import lazy_pattern
from belljar.session.result import Status, decode

Piece = tuple[int, bytes]
"""Its offset in the stream, and its bytes."""
Found = tuple[list[Piece], int]
"""Pieces of one stream, and where the search for them ended."""
# Python's own `re` cannot be stopped once it backtracks; `regex` understands the same patterns and can.
Pattern = Any

MOST_RANGES = (
    10_000  # remembered as shown; the oldest are forgotten, and would be shown again
)
MOST_FILTERS = (
    100  # whose position is remembered; any other searches all new output again
)

FILTER_SIZE = 20_000  # takes 60 ms and a few megabytes
_COUNT = lazy_pattern(r"(\)?)\{0*([0-9]+)")
_IGNORES_BLANKS = lazy_pattern(r"\(\?[\w-]*x")
FILTER_SECONDS = 0.5  # a pattern that takes longer is refused


class NewOutput:
    def __init__(self, start: int = 0) -> None:
        self._start = start
        """Everything before it was shown."""
        self._searched: dict[str, int] = {}
        """How far each filter has searched."""
        self._shown: list[tuple[int, int]] = []
        """Ranges after `_start` that were shown: in order, none touching another."""

    def start(self, filter: str | None) -> int:
        return (
            max(self._start, self._searched.get(filter, 0))
            if filter is not None
            else self._start
        )

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
        self._searched = {
            name: position
            for name, position in self._searched.items()
            if position > self._start
        }
        for oldest in [
            *islice(self._searched, max(0, len(self._searched) - MOST_FILTERS))
        ]:
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


# Filters.


def _size(pattern: str) -> int:
    """An upper bound on the compiled size: `regex` writes out repeats, so `a{4000000000}` would take all memory.

    A count after a group multiplies everything, since the group may hold counts of its own. With `(?x)` every count is
    treated so: blanks or a comment may stand between it and a group.
    """
    most, parts = 1, len(pattern)
    blanks = _IGNORES_BLANKS.search(pattern)
    for count in _COUNT.finditer(pattern):
        times = int(count[2][:12])  # no more is needed to know that it is too much
        if count[1] or blanks:
            most *= max(times, 1)
        else:
            parts += times
    return most * parts


def compiled(pattern: str) -> Pattern:
    import regex

    if _size(pattern) > FILTER_SIZE:
        raise UsageError("Invalid filter regex: it is too long, or repeats too much")
    try:
        return regex.compile(pattern)
    except (regex.error, RecursionError, OverflowError) as error:
        raise UsageError(f"Invalid filter regex: {error}") from error


def matching(streams: list[Found], pattern: Pattern, status: Status) -> list[Found]:
    """The matching lines of both streams, and where the search ended."""
    deadline = time.monotonic() + FILTER_SECONDS
    return [_lines(pieces, end, pattern, deadline, status) for pieces, end in streams]


def _lines(
    pieces: list[Piece], end: int, pattern: Pattern, deadline: float, status: Status
) -> Found:
    """The matching lines. An incomplete last line is left for the next read."""
    if status == "running" and pieces and pieces[-1][0] + len(pieces[-1][1]) == end:
        at, data = pieces[-1]
        data = data[: data.rfind(b"\n") + 1]
        pieces, end = [*pieces[:-1], (at, data)], at + len(data)
    matches = []
    for at, data in pieces:
        for line in data.splitlines(keepends=True):
            if _matches(pattern, line, deadline):
                matches.append((at, line))
            at += len(line)
    return matches, end


def _matches(pattern: Pattern, line: bytes, deadline: float) -> bool:
    try:
        if (left := deadline - time.monotonic()) <= 0:
            raise TimeoutError
        return bool(pattern.search(decode(line).rstrip("\r\n"), timeout=left))
    except TimeoutError:
        raise UsageError(
            "Invalid filter regex: it takes too long to match; write a simpler one"
        ) from None
