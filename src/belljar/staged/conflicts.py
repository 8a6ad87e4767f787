"""Conflicts: files that the host changed since the session began. Applying over them would lose work."""

from __future__ import annotations

import os
import posixpath
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property

from belljar.staged.change import Change
from belljar.staged.layers import Began, Layers, flattened

_ORIGIN = ("trusted.overlay.origin", "user.overlay.origin")


def conflicts(area: Began, layers: Layers, changes: Sequence[Change]) -> dict[str, str]:
    """Path → what happened on the two sides."""
    ours = area.applied
    made = {
        c.path for c in changes if c.after is not None and c.after.kind == "directory"
    }
    origins = Origins(layers)
    above = [posixpath.dirname(c.path) for c in changes]
    gone = {parent: _no_directory(layers, parent) for parent in {*above} - made}
    found = (
        (c, gone.get(parent) or _conflict(layers, c, area.since, ours, origins))
        for c, parent in zip(changes, above, strict=True)
    )
    return {c.path: why for c, why in found if why}


def _no_directory(layers: Layers, parent: str) -> str | None:
    try:
        layers.lower.folder(parent).close()
    except OSError as error:
        return f"on the host, {parent} is no directory any more ({error.strerror})"
    return None


def _conflict(
    layers: Layers,
    change: Change,
    since: int,
    ours: Mapping[str, int],
    origins: Origins,
) -> str | None:
    if change.before is None:
        deleted = origins.was_on_the_host(change.path)
        return "deleted on the host, changed in the sandbox" if deleted else None
    if change.before.kind == "directory":
        if change.kind == "mode":
            return None
        changed = next(
            (
                path
                for path, status in layers.lower.walk(change.path)
                if is_newer(path, status, since, ours)
            ),
            None,
        )
        return (
            f"{changed} changed on the host, its directory was replaced in the sandbox"
            if changed
            else None
        )
    status = layers.lower.stat(change.path)
    if is_newer(change.path, status, since, ours):
        return f"changed on the host, {'deleted' if change.after is None else 'changed'} in the sandbox"
    return None


def is_newer(
    path: str, status: os.stat_result, since: int, ours: Mapping[str, int]
) -> bool:
    if stat.S_ISDIR(status.st_mode):
        return False
    return status.st_ctime_ns >= since and ours.get(path) != status.st_ctime_ns


class Origins:
    """Tells whether the workspace once had a path that it has no more.

    The overlay marks a file or directory that it copied up with a handle of the original, which holds an inode. After a
    checkpoint the original may itself be in a layer: then nobody deleted anything. So the oldest layer is asked. And a
    file that was only renamed, or given a second name, has the mark of one that is still there, in the workspace or in
    a layer.
    """

    def __init__(self, layers: Layers) -> None:
        self._layers = layers

    def was_on_the_host(self, path: str) -> bool:
        mark = self._mark(path)
        return mark is not None and not any(
            (inode & 0xFFFFFFFF).to_bytes(4, "little") in mark for inode in self._there
        )

    def _mark(self, path: str) -> bytes | None:
        holders = self._layers.holders(path)
        try:
            marks = holders[-1].xattrs(path) if holders else {}
        except OSError:
            return None
        return next((marks[name] for name in _ORIGIN if name in marks), None)

    @cached_property
    def _there(self) -> set[int]:
        """The inodes of files that the sandbox deleted, moved, replaced or gave a second name: in the workspace, and in
        the layers of checkpoints."""
        layers = self._layers
        changed = [
            c.path
            for c in flattened(layers.changes())
            if c.before is not None and c.before.kind != "directory"
        ]
        linked = [
            path
            for upper in layers.uppers
            for path, status in upper.walk()
            if stat.S_ISREG(status.st_mode) and status.st_nlink > 1
        ]
        inodes = {
            status.st_ino
            for older in layers.uppers[1:]
            for _, status in older.walk()
            if stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode)
        }
        for path in (*changed, *linked):
            with suppress(OSError):
                inodes.add(layers.lower.stat(path).st_ino)
        return inodes
