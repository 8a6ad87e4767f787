"""Finds the changes that an overlay's upper layers make to the workspace, from the layers alone.

In a layer a character device 0:0 is a whiteout: the name was deleted. A directory with the opaque mark hides the one
below it. Everything else is what it is. Overlays are mounted without redirects, metacopy and index, so there is nothing
else to know. Only directories that exist in a layer are read: the cost depends on the changes, not on the tree.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType

from belljar.staged import git_index
from belljar.staged.change import Change, Entry
from belljar.staged.copying import DEEPEST, OPAQUE, extents, fingerprint, is_whiteout, user_attributes
from belljar.staged.run_files import RunsLater, link_runs_later, runs_later
from belljar.staged.run_places import RunPlaces
from belljar.workspace.beneath import Folder, parents

LONGEST = 3800  # bytes of a directory's path, so that the path of anything in it is not too long for the kernel
CHUNK = 1 << 20
_LOOK_FOR_NUL = 8000


class Layers:
    """Upper layers, the newest first, over a workspace. Paths are relative to both."""

    def __init__(
        self, uppers: Sequence[Folder], lower: Folder, runs_later: RunsLater = runs_later,
        merged: Mapping[str, str] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        """`merged`: digests of files that were applied already, maybe merged with the host's own changes."""
        self.uppers, self.lower = list(uppers), lower
        self._runs_later = runs_later
        self._places = RunPlaces(lower)
        self._merged_files = merged

    def changes(self) -> list[Change]:
        return [
            _git_change(found) if isinstance(found, list) else found
            for found in self._in_directory("", self.uppers, True, DEEPEST)
        ]

    def holder(self, path: str) -> Folder | None:
        """The layer that holds a changed file; None: it is unchanged or deleted."""
        for layer in self.uppers:
            try:
                status = layer.stat(path)
            except OSError:
                if self._hidden_by(layer, path):
                    return None
                continue
            return None if is_whiteout(status) else layer
        return None

    def _hidden_by(self, layer: Folder, path: str) -> bool:
        for above in parents(path):
            with suppress(OSError):
                status = layer.stat(above)
                if not stat.S_ISDIR(status.st_mode) or _is_opaque(layer, above):
                    return True
        return False

    # One directory of the merged view, compared with the workspace's.

    def _in_directory(
        self, at: str, layers: list[Folder], shows_lower: bool, depth: int
    ) -> Iterator[Change | list[Change]]:
        merged = self._merged(at, layers)
        for name, (status, stack, below) in sorted(merged.items()):
            path = f"{at}/{name}" if at else name
            found = list(self._entry(path, status, stack, shows_lower and below, depth))
            flat = [change for part in found for change in (part if isinstance(part, list) else [part])]
            if name == ".git" and (status is None or stat.S_ISDIR(status.st_mode)) and flat:
                yield flat
            else:
                yield from found
        if not shows_lower:
            yield from self._no_longer_there(at, set(merged))

    def _merged(self, at: str, layers: list[Folder]) -> dict[str, tuple[os.stat_result | None, list[Folder], bool]]:
        """Name → its status (None: deleted), the layers that hold it, whether the workspace shows below them."""
        merged: dict[str, tuple[os.stat_result | None, list[Folder], bool]] = {}
        for index, layer in enumerate(layers):
            with suppress(OSError):
                for name in layer.names(at):
                    if name not in merged:
                        merged[name] = self._stack(f"{at}/{name}" if at else name, layers[index:])
        return merged

    def _stack(self, path: str, layers: list[Folder]) -> tuple[os.stat_result | None, list[Folder], bool]:
        top = layers[0].stat(path)
        if is_whiteout(top):
            return None, [], False
        if not stat.S_ISDIR(top.st_mode):
            return top, [layers[0]], False
        stack: list[Folder] = []
        for layer in layers:
            try:
                status = layer.stat(path)
            except OSError:
                continue
            if not stat.S_ISDIR(status.st_mode):
                return top, stack, False
            stack.append(layer)
            if _is_opaque(layer, path):
                return top, stack, False
        return top, stack, True

    def _entry(
        self, path: str, status: os.stat_result | None, stack: list[Folder], shows_lower: bool, depth: int
    ) -> Iterator[Change | list[Change]]:
        before = self.below(path)
        if status is None:
            if before is not None:
                yield self._change(path, "deleted", before, None)
            return
        holder = stack[0]
        after = Entry.of(status, holder.readlink(path) if stat.S_ISLNK(status.st_mode) else None)
        if after.kind == "directory" and (depth == 1 or len(os.fsencode(path)) > LONGEST):
            yield Change(path, "type" if before else "added", before, replace(after, kind="too_deep"))
            return
        if after.kind == "directory":
            if before is None:
                yield self._change(path, "added", None, after)
            elif before.kind != "directory":
                yield self._change(path, "type", before, after)
            elif before.mode != after.mode:
                yield self._change(path, "mode", before, after)
            yield from self._in_directory(path, stack, shows_lower, depth - 1)
            return
        if before is None:
            if not self._is_merged(path, holder):
                yield self._change(path, "added", None, after, self._looks_binary(holder, path, after))
        elif before.kind != after.kind:
            yield self._change(path, "type", before, after, self._looks_binary(holder, path, after))
        elif not self._same(path, holder, before, after):
            if self._is_merged(path, holder):
                return
            binary = self._looks_binary(holder, path, after) or self._looks_binary(self.lower, path, before)
            yield self._change(path, "modified", before, after, binary)
        elif before.mode != after.mode and after.kind != "link":
            yield self._change(path, "mode", before, after)

    def _no_longer_there(self, at: str, names: set[str]) -> Iterator[Change]:
        """What a replaced directory has in the workspace and no longer in the new one."""
        try:
            below = self.lower.names(at)
        except OSError:
            return
        for name in below:
            path = f"{at}/{name}" if at else name
            if name not in names and (before := self.below(path)) is not None:
                yield self._change(path, "deleted", before, None)

    def below(self, path: str) -> Entry | None:
        try:
            status = self.lower.stat(path)
            return Entry.of(status, self.lower.readlink(path) if stat.S_ISLNK(status.st_mode) else None)
        except OSError:
            return None

    def _change(self, path: str, kind: str, before: Entry | None, after: Entry | None, binary: bool = False) -> Change:
        runs = after is not None and self._is_run(path, after)
        return Change(path, kind, before, after, binary, runs)  # type: ignore[arg-type]

    def _is_run(self, path: str, after: Entry) -> bool:
        if after.kind == "link" and link_runs_later(path):
            return True
        holder = self.holder(path)
        if holder is None:
            return False
        sides = _reader(self.lower, path), _reader(holder, path)
        return self._runs_later(path, *sides) or (after.kind != "directory" and self._places.hold(path, *sides))

    def harmless(self, path: str, text: bytes | None = None) -> bytes | None:
        """`text`, or the contents of a staged file; None if the host would run it, or it is not a file any more."""
        holder = self.holder(path)
        content = text if text is not None else _reader(holder, path)() if holder is not None else None
        sides = _reader(self.lower, path), lambda: content
        if content is None or self._runs_later(path, *sides) or self._places.hold(path, *sides):
            return None
        return content

    def _same(self, path: str, holder: Folder, before: Entry, after: Entry) -> bool:
        if after.kind != "file":
            return before.target == after.target
        if before.size != after.size:
            return False
        try:
            if user_attributes(holder, path) != user_attributes(self.lower, path):
                return False
            same = git_index.say_the_same if git_index.is_index(path) else same_contents
            return same(holder, self.lower, path)
        except OSError:
            return False

    def _is_merged(self, path: str, holder: Folder) -> bool:
        if path not in self._merged_files:
            return False
        content = _reader(holder, path)()
        return content is not None and fingerprint(holder, path, content) == self._merged_files[path]

    @staticmethod
    def _looks_binary(folder: Folder, path: str, entry: Entry) -> bool:
        if entry.kind != "file":
            return False
        try:
            with folder.file(path) as file:
                return b"\0" in file.read(_LOOK_FOR_NUL)
        except OSError:
            return True


