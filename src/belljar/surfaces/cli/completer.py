"""Completion in safe mode: the sandbox's files and programs, git's branches and options.

A bash in the sandbox lists them. The typed line is never run: its last word is passed as an argument.
"""

from __future__ import annotations

import re
import shlex

from anyio.from_thread import BlockingPortal

from belljar.errors import BelljarError
from belljar.patterns import lazy_pattern
from belljar.records import record
from belljar.session.session import Session
from belljar.surfaces.cli.own_commands import COMMANDS

SECONDS = 10.0  # the user can type meanwhile
MOST = 500
_SEPARATOR = lazy_pattern(r"&&|\|\||[;|&(\n]|\$\(")
_WORD = lazy_pattern(r"""(?:\\.|"[^"]*"?|'[^']*'?|[^\s"'\\])*\Z""", re.DOTALL)
_FILES = r"""compgen -f -- "$1" | head -n 500 |
while IFS= read -r name; do [[ -d $name ]] && name+=/; printf '%s\0' "$name"; done"""
_PROGRAMS = r"compgen -A command -- '' | sort -u | head -n 5000 | tr '\n' '\0'"
_GIT_COMMANDS = r"git --list-cmds=list-mainporcelain,alias | tr '\n' '\0'"
_GIT_OPTIONS = r"""git "$1" --git-completion-helper 2>/dev/null | tr ' ' '\0'"""
_GIT_REFS = r"git for-each-ref --count=500 --format='%(refname:short)' refs/heads refs/tags refs/remotes | tr '\n' '\0'"
_TAKE_REFS = frozenset(
    (
        "branch",
        "checkout",
        "cherry-pick",
        "diff",
        "fetch",
        "log",
        "merge",
        "pull",
        "push",
        "rebase",
        "reset",
        "restore",
        "revert",
        "show",
        "switch",
        "tag",
        "worktree",
    )
)


@record
class Suggestion:
    text: str
    """Replaces the last word."""
    meaning: str = ""


class Completions:
    def __init__(self, portal: BlockingPortal, box: Session) -> None:
        self._portal, self._box = portal, box
        self._programs: list[str] = []

    def suggest(self, line: str) -> tuple[str, list[Suggestion]]:
        """The word before the cursor, and suggestions for it."""
        if line.startswith(":"):
            return line, [
                Suggestion(name, own.summary)
                for name, own in COMMANDS.items()
                if name.startswith(line)
            ]
        segment = line[
            max(
                (separator.end() for separator in _SEPARATOR.finditer(line)), default=0
            ) :
        ]
        match = _WORD.search(segment)
        word = match[0] if match else ""
        before = segment[: len(segment) - len(word)].split()
        try:
            names = self._portal.call(self._names, before, _unquoted(word))
        except (
            BelljarError,
            RuntimeError,
        ):  # the sandbox or the portal is gone; the next command reports it
            return word, []
        return word, [
            Suggestion(_quoted(name)) for name in names if name.isprintable()
        ][:MOST]

    async def _names(self, before: list[str], word: str) -> list[str]:
        if not before and "/" not in word:
            self._programs = self._programs or await self._inside(_PROGRAMS)
            return [name for name in self._programs if name.startswith(word)]
        if before[:1] == ["git"] and (names := await self._of_git(before[1:], word)):
            return names
        return await self._inside(_FILES, word)

    async def _of_git(self, before: list[str], word: str) -> list[str]:
        if not before:
            names = await self._inside(_GIT_COMMANDS)
        elif word.startswith("-"):
            names = (
                await self._inside(_GIT_OPTIONS, before[0])
                if before[0].isalpha()
                else []
            )
        else:
            names = await self._inside(_GIT_REFS) if before[0] in _TAKE_REFS else []
        return [name for name in names if name.startswith(word)]

    async def _inside(self, script: str, word: str = "") -> list[str]:
        argv = ["bash", "--noprofile", "--norc", "-c", script, "bash", word]
        names = await self._box.init_tools.ask(argv, self._box.persistent.cwd, SECONDS)
        return [name for name in names.split("\0") if name]


def _unquoted(word: str) -> str:
    if word[:1] in ("'", '"'):
        return word[1:].rstrip(word[0])
    return re.sub(r"\\(.)", r"\1", word)


def _quoted(name: str) -> str:
    if name.startswith("~/"):
        return f"~/{shlex.quote(name[2:])}" if name[2:] else name
    return shlex.quote(name)
