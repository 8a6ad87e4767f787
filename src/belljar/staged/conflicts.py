"""Conflicts: files that the host changed since the session began. Applying over them would lose work."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from belljar.staged.change import Change
from belljar.staged.layers import Layers, flattened

if TYPE_CHECKING:
    from belljar.staged.area import StagedArea

_ORIGIN = ("trusted.overlay.origin", "user.overlay.origin")


def conflicts(area: StagedArea, layers: Layers, changes: Sequence[Change]) -> dict[str, str]:
    """Path → what happened on the two sides."""
    ours = area.applied
    made = {c.path for c in changes if c.after is not None and c.after.kind == "directory"}
    moved = _inodes(layers)
    return {c.path: why for c in changes if (why := _conflict(layers, c, area.since, ours, made, moved))}


def _conflict(
    layers: Layers, change: Change, since: int, ours: Mapping[str, int], made: set[str], moved: set[int]
) -> str | None:
    parent = change.path.rpartition("/")[0]
    if parent and parent not in made:
        try:
            layers.lower.folder(parent).close()
        except OSError as error:
            return f"on the host, {parent} is no directory any more ({error.strerror})"
    if change.before is None:
        deleted = _was_copied_up(layers, change.path, moved)
        return "deleted on the host, changed in the sandbox" if deleted else None
    if change.before.kind == "directory":
        if change.kind == "mode":
            return None
        changed = next(
            (path for path, status in layers.lower.walk(change.path) if is_newer(path, status, since, ours)), None
        )
        return f"{changed} changed on the host, its directory was replaced in the sandbox" if changed else None
    status = layers.lower.stat(change.path)
    if is_newer(change.path, status, since, ours):
        return f"changed on the host, {'deleted' if change.after is None else 'changed'} in the sandbox"
    return None


def is_newer(path: str, status: os.stat_result, since: int, ours: Mapping[str, int]) -> bool:
    if stat.S_ISDIR(status.st_mode):
        return False
    return status.st_ctime_ns >= since and ours.get(path) != status.st_ctime_ns


def _was_copied_up(layers: Layers, path: str, moved: set[int]) -> bool:
    """Whether the sandbox changed a file that the workspace had at this path. A file that was only renamed in the
    sandbox has the overlay's mark, too: a file handle, with the inode of a file that the workspace still has."""
    holder = layers.holder(path)
    try:
        marks = holder.xattrs(path) if holder is not None else {}
    except OSError:
        return False
    origin = next((marks[name] for name in _ORIGIN if name in marks), None)
    return origin is not None and not any((inode & 0xFFFFFFFF).to_bytes(4, "little") in origin for inode in moved)


def _inodes(layers: Layers) -> set[int]:
    """The inodes of the workspace's files that the sandbox deleted, moved, replaced or gave a second name."""
    changed = [c.path for c in flattened(layers.changes()) if c.before is not None and c.before.kind != "directory"]
    linked = [
        path
        for upper in layers.uppers
        for path, status in upper.walk()
        if stat.S_ISREG(status.st_mode) and status.st_nlink > 1
    ]
    inodes = set()
    for path in (*changed, *linked):
        with suppress(OSError):
            inodes.add(layers.lower.stat(path).st_ino)
    return inodes
