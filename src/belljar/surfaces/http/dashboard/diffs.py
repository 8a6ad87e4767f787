"""A unified diff as HTML: hunks, with the colours of the language, in one column or side by side.

All text is escaped by pygments; what cannot be seen in it is named first. The page has no script that makes HTML.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from markupsafe import Markup, escape

from .present import shown

MOST_LINES = 3000
WIDTH = 2000
_HEAD = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")
_KINDS = {"+": "added", "-": "removed", " ": "same"}


@dataclass
class Line:
    sign: str
    text: str
    old: int | None
    new: int | None
    html: Markup = field(default_factory=Markup)

    @property
    def kind(self) -> str:
        return _KINDS[self.sign]


@dataclass
class Hunk:
    head: str
    lines: list[Line] = field(default_factory=list)

    @property
    def pairs(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """Rows of two columns: what went beside what came."""
        rows: list[tuple[dict[str, Any], dict[str, Any]]] = []
        went: list[Line] = []
        came: list[Line] = []
        for line in [*self.lines, None]:
            if line is not None and line.sign != " ":
                (went if line.sign == "-" else came).append(line)
                continue
            rows += [
                (_side(left, "old"), _side(right, "new"))
                for left, right in zip_longest(went, came)
            ]
            went, came = [], []
            if line is not None:
                rows.append((_side(line, "old"), _side(line, "new")))
        return rows


@dataclass
class FileDiff:
    hunks: list[Hunk] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    added: int = 0
    removed: int = 0
    cut: int = 0
    """Lines beyond what is shown."""


def _side(line: Line | None, number: str) -> dict[str, Any]:
    if line is None:
        return {"number": None, "kind": "none", "html": Markup()}
    return {"number": getattr(line, number), "kind": line.kind, "html": line.html}


def parse(text: str) -> list[FileDiff]:
    """One for each `diff --git`, in their order."""
    parts = re.split(r"^diff --git .*\n", text, flags=re.MULTILINE)[1:]
    return [_parse_file(part) for part in parts]


def _parse_file(text: str) -> FileDiff:
    found = FileDiff()
    old = new = shown_lines = 0
    for raw in text.splitlines() if "\r" not in text else text.split("\n"):
        if head := _HEAD.match(raw):
            old, new = int(head[1]), int(head[2])
            found.hunks.append(Hunk(raw))
        elif not found.hunks:
            found.notes.append(raw)
        elif raw[:1] in _KINDS and raw:
            sign = raw[0]
            found.added += sign == "+"
            found.removed += sign == "-"
            line = Line(
                sign,
                raw[1:],
                old if sign != "+" else None,
                new if sign != "-" else None,
            )
            old, new = old + (sign != "+"), new + (sign != "-")
            shown_lines += 1
            if shown_lines <= MOST_LINES:
                found.hunks[-1].lines.append(line)
    found.cut = max(0, shown_lines - MOST_LINES)
    return found


def colour(diff: FileDiff, path: str) -> None:
    """Gives each line its HTML: both sides of a hunk are read as text of the path's language."""
    lexer = _lexer(path)
    for hunk in diff.hunks:
        for signs in (" -", " +"):
            lines = [line for line in hunk.lines if line.sign in signs]
            for line, html in zip(
                lines,
                _highlighted([_visible(line.text) for line in lines], lexer),
                strict=False,
            ):
                line.html = html


def _visible(text: str) -> str:
    cut = text[:WIDTH] + (
        f"… {len(text) - WIDTH:,} more characters" if len(text) > WIDTH else ""
    )
    return shown(cut.rstrip("\r"))


def _lexer(path: str) -> Any:
    from pygments.lexers import get_lexer_for_filename
    from pygments.lexers.special import TextLexer
    from pygments.util import ClassNotFound

    try:
        return get_lexer_for_filename(
            path.rpartition("/")[2], stripnl=False, ensurenl=True
        )
    except ClassNotFound:
        return TextLexer(stripnl=False)


def _highlighted(lines: list[str], lexer: Any) -> Iterator[Markup]:
    from pygments import highlight
    from pygments.formatters import HtmlFormatter

    if not lines:
        return iter(())
    text = highlight(
        "\n".join(lines), lexer, HtmlFormatter(nowrap=True, classprefix="h-")
    )
    made = text.split("\n")
    if len(made) < len(lines):  # the lexer dropped lines: plain text then
        return (escape(line) for line in lines)
    return (Markup(line) for line in made)
