"""Asks the user at the terminal to approve a command."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from belljar.surfaces import words
from belljar.surfaces.cli import console
from belljar.surfaces.terminal import render
from belljar.surfaces.terminal.host import HostTerminal
from belljar.surfaces.terminal.keys import Keyboard, read_stdin

if TYPE_CHECKING:
    from belljar.policy import Verdict
    from belljar.session.options import Approver

YES = ("y", "yes")
ALLOW_IT = "allow it? [y]es / [n]o: "
LETTERS = {"y": "run it, this once", "n": "do not run it; so does every other answer"}


def show(verdict: Verdict) -> None:
    """Show what needs an approval, before the question."""
    console.note(f"this needs your approval (risk: {verdict.risk})")
    sys.stderr.write(f"  {render.plain(words.why(verdict))}\n")
    for effect in words.would_do(verdict):
        sys.stderr.write(f"    it would {render.plain(effect)}\n")
    if verdict.about in (
        "file",
        "changes",
    ):  # unlike a command, the user has not seen it yet
        sys.stderr.writelines(
            f"  | {render.plain(line)}\n" for line in verdict.canonical.splitlines()
        )
        console.note(words.QUESTIONS[verdict.about].yes)


def terminal_approver(args: Namespace) -> Approver | None:
    """For a command that does not use the terminal itself."""
    terminal = HostTerminal.here() if not args.json and os.isatty(2) else None
    return (
        partial(approve, keyboard=Keyboard(terminal)) if terminal is not None else None
    )


def explain(letters: Mapping[str, str] = LETTERS) -> None:
    for letter, meaning in letters.items():
        sys.stderr.write(f"{letter} - {meaning}\n")


async def approve(verdict: Verdict, keyboard: Keyboard) -> bool:
    """Ask, before a command runs or while it does."""
    async with keyboard.taken():
        show(verdict)
        while (answer := await _answer()) == "?":
            explain()
    return answer in YES


async def _answer() -> str:
    sys.stderr.write(ALLOW_IT)
    sys.stderr.flush()
    line = ""
    try:
        line = (await read_stdin()).decode("utf-8", "replace")
    finally:  # also after Ctrl+C
        if not line.endswith("\n"):
            sys.stderr.write("\n")
            sys.stderr.flush()
    return line.strip().lower()
