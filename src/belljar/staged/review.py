"""Showing, applying and discarding staged changes, for `Session`, the command line and the tools. Blocking."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from itertools import chain
from tempfile import TemporaryDirectory
from types import MappingProxyType

from belljar.errors import Conflict, UsageError
from belljar.records import record
from belljar.staged import diff as diffs
from belljar.staged.apply import Applied, apply, undo
from belljar.staged.area import Point, StagedArea
from belljar.staged.change import Change, select, without_ignored
from belljar.staged.compare import compared
from belljar.staged.conflicts import conflicts
from belljar.staged.copying import OPAQUE, copy_file, digest, make_whiteout, remove_tree
from belljar.staged.layers import Layers, flattened
from belljar.staged.merge import base_of, is_as_it_was, keep_bases, merged
from belljar.workspace.beneath import Folder, parents

MOST_COUNTED = 1000  # changes whose lines are counted


@record
class Shown:
    """A change as it was shown to a person."""

    text: str
    digests: Mapping[str, str]
    """Of files whose contents are not in the text: binary or large ones, and those in `.git`."""


def _digests(layers: Layers, change: Change) -> dict[str, str]:
    found = {}
    for each in flattened([change]):
        if (
            each.after is not None
            and each.after.kind == "file"
            and (holder := layers.holder(each.path)) is not None
        ):
            with suppress(OSError):  # it is gone again, and no longer as `change` says
                found[each.path] = digest(holder, each.path)
    return found


def left_without_workspace(area: StagedArea) -> list[Change]:
    """Files and links in an area that were not applied before its workspace was deleted."""
    with TemporaryDirectory(prefix="belljar-") as empty, ExitStack() as opened:
        uppers = [opened.enter_context(Folder.at(path)) for path in area.uppers]
        layers = Layers(uppers, opened.enter_context(Folder.at(empty)), area.merged)
        return [
            each
            for each in flattened(layers.changes())
            if each.after and each.after.kind in ("file", "link")
        ]


class Review:
    def __init__(
        self, area: StagedArea, record: Callable[..., None] | None = None
    ) -> None:
        self.area = area
        self._record = record
        """Writes the audit trail: a kind, and what was decided."""

    def changes(self, *, ignored: bool = True) -> list[Change]:
        """All changes, or (`ignored` False) only those that the project keeps."""
        found = self.area.changes()
        return found if ignored else without_ignored(found)

    def listed(self, *, ignored: bool = False) -> list[Change]:
        """The changes for a person, with what happened on the host's side, and the numbers of lines."""
        with self.area.layers() as layers, layers.keeping():
            found = layers.changes()
            keep_bases(self.area, layers, found)
            shown = found if ignored else without_ignored(found)
            ours = {
                path: why
                for path, why in conflicts(self.area, layers, shown).items()
                if not is_as_it_was(self.area, layers, path)
            }
            return [
                self._for_a_person(
                    layers, change, ours.get(change.path, ""), number < MOST_COUNTED
                )
                for number, change in enumerate(shown)
            ]

    def _for_a_person(
        self, layers: Layers, change: Change, conflict: str, is_counted: bool
    ) -> Change:
        added, removed = self._lines(layers, change) if is_counted else (None, None)
        if not conflict and added is None:
            return change
        return replace(change, conflict=conflict, added=added, removed=removed)

    @staticmethod
    def _lines(layers: Layers, change: Change) -> tuple[int | None, int | None]:
        if (
            change.ignored
            or change.is_directory
            or (sides := diffs.text_sides(layers, change)) is None
        ):
            return None, None
        return diffs.numbers(sides)

    def diff(self, paths: Iterable[str] | None = None, *, ignored: bool = False) -> str:
        """`ignored`: also of files that git ignores; else only of those that are named."""
        with self.area.layers() as layers, layers.keeping():
            changes = layers.changes()
            found = (
                changes if ignored or paths is not None else without_ignored(changes)
            )
            return diffs.unified(layers, select(found, paths, parents=False))

    def between(
        self,
        since: Point | str | None,
        until: Point | str | None = None,
        paths: Iterable[str] | None = None,
    ) -> str:
        """The diff from one checkpoint to another, or (`until` None) to what is there now."""
        if since is None:
            raise UsageError(
                "name the checkpoint to begin from as well (--since, since=)"
            )
        end = None if until is None else self.area.point(until)
        return compared(
            self.area, self.area, paths, since=self.area.point(since), until=end
        )

    def apply(
        self,
        paths: Iterable[str] | None = None,
        *,
        force: bool = False,
        merge: bool = False,
        runs_later: bool = False,
        ignored: bool = False,
        if_match: str | None = None,
        contents: Mapping[str, str | bytes] = MappingProxyType({}),
    ) -> Applied:
        """`if_match`: the `etag` of the changes that somebody decided about. `contents`: of these files this text, for
        example some hunks only."""
        texts = {
            path: text.encode("utf-8", "surrogateescape")
            if isinstance(text, str)
            else text
            for path, text in contents.items()
        }
        done = apply(
            self.area,
            paths,
            force=force,
            merge=merge,
            runs_later=runs_later,
            ignored=ignored,
            if_match=if_match,
            contents=texts,
        )
        return self._applied(done)

    def show(self, change: Change) -> Shown:
        """The change as text, with digests of files that the text does not contain."""
        with self.area.layers() as layers:
            sides = diffs.text_sides(layers, change)
            return Shown(
                "".join(diffs.of_sides(change, sides)),
                {} if sides is not None else _digests(layers, change),
            )

    def apply_chosen(
        self,
        seen: Mapping[Change, Shown],
        contents: Mapping[str, bytes],
        held: Iterable[str] = (),
        *,
        over: Collection[str] = (),
        both: Collection[str] = (),
    ) -> Applied:
        """Changes that somebody saw and said yes to, whole or (`contents`) in part; all at once. What is read here and
        is as it was shown is what is applied: a sandbox may still run. `held`: what the caller left out. `over`: they
        know that these replace a change of the host's; `both`: of these both sides' changes are kept."""
        texts: dict[str, bytes] = {}
        digests: dict[str, str] = {}
        with self.area.layers() as layers:
            for change, shown in seen.items():
                sides = diffs.text_sides(layers, change)
                if "".join(diffs.of_sides(change, sides)) != shown.text:
                    raise Conflict(
                        {change.path: "changed in the sandbox since it was shown"}
                    )
                is_text = (
                    sides is not None
                    and change.after is not None
                    and change.after.kind == "file"
                )
                if sides is not None and is_text and change.path not in both:
                    texts[change.path] = b"".join(sides.new)
                digests |= shown.digests
        done, paths, contents = (
            Applied(),
            [each.path for each in seen],
            {**texts, **contents},
        )
        if seen:
            done = apply(
                self.area,
                paths,
                contents=contents,
                digests=digests,
                runs_later=True,
                ignored=True,
                seen=seen,
                over=over,
                both=both,
            )
        done.held += held
        return self._applied(done)

    def with_hunks(self, path: str | Change, chosen: list[int]) -> bytes:
        """The host's text with only these hunks applied, numbered from 0."""
        with self.area.layers() as layers:
            sides = self._sides(layers, path)
            found = diffs.hunks(sides)
            try:
                return diffs.with_hunks(sides, [found[number] for number in chosen])
            except IndexError:
                name = path if isinstance(path, str) else path.path
                raise UsageError(f"{name} has {len(found)} hunks") from None

    def sides(self, path: str) -> dict[str, bytes | None]:
        """A changed text file: before the session, on the host's side, in the session. None: not known."""
        with self.area.layers() as layers:
            sides = self._sides(layers, path)
        return {
            "before": base_of(self.area, path),
            "yours": b"".join(sides.old),
            "theirs": b"".join(sides.new),
        }

    def both(self, path: str) -> bytes | None:
        """A text file with both sides' changes; None if these are in the same lines, or whose is whose is not known."""
        texts = self.sides(path)
        if None in texts.values():
            return None
        result = merged(
            *(
                diffs.split_lines(texts[side] or b"")
                for side in ("before", "yours", "theirs")
            )
        )
        return None if result is None else b"".join(result)

    def three(self, path: str) -> str:
        """What each side did to a text file that both changed, as two diffs from how it was."""
        texts = self.sides(path)
        before, yours, theirs = (texts[side] for side in ("before", "yours", "theirs"))
        if before is None:
            return "# how it was before is not known: there is only your text and the sandbox's\n"
        found = []
        for what, new in (("you changed", yours), ("the sandbox changed", theirs)):
            both = diffs.Sides(diffs.split_lines(before), diffs.split_lines(new or b""))
            found += [
                f"# what {what}\n",
                *diffs.named_hunks("before", what.partition(" changed")[0], both),
            ]
        return "".join(found)

    def as_edited(self, change: Change, text: bytes) -> str:
        """The diff from the host's text to one that somebody has edited."""
        with self.area.layers() as layers:
            sides = self._sides(layers, change)
        edited = diffs.Sides(sides.old, diffs.split_lines(text))
        return "".join(
            diffs.named_hunks(
                *diffs.names(change.path, change.before, change.after), edited
            )
        )

    def text(self, path: str | Change) -> bytes:
        """A text file as the sandbox has it."""
        with self.area.layers() as layers:
            return b"".join(self._sides(layers, path).new)

    def hunks(self, path: str | Change) -> list[str]:
        """The hunks of a text file, as text."""
        with self.area.layers() as layers:
            sides = self._sides(layers, path)
            return [diffs.hunk_text(sides, group) for group in diffs.hunks(sides)]

    @staticmethod
    def _sides(layers: Layers, path: str | Change) -> diffs.Sides:
        """A change is looked at by itself; to find that of a path needs the whole list."""
        if isinstance(path, Change):
            change: Change | None = path
        else:
            change = next(
                (
                    each
                    for each in select(layers.changes(), [path])
                    if each.path == path
                ),
                None,
            )
        sides = diffs.text_sides(layers, change) if change is not None else None
        if sides is None:
            name = path if isinstance(path, str) else path.path
            raise UsageError(
                f"{name} is not a text file that changed: it is taken as a whole"
            )
        return sides

    def undo(self, *, force: bool = False) -> list[str]:
        back = undo(self.area, force=force)
        self._note("undo", back)
        return back

    def discard(self, paths: Iterable[str] | None = None) -> list[str]:
        """Take changes of an ended session back, all or some; what they were. What was applied can still be undone."""
        gone = self._discard_all() if paths is None else self._discard_some(paths)
        self._note("discard", gone)
        return gone

    def _discard_some(self, paths: Iterable[str]) -> list[str]:
        with self.area.locked(), Folder.at(self.area.path / "upper") as upper:
            with self.area.layers() as layers:
                found = select(layers.changes(), paths, parents=False)
            chosen = sorted(flattened(found), key=lambda each: each.path)
            for change in chosen:
                remove_tree(upper, change.path)
            with (
                self.area.layers() as layers
            ):  # what a checkpoint's layer still says, or a replaced directory hides
                left = {change.path for change in flattened(layers.changes())}
                for change in chosen:
                    if change.path in left:
                        _cover(layers, upper, change)
            self.area.note_applied({}, forget=[change.path for change in chosen])
        return [change.path for change in found]

    def _discard_all(self) -> list[str]:
        with self.area.locked():
            try:
                found = [change.path for change in self.area.changes()]
            except UsageError:  # the workspace is gone
                found = []
            if (
                self.area.can_undo
                and not self.area.is_cut_off
                and self.area.is_in_place
            ):
                self.area.go_back()
            else:
                self.area.remove()
        return found

    def _applied(self, done: Applied) -> Applied:
        self._note("apply", done.paths, held=done.held)
        return done

    def _note(self, kind: str, paths: list[str], **more: list[str]) -> None:
        if self._record is not None and (paths or any(more.values())):
            self._record(kind, paths=paths[:1000], **more)


