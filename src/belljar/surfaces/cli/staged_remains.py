"""Staged changes of ended sessions. `session list` lists them, and `prune` drops them only if the user agrees.

They never expire. An area without unapplied changes holds no work, so `prune` removes it without asking.
"""

from __future__ import annotations

import os
import sys
import time
from argparse import Namespace
from typing import Any

from belljar import host as hosts
from belljar.errors import BelljarError, UsageError
from belljar.sandbox import rundir
from belljar.staged.area import StagedArea
from belljar.staged.change import counted, ignored_in_words, without_ignored
from belljar.staged.review import left_without_workspace
from belljar.surfaces.cli import console
from belljar.surfaces.cli.pending import ago
from belljar.surfaces.cli.staged_choice import ask

NOTHING = counted([])


def summary(area: StagedArea) -> str:
    """`+12 −3 ~40`, or "workspace gone" if the workspace is gone and not everything was applied before."""
    try:
        if not area.is_in_place and not left_without_workspace(area):
            return NOTHING
        changes = area.changes()
        return (
            counted(without_ignored(changes))
            if without_ignored(changes)
            else ignored_in_words(changes) or NOTHING
        ) + (" (incomplete)" if area.incomplete else "")
    except (BelljarError, OSError):
        return "workspace gone"


def summaries() -> dict[str, str]:
    return {
        area.id: summary(area) for area in StagedArea.all(hosts.default().staged_root)
    }


def ended(running: set[str], changes: dict[str, str]) -> list[dict[str, Any]]:
    """Ended sessions with unapplied changes, for `session list`."""
    return [
        {
            "id": area.id,
            "name": area.name,
            "image": "-",
            "started": float(area.meta["created"]),
            "lease": 0.0,
            "ended": True,
            "paused": False,
            "workspace": area.workspace,
        }
        for area in StagedArea.all(hosts.default().staged_root)
        if changes.get(area.id, NOTHING) != NOTHING and _is_over(area, running)
    ]


def _is_over(area: StagedArea, running: set[str] | None = None) -> bool:
    """Whether no process owns the session and its container does not run. After a reap `running` is not needed: an
    ended session has no directory then."""
    directory = hosts.default().run_root / area.id
    if running is None:
        return not directory.is_dir()
    return area.id not in running and not (
        directory.is_dir() and rundir.owned(directory)
    )


def prune(args: Namespace) -> tuple[list[str], list[str]]:
    """The ids of the areas that were dropped, and of those that were kept because they hold work."""
    if (args.older or args.workspace) and not args.staged:
        raise UsageError("--older and --workspace are for --staged")
    over = [
        area for area in StagedArea.all(hosts.default().staged_root) if _is_over(area)
    ]
    empty = [area for area in over if summary(area) == NOTHING]
    for area in empty:
        area.remove()
    work = [area for area in over if area not in empty and _is_meant(area, args)]
    for area in work:
        named = f" ({area.name})" if area.name else ""
        began = ago(float(area.meta["created"]))
        console.note(
            f"unapplied changes: {area.id}{named} {summary(area)} of {area.workspace}, {began}"
        )
    if args.staged and not work:
        console.note("no staged changes to drop")
    dropped = work if work and args.staged and (args.yes or _agreed(len(work))) else []
    for area in dropped:
        area.remove()
    if work and not dropped:
        console.note(
            "these are kept; `belljar prune --staged` drops them, `belljar discard --session ID` a single one"
        )
    return [area.id for area in dropped], [
        area.id for area in work if area not in dropped
    ]


def _is_meant(area: StagedArea, args: Namespace) -> bool:
    """Whether `--older` and `--workspace` choose it."""
    if args.older and time.time() - float(area.meta["created"]) < args.older:
        return False
    top = os.path.realpath(args.workspace) if args.workspace else "/"
    return os.path.commonpath([top, area.workspace]) == top


def _agreed(count: int) -> bool:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(
            "these are changes that nobody applied; --yes drops them without asking"
        )
    return ask(
        f"Drop the changes of {count} session{'s' if count > 1 else ''} for good? [y/N] "
    ).startswith("y")
