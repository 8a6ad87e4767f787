"""A command's output as lines of text: the last 2,000, or those from one position on.

Lines are split on bytes, since a line feed is never inside a character. `static/log.js` does the same with what comes
afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator

from belljar.records import record

from .present import number, output_text

LINES = 2000
WIDTH = 2000
KEPT = 4 * WIDTH
"""Bytes of a line that are decoded."""


@record
class Line:
    at: int
    """Its position in the command's log."""
    number: int
    text: str
    here: bool = False


def line_text(raw: bytes) -> str:
    """One line, without its line feed: cut at 2,000 characters, with how many more there are."""
    raw = _after_return(raw)
    kept, rest = raw[:KEPT], raw[KEPT:]
    characters = output_text(kept.decode("utf-8", "replace"))
    beyond = max(0, len(characters) - WIDTH) + sum(byte & 0xC0 != 0x80 for byte in rest)
    return (
        f"{characters[:WIDTH]}… {number(beyond)} more characters"
        if beyond
        else characters
    )


def _after_return(raw: bytes) -> bytes:
    """A carriage return restarts the line; one at its very end belongs to the line feed."""
    raw = raw.removesuffix(b"\r")
    return raw[raw.rfind(b"\r") + 1 :]


def split(data: bytes, start: int) -> Iterator[tuple[int, bytes]]:
    """Each line with its position. `data` begins at `start`, where a line begins."""
    at = 0
    while at < len(data):
        end = data.find(b"\n", at)
        stop = len(data) if end < 0 else end
        yield start + at, data[at:stop]
        at = stop + 1


@record
class Page:
    """The lines that a page shows of an output."""

    lines: list[Line]
    earlier: int
    """How many lines are before them."""
    earlier_at: int
    """Where the 2,000 lines before them begin."""
    next_number: int
    """Of the first line that is to come: the last one's, if that is unfinished."""
    next_at: int


def page(data: bytes, start: int, at: int | None = None) -> Page:
    """`data` is what the log holds from `start` on; `at` names the position to show."""
    found = list(split(data, start))
    first = max(0, len(found) - LINES)
    if at is not None:
        marked = max(
            (index for index, (position, _) in enumerate(found) if position <= at),
            default=0,
        )
        first = max(0, marked - LINES // 2) if len(found) > LINES else 0
    cut = found[first : first + LINES]
    # An unfinished last line is left to the stream, which begins there.
    open_end = at is None and bool(cut) and not data.endswith(b"\n")
    tail = cut.pop() if open_end else None
    here = max(
        (position for position, _ in cut if at is not None and position <= at),
        default=-1,
    )
    lines = [
        Line(position, first + index + 1, line_text(raw), position == here)
        for index, (position, raw) in enumerate(cut)
    ]
    earlier_at = found[max(0, first - LINES)][0] if found else start
    return Page(
        lines,
        first,
        earlier_at,
        first + len(cut) + 1,
        tail[0] if tail else start + len(data),
    )
