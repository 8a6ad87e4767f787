"""Looking at staged changes and deciding: what `Session.changes`, `belljar diff` and the tools all call. It blocks."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from belljar.errors import BelljarError, UsageError
from belljar.staged import diff as diffs
from belljar.staged import overlay
from belljar.staged.apply import Applied, apply, select, undo
from belljar.staged.area import StagedArea
from belljar.staged.change import Change
from belljar.staged.copying import copy_file, remove_tree
from belljar.staged.layers import Layers, flattened
from belljar.workspace.beneath import Folder
from belljar.workspace.idmap import unmount


class Review:
    def __init__(self, area: StagedArea) -> None:
        self.area = area

    def changes(self) -> list[Change]:
        return self.area.changes()

    def diff(self, paths: Iterable[str] | None = None) -> str:
        with self.area.layers() as layers:
            return diffs.unified(layers, select(layers.changes(), paths))

    def apply(
        self, paths: Iterable[str] | None = None, *, force: bool = False, merge: bool = False, runs_later: bool = False
    ) -> Applied:
        return apply(self.area, paths, force=force, merge=merge, runs_later=runs_later)

    def apply_hunks(self, path: str, chosen: list[int]) -> Applied:
        """Only these hunks of a text file, counted from 0 as in its diff."""
        with self.area.layers() as layers:
            sides = self._sides(layers, path)
            found = diffs.hunks(sides)
            try:
                text = diffs.with_hunks(sides, [found[number] for number in chosen])
            except IndexError:
                raise UsageError(f"{path} has {len(found)} hunks") from None
        return apply(self.area, [path], contents={path: text}, runs_later=True)

    def hunks(self, path: str) -> list[str]:
        """The hunks of a text file, as text."""
        with self.area.layers() as layers:
            sides = self._sides(layers, path)
            return [diffs.hunk_text(sides, group) for group in diffs.hunks(sides)]

    @staticmethod
    def _sides(layers: Layers, path: str) -> diffs.Sides:
        change = next((each for each in select(layers.changes(), [path]) if each.path == path), None)
        sides = diffs.text_sides(layers, change) if change is not None else None
        if sides is None:
            raise UsageError(f"{path} is not a text file that changed: it is taken as a whole")
        return sides

    def undo(self, *, force: bool = False) -> list[str]:
        return undo(self.area, force=force)

    def discard(self, paths: Iterable[str] | None = None, *, live: Folder | None = None) -> list[str]:
        """Take changes back, all or some; what they were. `live` is the workspace as a running sandbox sees it."""
        with self.area.locked():
            with self.area.layers() as layers:
                chosen = select(layers.changes(), paths)
            if not chosen:
                return []
            if live is not None:
                self._restore(live, chosen)
            else:
                with self._mounted() as merged:
                    self._restore(merged, chosen)
        return [change.path for change in chosen]

    @contextmanager
    def _mounted(self) -> Iterator[Folder]:
        """The merged view of an area whose sandbox has ended."""
        target = self.area.path / "merged"
        target.mkdir(mode=0o700, exist_ok=True)
        upper, *below = self.area.uppers
        try:
            overlay.mount([*below, Path(self.area.workspace)], upper, self.area.work, target)
        except OSError as error:
            raise BelljarError(
                f"single changes of an ended session can be taken back by root only ({error.strerror}); "
                "discard all of them, or apply the ones you want"
            ) from error
        try:
            with Folder.at(target) as merged:
                yield merged
        finally:
            unmount(target)
            target.rmdir()

    def _restore(self, merged: Folder, chosen: list[Change]) -> None:
        """What is on the host is put into the merged view, where it then differs no more."""
        owner = merged.stat("")
        with self.area.layers() as layers:
            for change in sorted(flattened(chosen), key=lambda each: each.path):
                if change.before is None or (change.kind == "type"):
                    remove_tree(merged, change.path)
                if change.before is not None:
                    _copy(layers.lower, merged, change.path, (owner.st_uid, owner.st_gid))


def _copy(source: Folder, target: Folder, path: str, owner: tuple[int, int]) -> None:
    status = source.stat(path)
    mode = stat.S_IMODE(status.st_mode) & 0o777
    if stat.S_ISDIR(status.st_mode):
        with suppress(FileExistsError):
            target.mkdir(path, 0o700)
        for name in source.names(path):
            if not target.exists(f"{path}/{name}"):
                _copy(source, target, f"{path}/{name}", owner)
        target.chmod(path, mode)
    elif stat.S_ISLNK(status.st_mode):
        remove_tree(target, path)
        target.symlink(source.readlink(path), path)
    elif stat.S_ISREG(status.st_mode):
        remove_tree(target, path)
        copy_file(source, path, target, path, mode)
        target.utime(path, (status.st_atime_ns, status.st_mtime_ns))
    if os.geteuid() == 0:
        target.chown(path, *owner)
