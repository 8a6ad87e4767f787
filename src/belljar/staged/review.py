"""Looking at staged changes and deciding: what `Session.changes`, `belljar diff` and the tools all call. It blocks."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from contextlib import suppress

from belljar.errors import Conflict, UsageError
from belljar.staged import diff as diffs
from belljar.staged.apply import Applied, apply, select, undo
from belljar.staged.area import StagedArea
from belljar.staged.change import Change
from belljar.staged.copying import OPAQUE, copy_file, make_whiteout, remove_tree
from belljar.staged.layers import Layers, flattened
from belljar.workspace.beneath import Folder


class Review:
    def __init__(self, area: StagedArea) -> None:
        self.area = area

    def changes(self) -> list[Change]:
        return self.area.changes()

    def diff(self, paths: Iterable[str] | None = None) -> str:
        with self.area.layers() as layers:
            return diffs.unified(layers, select(layers.changes(), paths, parents=False))

    def apply(
        self, paths: Iterable[str] | None = None, *, force: bool = False, merge: bool = False, runs_later: bool = False
    ) -> Applied:
        return apply(self.area, paths, force=force, merge=merge, runs_later=runs_later)

    def apply_chosen(self, seen: Mapping[Change, str], contents: Mapping[str, bytes]) -> Applied:
        """Changes that somebody saw as these diffs and said yes to, whole or (`contents`) in part; all at once. What is
        read here and is as it was shown is what is applied: a sandbox may still run."""
        texts: dict[str, bytes] = {}
        with self.area.layers() as layers:
            for change, shown in seen.items():
                sides = diffs.text_sides(layers, change)
                if "".join(diffs.of_sides(change, sides)) != shown:
                    raise Conflict({change.path: "changed in the sandbox since it was shown"})
                if sides is not None and change.after is not None and change.after.kind == "file":
                    texts[change.path] = b"".join(sides.new)
        if not seen:
            return Applied()
        return apply(
            self.area, [each.path for each in seen], contents={**texts, **contents}, runs_later=True, seen=seen
        )

    def with_hunks(self, path: str, chosen: list[int]) -> bytes:
        """The host's text with only these hunks of the sandbox's, counted from 0 as in its diff."""
        with self.area.layers() as layers:
            sides = self._sides(layers, path)
            found = diffs.hunks(sides)
            try:
                return diffs.with_hunks(sides, [found[number] for number in chosen])
            except IndexError:
                raise UsageError(f"{path} has {len(found)} hunks") from None

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

    def discard(self, paths: Iterable[str] | None = None) -> list[str]:
        """Take changes of an ended session back, all or some; what they were."""
        with self.area.locked(), Folder.at(self.area.path / "upper") as upper:
            with self.area.layers() as layers:
                found = select(layers.changes(), paths, parents=False)
            chosen = sorted(flattened(found), key=lambda each: each.path)
            for change in chosen:
                remove_tree(upper, change.path)
            with self.area.layers() as layers:  # what a checkpoint's layer still says, or a replaced directory hides
                left = {change.path for change in flattened(layers.changes())}
                for change in chosen:
                    if change.path in left:
                        _cover(layers, upper, change)
        return [change.path for change in found]


def _cover(layers: Layers, upper: Folder, change: Change) -> None:
    """Lay the host's side over what the layers below say."""
    parts = change.path.split("/")
    for above in ("/".join(parts[:end]) for end in range(1, len(parts))):
        if not upper.exists(above):
            upper.mkdir(above, 0o700)
            upper.chmod(above, (layers.holder(above) or layers.lower).stat(above).st_mode & 0o777)
    if change.before is None:
        make_whiteout(upper, change.path)
    else:
        _copy(layers.lower, upper, change.path)
        if change.before.kind == "directory":
            upper.set_xattr(change.path, OPAQUE[os.geteuid() != 0], b"y")


def _copy(source: Folder, target: Folder, path: str) -> None:
    status = source.stat(path)
    mode = stat.S_IMODE(status.st_mode) & 0o777
    if stat.S_ISDIR(status.st_mode):
        with suppress(FileExistsError):
            target.mkdir(path, 0o700)
        for name in source.names(path):
            if not target.exists(f"{path}/{name}"):
                _copy(source, target, f"{path}/{name}")
        target.chmod(path, mode)
    elif stat.S_ISLNK(status.st_mode):
        remove_tree(target, path)
        target.symlink(source.readlink(path), path)
    elif stat.S_ISREG(status.st_mode):
        remove_tree(target, path)
        copy_file(source, path, target, path, mode)
        target.utime(path, (status.st_atime_ns, status.st_mtime_ns))
