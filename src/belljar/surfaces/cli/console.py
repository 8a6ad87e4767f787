"""Prints Belljar's own messages on stdout and stderr, and answers as JSON, text or tables."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from argparse import Namespace

BROKEN_PIPE_STATUS = 141
NEWS_SECONDS = 10.0
"""How often a build reports its progress if stderr is not a terminal. Silence looks like a hang to a program."""


def say(text: str, coloured: Callable[[str], str] = str) -> None:
    """Print a line. Control characters in it come from elsewhere (a diff, for example): escape them. On a terminal
    `coloured` adds our own."""
    from belljar.surfaces.terminal import render

    sys.stdout.write(
        f"{coloured(render.exact(text)) if sys.stdout.isatty() else text}\n"
    )


def document(data: Any) -> None:
    """Print one JSON document. The caller has masked secrets."""
    json.dump(data, sys.stdout, indent=2 if sys.stdout.isatty() else None, default=str)
    sys.stdout.write("\n")


def answer(args: Namespace, data: Any, *lines: str) -> int:
    """Print one document with --json, otherwise lines. Returns the exit status 0."""
    if args.json:
        document(data)
    else:
        for line in lines:
            say(line)
    return 0


def answer_table(
    args: Namespace, data: Any, rows: Iterable[Sequence[object]], *header: str
) -> int:
    if args.json:
        document(data)
    else:
        table(list(rows), *header)
    return 0


def text(args: Namespace, content: str) -> int:
    return answer(args, {"text": content}, content)


def note(message: str) -> None:
    """Print one line on stderr, with secrets masked and control characters escaped."""
    from belljar.audit import masking
    from belljar.surfaces.terminal import render

    if sys.stderr is not None:
        sys.stderr.write(f"belljar: {render.plain(masking.text(message))}\n")
        sys.stderr.flush()


def table(rows: Sequence[Sequence[object]], *header: str) -> None:
    from belljar.surfaces.terminal import render

    cells = [header, *([render.plain(str(cell)) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    for row in cells:
        line = "  ".join(
            cell.ljust(width) for cell, width in zip(row, widths, strict=True)
        )
        sys.stdout.write(f"{line.rstrip()}\n")


def hang_up() -> int:
    """The reader of our stdout is gone: print nothing more, not even at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return BROKEN_PIPE_STATUS


def open_streams() -> None:
    """Open /dev/null for a closed standard stream. Otherwise the next file that we open would get its number."""
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, fd)
            if null > 2:
                os.close(null)
            setattr(sys, name, os.fdopen(fd, "r" if fd == 0 else "w", closefd=False))


def cause_of(error: BaseException) -> BaseException:
    """The error inside the groups that task groups raise."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


class Bar:
    """Shows progress: on a terminal one line that is redrawn, elsewhere a line now and then.

    With BELLJAR_PROGRESS=lines every change is a line, for a program that draws its own bar.
    """

    def __init__(self, *, announce: bool = True) -> None:
        self._announce = announce
        self._live = sys.stderr is not None and sys.stderr.isatty()
        self._lines = os.environ.get("BELLJAR_PROGRESS") == "lines"
        self._shown = False
        self._announced = 0.0

    def __call__(self, fraction: float | None, text: str) -> None:
        from belljar.surfaces.terminal import render

        done, shown = fraction == 1.0, self._shown
        if done and not shown:  # nothing had to be done
            return
        self._shown = True
        if self._lines:
            self._write(
                f"{'…' if fraction is None else f'{fraction:.0%}'} {render.plain(text)}\n"
            )
        elif self._live:
            self._draw(fraction, render.plain(text))
        elif self._announce and (
            done or not shown or time.monotonic() - self._announced >= NEWS_SECONDS
        ):
            self._announced = time.monotonic()
            so_far = "" if done or not fraction else f"{fraction:.0%} "
            self._write(
                f"belljar: {so_far}{render.plain(text)}{'' if done else ' …'}\n"
            )
        if done:
            self.close()

    def _draw(self, fraction: float | None, text: str) -> None:
        filled = (
            ""
            if fraction is None
            else f"[{'#' * round(20 * fraction):<20}] {fraction:4.0%} "
        )
        self._write(f"\r\x1b[K{filled}{text[: _columns() - len(filled) - 1]}")

    def close(self) -> None:
        if self._shown and self._live and not self._lines:
            self._write("\r\x1b[K")
        self._shown = False

    def _write(self, text: str) -> None:
        if sys.stderr is not None:
            sys.stderr.write(text)
            sys.stderr.flush()


def _columns() -> int:
    try:
        return os.get_terminal_size(2).columns or 80  # some terminals report 0
    except OSError:
        return 80
