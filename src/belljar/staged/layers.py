"""Finds the changes that an overlay's upper layers make to the workspace, from the layers alone.

In a layer a character device 0:0 is a whiteout: the name was deleted. A directory with the opaque mark hides the one
below it. Everything else is what it is. Overlays are mounted without redirects, metacopy and index, so there is nothing
else to know. Only directories that exist in a layer are read: the cost depends on the changes, not on the tree.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Protocol

from belljar.runs_later.ground import Ground
from belljar.runs_later.values import LONGEST as LONGEST_READ
from belljar.runs_later.values import Reader, anything
from belljar.runs_later.view import FolderView
from belljar.staged import git_index
from belljar.staged.change import Change, Entry, Kind
from belljar.staged.copying import (
    DEEPEST,
    OPAQUE,
    extents,
    is_whiteout,
    user_attributes,
)
from belljar.staged.ignored import Ignored
from belljar.staged.settled import DELETED, LARGE, state_of
from belljar.workspace.beneath import Folder, parents

LONGEST = 3800  # bytes of a directory's path, so that the path of anything in it is not too long for the kernel
CHUNK = 1 << 20
_LOOK_FOR_NUL = 8000


class Began(Protocol):
    """When changes began to be kept, and what was applied since: an area."""

    path: Path

    @property
    def since(self) -> int: ...
    @property
    def applied(self) -> dict[str, int]: ...


class Layers:
    """Upper layers, the newest first, over a workspace. Paths are relative to both."""

    def __init__(
        self,
        uppers: Sequence[Folder],
        lower: Folder,
        settled: Mapping[str, str],
        *,
        is_copied: bool = False,
    ) -> None:
        """`settled`: what was applied already (settled.py). `is_copied`: we wrote the layer, not the sandbox."""
        self.uppers, self.lower, self._is_copied = list(uppers), lower, is_copied
        self._settled = settled

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """Keep directories open while many files are looked at or written."""
        with ExitStack() as kept:
            for folder in (self.lower, *self.uppers):
                kept.enter_context(folder.keeping())
            yield

    def changes(self) -> list[Change]:
        with self.keeping():
            return self._changes()

    def _changes(self) -> list[Change]:
        found = groupby(
            self._in_directory("", self.uppers, True, DEEPEST), _git_directory
        )
        changes = [
            change
            for git, group in found
            for change in (_as_one(git, [*group]) if git else group)
        ]
        return [
            replace(change, ignored=True) if self._is_ignored(change) else change
            for change in changes
        ]

    def _is_ignored(self, change: Change) -> bool:
        exists = change.before is not None
        return self._ignored.covers(
            change.path, is_directory=change.is_directory, exists=exists
        )

    @cached_property
    def _ignored(self) -> Ignored:
        return Ignored(
            self.lower,
            os.readlink(f"/proc/self/fd/{self.lower.descriptor}"),
            self._host_s_or_new,
        )

    def _host_s_or_new(self, path: str) -> bytes | None:
        if self.lower.exists(path):
            return _content(self.lower, path)
        holder = self.holder(path)
        return _content(holder, path) if holder is not None else None

    def holder(self, path: str) -> Folder | None:
        """The layer that holds a changed file; None: it is unchanged or deleted."""
        return next(iter(self._holders(path)), None)

    def holders(self, path: str) -> list[Folder]:
        """All layers that hold it, the newest first, until one hides those below."""
        return [*self._holders(path)]

    def _holders(self, path: str) -> Iterator[Folder]:
        for layer in self.uppers:
            try:
                status = layer.stat(path)
            except OSError:
                if self._hidden_by(layer, path):
                    return
                continue
            if is_whiteout(status):
                return
            yield layer
            is_directory = stat.S_ISDIR(status.st_mode)
            if self._hidden_by(layer, path) or (
                is_directory and _is_opaque(layer, path)
            ):
                return

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
    ) -> Iterator[Change]:
        merged = self._merged(at, layers)
        for name, (status, stack, below) in sorted(merged.items()):
            yield from self._entry(
                f"{at}/{name}" if at else name,
                status,
                stack,
                shows_lower and below,
                depth,
            )
        if not shows_lower:
            yield from self._no_longer_there(at, set(merged))

    def _merged(
        self, at: str, layers: list[Folder]
    ) -> dict[str, tuple[os.stat_result | None, list[Folder], bool]]:
        """Name → its status (None: deleted), the layers that hold it, whether the workspace shows below them."""
        merged: dict[str, tuple[os.stat_result | None, list[Folder], bool]] = {}
        for index, layer in enumerate(layers):
            with suppress(OSError):
                for name in layer.names(at):
                    if name not in merged:
                        merged[name] = self._stack(
                            f"{at}/{name}" if at else name, layers[index:]
                        )
        return merged

    def _stack(
        self, path: str, layers: list[Folder]
    ) -> tuple[os.stat_result | None, list[Folder], bool]:
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
        self,
        path: str,
        status: os.stat_result | None,
        stack: list[Folder],
        shows_lower: bool,
        depth: int,
    ) -> Iterator[Change]:
        before, seal = self._below(path)
        if status is None:
            if before is not None and self._settled.get(path) != DELETED:
                yield Change(path, "deleted", before, seal=seal)
            return
        seal += self._version(status)
        holder = stack[0]
        after = Entry.of(
            status, holder.readlink(path) if stat.S_ISLNK(status.st_mode) else None
        )
        if after.kind == "directory" and (
            depth == 1 or len(os.fsencode(path)) > LONGEST
        ):
            yield Change(
                path,
                "type" if before else "added",
                before,
                replace(after, kind="too_deep"),
                seal=seal,
            )
            return
        kind = self._kind(path, holder, before, after)
        if (
            after.kind == "directory"
            and kind in ("added", "mode")
            and self._is_settled(path, holder, after)
        ):
            inside = [*self._in_directory(path, stack, shows_lower, depth - 1)]
            if not inside:
                return  # it was applied, and the host has removed it or changed its mode since
            yield Change(path, kind, before, after, seal=seal)
            yield from inside
            return
        if kind is not None:
            binary = kind != "mode" and _looks_binary(holder, path, after)
            binary = binary or (
                kind == "modified" and _looks_binary(self.lower, path, before)
            )
            yield Change(
                path, kind, before, after, binary, self._is_run(path, after), seal=seal
            )
        if after.kind == "directory":
            yield from self._in_directory(path, stack, shows_lower, depth - 1)

    def _kind(
        self, path: str, holder: Folder, before: Entry | None, after: Entry
    ) -> Kind | None:
        """How it was changed; None if it was not, or if that was applied already."""
        if (
            before is not None
            and before.kind == after.kind
            and self._same(path, holder, before, after)
        ):
            if before.mode == after.mode or after.kind == "link":
                return None
            kind: Kind = "mode"
        else:
            kind = (
                "added"
                if before is None
                else "type"
                if before.kind != after.kind
                else "modified"
            )
        return (
            None
            if after.kind != "directory" and self._is_settled(path, holder, after)
            else kind
        )

    def _no_longer_there(self, at: str, names: set[str]) -> Iterator[Change]:
        """What a replaced directory has in the workspace and no longer in the new one."""
        try:
            below = self.lower.names(at)
        except OSError:
            return
        for name in below:
            path = f"{at}/{name}" if at else name
            if name not in names and (before := self.below(path)) is not None:
                yield Change(path, "deleted", before)

    def below(self, path: str) -> Entry | None:
        return self._below(path)[0]

    def _below(self, path: str) -> tuple[Entry | None, str]:
        """What the host has, and its version."""
        try:
            status = self.lower.stat(path)
            target = self.lower.readlink(path) if stat.S_ISLNK(status.st_mode) else None
        except OSError:
            return None, "/"
        return Entry.of(status, target), self._version(status) + "/"

    def is_still(self, holder: Folder, path: str, version: str) -> bool:
        """Whether a staged file that was just copied is the version that its seal named."""
        return self._version(holder.stat(path)) == version

    def _version(self, status: os.stat_result) -> str:
        """Changes with a file's contents. Where the sandbox cannot set times, copying may change the last of them."""
        if stat.S_ISDIR(status.st_mode):
            return ""
        when = status.st_mtime_ns if self._is_copied else status.st_ctime_ns
        return f"{status.st_ino}.{status.st_size}.{when}"

    @cached_property
    def _ground(self) -> Ground:
        """Where this workspace's links and settings lead, with what the sandbox changed in it."""
        views = [
            FolderView(each.descriptor) for each in (self.lower, *reversed(self.uppers))
        ]
        ground = Ground(views, os.readlink(f"/proc/self/fd/{self.lower.descriptor}"))
        ground.survey()
        return ground

    def reader(self, path: str, after: Entry | None) -> Reader | None:
        """How to tell whether the host would run what is changed there; None: it would not."""
        if after is None or after.kind in ("directory", "too_deep"):
            return None
        return self._ground.reader(path, link=after.kind == "link")

    def _is_run(self, path: str, after: Entry) -> bool:
        if (reader := self.reader(path, after)) is None:
            return False
        holder = self.holder(path)
        return (
            reader is anything
            or holder is None
            or self._says_more(path, reader, _content(holder, path))
        )

    def _says_more(self, path: str, reader: Reader, content: bytes | None) -> bool:
        """Whether a file says something to run that the host's does not."""
        new = reader(content) if content is not None else None
        old = _content(self.lower, path)
        return new is None or bool(
            new - ((reader(old) if old is not None else None) or frozenset())
        )

    def harmless(self, change: Change, text: bytes | None = None) -> bytes | None:
        """Of a file whose contents decide whether the host would run it: `text`, or what is staged. None: it would."""
        holder, reader = (
            self.holder(change.path),
            self.reader(change.path, change.after),
        )
        content = (
            text
            if text is not None
            else _content(holder, change.path)
            if holder is not None
            else None
        )
        if (
            content is None
            or reader is None
            or self._says_more(change.path, reader, content)
        ):
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

    def _is_settled(self, path: str, holder: Folder, after: Entry) -> bool:
        """Whether this is what was applied before: whatever the host does with its own file, it is no change again."""
        known, _, mode = self._settled.get(path, "").partition(" ")
        if not known or mode not in ("", f"{after.mode:o}"):
            return False
        try:
            return known == state_of(holder, path, hashed=not known.startswith(LARGE))
        except OSError:
            return False