def _reader(folder: Folder, path: str) -> Callable[[], bytes | None]:
    def read() -> bytes | None:
        try:
            return folder.read(path, CHUNK)
        except OSError:
            return None

    return read


def same_contents(one: Folder, other: Folder, path: str) -> bool:
    with one.file(path) as ours, other.file(path) as theirs:
        files = ours.fileno(), theirs.fileno()
        size, another = (os.fstat(each).st_size for each in files)
        if size != another:
            return False
        for start, end in extents(size, *files):
            for at in range(start, end, CHUNK):
                mine, yours = (os.pread(each, min(CHUNK, end - at), at) for each in files)
                if mine != yours:
                    return False
        return True


def _is_opaque(layer: Folder, path: str) -> bool:
    with suppress(OSError):
        marks = layer.xattrs(path)
        return any(marks.get(name) == b"y" for name in OPAQUE)
    return False


def _git_change(found: list[Change]) -> Change:
    """All changes in a `.git` directory as one change."""
    path = found[0].path
    while not path.endswith("/.git") and path != ".git":
        path = path.rpartition("/")[0]
    whole = next((change for change in found if change.path == path), None)
    kind = whole.kind if whole is not None and whole.kind in ("added", "deleted", "type") else "modified"
    sides = (whole.before, whole.after) if whole is not None else (None, None)
    return Change(path, kind, *sides, binary=True, runs_later=any(c.runs_later for c in found), members=tuple(found))


def flattened(changes: Sequence[Change]) -> list[Change]:
    """The changes, with those in `.git` one by one."""
    return [single for change in changes for single in (change.members or (change,))]