def _cover(layers: Layers, upper: Folder, change: Change) -> None:
    """Hide what the layers below have at this path behind a copy of the host's side."""
    for above in parents(change.path):
        if not upper.exists(above):
            mode = (layers.holder(above) or layers.lower).stat(above).st_mode & 0o777
            upper.mkdir(above, 0o700)
            upper.chmod(above, mode)
    if change.before is None:
        make_whiteout(upper, change.path)
    else:
        _copy(layers.lower, upper, change.path)
        if change.before.kind == "directory":
            upper.set_xattr(change.path, OPAQUE[os.geteuid() != 0], b"y")


def _copy(source: Folder, target: Folder, top: str) -> None:
    """Copy a tree; existing files in a directory stay."""
    modes: dict[str, int] = {}
    for path, status in chain([(top, source.stat(top))], source.walk(top)):
        mode = stat.S_IMODE(status.st_mode) & 0o777
        if path != top and target.exists(path) and not stat.S_ISDIR(status.st_mode):
            continue
        if stat.S_ISDIR(status.st_mode):
            modes[path] = mode
            with suppress(FileExistsError):
                target.mkdir(path, 0o700)
        elif stat.S_ISLNK(status.st_mode):
            remove_tree(target, path)
            target.symlink(source.readlink(path), path)
        elif stat.S_ISREG(status.st_mode):
            remove_tree(target, path)
            copy_file(source, path, target, path, mode)
            target.utime(path, (status.st_atime_ns, status.st_mtime_ns))
    for path in reversed(modes):
        target.chmod(path, modes[path])
