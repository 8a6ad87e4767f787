"""Answers a program's terminal queries.

Programs ask where the cursor is, what kind of terminal this is or which modes are on, and wait for the answer. The
user's own terminal never gets such a query: its answer arrives as typed text, which the next program would read. So we
track the cursor and answer the program ourselves. The program can influence only numbers within the screen's size.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable

from belljar.patterns import lazy_pattern

Size = Callable[[], tuple[int, int]]
"""Returns the current rows and columns."""

KIND = "\x1b[?62;22c"
"""A VT220 with colours."""
VERSION = "\x1b[>0;95;0c"
_FIXED = {"c": KIND, "0c": KIND, ">c": VERSION, ">0c": VERSION, "5n": "\x1b[0n"}
_MODE = lazy_pattern(r"\?([0-9]{1,4})\$p")
_MOVE = lazy_pattern(r"([0-9]*)(?:;([0-9]*))?(?:;[0-9]*)*([A-H`adefrsu])")
_WIDE = frozenset("WF")
_TAB = 8
_CONTROLS = lazy_pattern("([\a\b\t\n\v\f\r])")
_AS_CSI = {
    "7": "s",
    "8": "u",
    "D": "B",
    "E": "E",
    "M": "A",
}  # escape → the CSI sequence that does the same
_MOVES: dict[str, Callable[[int, int, int, int], tuple[int, int]]] = {
    "A": lambda row, column, count, _: (row - count, column),
    "B": lambda row, column, count, _: (row + count, column),
    "C": lambda row, column, count, _: (row, column + count),
    "D": lambda row, column, count, _: (row, column - count),
    "E": lambda row, column, count, _: (row + count, 0),
    "F": lambda row, column, count, _: (row - count, 0),
    "G": lambda row, column, count, _: (row, count - 1),
    "H": lambda row, column, count, second: (count - 1, second - 1),
    "d": lambda row, column, count, _: (count - 1, column),
    "r": lambda row, column, count, _: (0, 0),
}
_MOVES |= {"a": _MOVES["C"], "e": _MOVES["B"], "f": _MOVES["H"], "`": _MOVES["G"]}


class Cursor:
    """The position of the program's cursor, tracked from its output. It starts in the last row, as after a prompt."""

    def __init__(self, size: Size) -> None:
        self._size = size
        self._row, self._column = size()[0] - 1, 0
        self._saved = (self._row, self._column)

    @property
    def place(self) -> tuple[int, int]:
        """Row and column, counted from 1."""
        rows, columns = self._size()
        return min(self._row, rows - 1) + 1, min(self._column, columns - 1) + 1

    def text(self, text: str) -> None:
        """Move over text, which may hold newlines, tabs and the like."""
        rows = self._size()[0]
        if (
            text.count("\n") >= rows and "\r" in text
        ):  # earlier lines have scrolled off the screen
            self._row, text = rows - 1, text[text.rindex("\r") :]
        for piece in _CONTROLS.split(text):
            if piece and piece[0] < " ":
                self._control(piece)
            elif piece:
                self._write(piece)

    def _write(self, text: str) -> None:
        columns = self._size()[1]
        end = self._column + (len(text) if text.isascii() else sum(map(_width, text)))
        down = max(0, end - 1) // columns
        self._column = end - down * columns
        self._down(down)

    def _control(self, character: str) -> None:
        if character == "\r":
            self._column = 0
        elif character in "\n\v\f":
            self._down(1)
        elif character == "\b":
            self._column = max(0, self._column - 1)
        elif character == "\t":
            self._to(self._row, self._column // _TAB * _TAB + _TAB)

    def escape(self, body: str) -> None:
        if body in _AS_CSI:
            self.csi(_AS_CSI[body])

    def csi(self, body: str) -> None:
        move = _MOVE.fullmatch(body)
        if move is None:
            return
        letter = move[3]
        row = self._row
        column = min(self._column, self._size()[1] - 1)
        if letter == "s":
            self._saved = (self._row, self._column)
        elif letter == "u":
            self._to(*self._saved)
        else:
            self._to(
                *_MOVES[letter](
                    row, column, int(move[1] or 1) or 1, int(move[2] or 1) or 1
                )
            )

    def _down(self, rows: int) -> None:
        self._row = min(self._row + rows, self._size()[0] - 1)

    def _to(self, row: int, column: int) -> None:
        rows, columns = self._size()
        self._row, self._column = (
            max(0, min(row, rows - 1)),
            max(0, min(column, columns - 1)),
        )


def answer(query: str, cursor: Cursor, size: Size, mode: Callable[[int], int]) -> str:
    """The answer to a CSI sequence; empty if it is not a query, or one that is not answered."""
    if query in _FIXED:
        return _FIXED[query]
    if query in ("6n", "?6n"):
        row, column = cursor.place
        return f"\x1b[{query[:-2]}{row};{column}R"
    if query == "18t":
        rows, columns = size()
        return f"\x1b[8;{rows};{columns}t"
    if match := _MODE.fullmatch(query):
        return f"\x1b[?{int(match[1])};{mode(int(match[1]))}$y"
    return ""


def _width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in _WIDE else 1