def _looks_binary(folder: Folder, path: str, entry: Entry | None) -> bool:
    if entry is None or entry.kind != "file":
        return False
    try:
        return b"\0" in folder.head(path, _LOOK_FOR_NUL)
    except OSError:
        return True


def _content(folder: Folder, path: str) -> bytes | None:
    try:
        return folder.read(path, LONGEST_READ)
    except OSError:
        return None


def same_contents(one: Folder, other: Folder, path: str) -> bool:
    with one.file(path) as ours, other.file(path) as theirs:
        files = ours.fileno(), theirs.fileno()
        size, another = (os.fstat(each).st_size for each in files)
        if size != another:
            return False
        for start, end in extents(size, *files):
            for at in range(start, end, CHUNK):
                mine, yours = (
                    os.pread(each, min(CHUNK, end - at), at) for each in files
                )
                if mine != yours:
                    return False
        return True


def _is_opaque(layer: Folder, path: str) -> bool:
    with suppress(OSError):
        marks = layer.xattrs(path)
        return any(marks.get(name) == b"y" for name in OPAQUE)
    return False


def _git_directory(change: Change) -> str:
    """The outermost `.git` that this path is or is in; empty if there is none."""
    above, git, _ = f"/{change.path}/".partition("/.git/")
    return f"{above}/.git".removeprefix("/") if git else ""


def _as_one(path: str, found: list[Change]) -> list[Change]:
    """All changes in a `.git` directory as one change. A file of that name is a change like others."""
    whole = next((change for change in found if change.path == path), None) or Change(
        path, "modified"
    )
    if whole.after is not None and whole.after.kind not in ("directory", "too_deep"):
        return found
    kind = "modified" if whole.kind == "mode" else whole.kind
    run = any(change.runs_later for change in found)
    return [
        replace(whole, kind=kind, binary=True, runs_later=run, members=tuple(found))
    ]


def flattened(changes: Sequence[Change]) -> list[Change]:
    """The changes, with those in `.git` one by one."""
    return [single for change in changes for single in (change.members or (change,))]
