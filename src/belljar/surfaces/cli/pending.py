"""One thread of work per directory: a staged run goes on with the directory's pending changes."""

from __future__ import annotations

import os
import sys
import time
from argparse import Namespace
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from belljar import host as hosts
from belljar.errors import BelljarError, UsageError
from belljar.surfaces.cli import console

if TYPE_CHECKING:
    from belljar.staged.area import StagedArea
    from belljar.staged.change import Change

COMMAND_SHOWN = 40


def continuing(args: Namespace) -> dict[str, Any]:
    """The option that makes a new staged session go on with the newest changes of its directory, unless their session
    still runs, or `--new` was given."""
    if args.new and args.changes != "staged":
        raise UsageError(
            "--new is for --staged: it starts apart from this directory's pending changes"
        )
    if args.changes != "staged" or args.session or args.new or args.snapshot:
        return {}
    from belljar.staged.area import StagedArea

    host = hosts.default()
    workspace = os.path.realpath(args.workspace)
    areas = [
        area
        for area in StagedArea.all(host.staged_root)
        if area.workspace == workspace and not area.is_copied
    ]
    for area in sorted(areas, key=lambda area: -float(area.meta["created"])):
        if (
            area.is_in_place
            and not (host.run_root / area.id).is_dir()
            and _is_pending(area)
        ):
            return {"continues": area.id}
    return {}


def _is_pending(area: StagedArea) -> bool:
    """Whether it has changes. One that was applied whole stays as it is, to be undone."""
    with suppress(BelljarError), area.layers() as layers:
        return bool(layers.changes())
    return False


def ago(when: float) -> str:
    """`3h ago`."""
    seconds = max(0.0, time.time() - when)
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{seconds // size:.0f}{unit} ago"
    return "just now"


def described(areas: dict[StagedArea, list[Change]]) -> list[str]:
    """A numbered line for each: age, what changed, name, first command."""
    from belljar.staged.change import counted, without_ignored

    rows = [
        (
            str(number),
            ago(float(area.meta["created"])),
            counted(without_ignored(changes)),
            area.name or area.id,
            area.command[:COMMAND_SHOWN],
        )
        for number, (area, changes) in enumerate(areas.items(), 1)
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return ["  ".join([*map(str.ljust, row, widths), row[4]]).rstrip() for row in rows]


def chosen(areas: dict[StagedArea, list[Change]], number: str | None) -> StagedArea:
    """One of several areas: by its number, or asked for on a terminal."""
    several = [*areas]
    if number is None:
        listed = described(areas)
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            lines = "\n  ".join(listed)
            raise UsageError(
                f"several sessions have staged changes of this directory; choose with --session NUMBER:\n  {lines}"
            )
        for each in listed:
            console.note(each)
        from belljar.surfaces.cli.staged_choice import ask

        number = ask(f"Which one? [1-{len(several)}]: ")
    if not number.isdigit() or not 1 <= int(number) <= len(several):
        raise UsageError(
            f"there is no number {number}; this directory has {len(several)}"
        )
    return several[int(number) - 1]
