"""Compares two staged sessions of one workspace, or two states of one session."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from belljar.errors import UsageError
from belljar.staged.area import Point, StagedArea
from belljar.staged.change import Change, Entry, cleaned, covers
from belljar.staged.diff import Sides, lines_of, named_hunks, names, quoted
from belljar.staged.layers import Layers, flattened, same_contents
from belljar.workspace.beneath import Folder


def compared(
    one: StagedArea,
    other: StagedArea,
    paths: Iterable[str] | None = None,
    *,
    since: Point | None = None,
    until: Point | None = None,
) -> str:
    """The diff from `one` (as it was at the checkpoint `since`) to `other` (`until`), at or below some paths."""
    if one.meta["inode"] != other.meta["inode"]:
        raise UsageError("the two sessions have different workspaces")
    tops = [cleaned(path) for path in paths] if paths is not None else [""]
    with (
        one.layers(since, settled=False) as left,
        other.layers(until, settled=False) as right,
    ):
        ours = {change.path: change for change in flattened(left.changes())}
        theirs = {change.path: change for change in flattened(right.changes())}
        found = [path for path in sorted({*ours, *theirs}) if ".git/" not in path]
        return "".join(
            _one(
                path,
                _side(left, path, ours.get(path)),
                _side(right, path, theirs.get(path)),
            )
            for path in found
            if any(covers(top, path) for top in tops)
        )


class Side(NamedTuple):
    """A session's file or link, and the folder that holds it; None if it has none."""

    folder: Folder | None
    entry: Entry | None


def _side(layers: Layers, path: str, change: Change | None) -> Side:
    entry = layers.below(path) if change is None else change.after
    folder = layers.lower if change is None else layers.holder(path)
    return Side(folder, None if entry is None or entry.kind == "directory" else entry)


def _one(path: str, one: Side, other: Side) -> str:
    old, new = (
        lines_of(one.folder, path, one.entry),
        lines_of(other.folder, path, other.entry),
    )
    by_lines = old is not None and new is not None
    if (
        (old == new and bool(one.entry) == bool(other.entry))
        if by_lines
        else _same(path, one, other)
    ):
        return ""
    head = f"diff --git {quoted(f'a/{path}')} {quoted(f'b/{path}')}\n"
    left, right = names(path, one.entry, other.entry)
    if old is None or new is None or any(b"\0" in line for line in old + new):
        return f"{head}Binary files {left} and {right} differ\n"
    return head + "".join(named_hunks(left, right, Sides(old, new)))


def _same(path: str, one: Side, other: Side) -> bool:
    """Whether two entries that cannot be compared line by line are the same."""
    if not (
        one.folder
        and other.folder
        and one.entry
        and other.entry
        and one.entry.kind == other.entry.kind
    ):
        return False
    return one.entry.kind != "file" or same_contents(one.folder, other.folder, path)
