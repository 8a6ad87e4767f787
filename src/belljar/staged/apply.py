"""Applies staged changes to the real workspace, all or some, atomically for each file; and undoes it.

The order makes it safe: check for conflicts; save what will be replaced (saved.py); write the steps to a journal; do
them; delete the journal (journal.py).

Everything happens beneath the opened workspace, and nothing is run. Owners stay as they are on the host, set-id bits
are never set, and files that the host would run by itself need a separate yes.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from belljar.errors import BelljarError, Conflict, UsageError
from belljar.staged import saved
from belljar.staged.area import StagedArea
from belljar.staged.change import Change, cleaned, covers, etag, has_changes, select
from belljar.staged.conflicts import conflicts
from belljar.staged.copying import flush
from belljar.staged.journal import (
    Step,
    carry_out,
    note_restored,
    recover,
    said,
    steps_for,
)
from belljar.staged.layers import Layers, flattened
from belljar.staged.merge import forget_bases, is_as_it_was, merge_conflicts
from belljar.workspace.beneath import Folder, parents


@dataclass
class Applied:
    paths: list[str] = field(default_factory=list)
    """Applied."""
    held: list[str] = field(default_factory=list)
    """Not applied: the host would run these by itself; `runs_later=True` applies them."""
    refused: list[str] = field(default_factory=list)
    """Not applied: FIFOs, sockets, devices, and directories nested too deeply."""
    ignored: list[str] = field(default_factory=list)
    """Not applied: the project's own `.gitignore` ignores these; `ignored=True` applies them."""
    merged: dict[str, str] = field(default_factory=dict)
    """Of `paths`, those that were merged with the host's own changes; with a digest of the sandbox's file."""


def apply(
    area: StagedArea,
    paths: Iterable[str] | None = None,
    *,
    force: bool = False,
    merge: bool = False,
    runs_later: bool = False,
    ignored: bool = False,
    if_match: str | None = None,
    contents: Mapping[str, bytes] = MappingProxyType({}),
    digests: Mapping[str, str] = MappingProxyType({}),
    seen: Collection[Change] = (),
    over: Collection[str] = (),
    both: Collection[str] = (),
    step: Step = lambda name: None,
) -> Applied:
    """`contents`: the text of files of which only some hunks are applied. `seen` and `digests`: the changes that a
    person approved, and the contents of their files; Conflict if they are not the same any more. `merge`: of a text
    file that the host changed as well, take both sides' changes if they do not overlap. `ignored`: also what git
    ignores, which else only its own name applies. `over` and `both`: `force` and `merge` for these paths. `if_match`:
    Conflict if the changes are not those of this `etag`."""
    with area.locked():
        finished = recover(area, step)
        with area.layers() as layers, layers.keeping():
            changes = layers.changes()
            if if_match is not None and etag(changes) != if_match:
                raise Conflict(
                    {
                        change.path: "changed since it was shown"
                        for change in select(changes, paths)
                    }
                )
            if finished and paths is not None:
                done = [
                    path
                    for path in map(cleaned, paths)
                    if any(covers(path, one) for one in finished)
                ]
                paths = [
                    path
                    for path in paths
                    if cleaned(path) not in done or has_changes(changes, cleaned(path))
                ]
            chosen, result = select(changes, paths), Applied()
            now = {change.path: change.plain for change in chosen}
            if stale := [
                change.path for change in seen if now.get(change.path) != change.plain
            ]:
                raise Conflict(
                    dict.fromkeys(
                        sorted(stale), "changed in the sandbox since it was shown"
                    )
                )
            if seen:
                chosen = _of_these(chosen, seen)
            if not ignored:
                chosen, result.ignored = _without_ignored(chosen, paths)
            result.held = [c.path for c in chosen if c.runs_later and not runs_later]
            if result.held and paths is not None:
                held = ", ".join(result.held)
                raise UsageError(
                    f"the host would run {held} by itself; --runs-later (runs_later=True) applies it"
                )
            flat = flattened([c for c in chosen if c.path not in result.held])
            result.refused = [c.path for c in flat if not c.can_be_applied]
            todo = [c for c in flat if c.path not in result.refused]
            over = [c.path for c in todo] if force else over
            both = [c.path for c in todo] if merge else both
            taken = _merged(area, layers, todo, result, over, both)
            result.paths = [*finished, *(c.path for c in todo)]
            if todo:
                step("read")
                texts = {**taken, **contents}
                texts |= _judged_contents(layers, todo, texts)
                seals = {c.path: c.seal for c in todo} if if_match is not None else {}
                carry_out(
                    area,
                    layers,
                    todo,
                    steps_for(todo, texts, digests, seals),
                    result.merged,
                    step,
                )
        return result


def _of_these(chosen: Sequence[Change], seen: Collection[Change]) -> list[Change]:
    """The changes that a person saw, and the new directories they need: not what else is in a directory that was
    among them."""
    paths = {change.path for change in seen}
    needed = {above for path in paths for above in parents(path)}
    return [
        c for c in chosen if c.path in paths or (c.path in needed and c.is_directory)
    ]


def _without_ignored(
    chosen: Sequence[Change], paths: Iterable[str] | None
) -> tuple[list[Change], list[str]]:
    """The changes without those that git ignores, unless their own name or that of an ignored directory was given; and
    the paths of the rest."""
    named = {cleaned(path) for path in paths or ()}
    left = {
        c.path
        for c in chosen
        if c.ignored and named.isdisjoint((c.path, *parents(c.path)))
    }
    left -= {above for c in chosen if c.path not in left for above in parents(c.path)}
    return [c for c in chosen if c.path not in left], sorted(left)


def _merged(
    area: StagedArea,
    layers: Layers,
    todo: Sequence[Change],
    result: Applied,
    over: Collection[str],
    both: Collection[str],
) -> dict[str, bytes]:
    """The text of files that both sides changed and that shall have both; `Conflict` if there are others that may not
    be overwritten."""
    possible = conflicts(area, layers, [c for c in todo if c.path not in over])
    real = {
        path: why
        for path, why in possible.items()
        if not is_as_it_was(area, layers, path)
    }
    contents: dict[str, bytes] = {}
    if wanted := [c for c in todo if c.path in real and c.path in both]:
        contents, result.merged, overlapping = merge_conflicts(area, layers, wanted)
        real |= overlapping
    if left := {path: why for path, why in real.items() if path not in contents}:
        raise Conflict(left)
    return contents


def _judged_contents(
    layers: Layers, changes: Sequence[Change], texts: dict[str, bytes]
) -> dict[str, bytes]:
    """The contents of files that the host might run, and that were found to be harmless: exactly these are applied,
    even if a running sandbox changes the files meanwhile. `texts`: the contents of merged files."""
    contents = {}
    for change in changes:
        if change.runs_later or change.after is None or change.after.kind != "file":
            continue
        if layers.reader(change.path, change.after) is not None:
            content = layers.harmless(change, texts.get(change.path))
            if content is None:
                raise Conflict(
                    {change.path: "changed in the sandbox while it was looked at"}
                )
            contents[change.path] = content
    return contents


def undo(
    area: StagedArea, *, force: bool = False, step: Step = lambda name: None
) -> list[str]:
    """Restore what the last apply replaced, and return the paths. The next call undoes the apply before it: an undo
    cannot be undone. If it is killed, the next call does it again from the beginning."""
    with area.locked():
        recover(area)
        with (
            Folder.at(area.path) as own,
            area.layers() as layers,
            layers.keeping(),
            own.keeping(),
        ):
            saved.pull_up(own)
            try:
                kept = json.loads(own.read("undo/saved.json", 1 << 30))
            except FileNotFoundError:
                raise UsageError(
                    f"{area.id} applied nothing that can still be taken back"
                ) from None
            paths = [one["path"] for one in kept["saved"]]
            if not own.exists("undo/begun"):
                if not force:
                    # A recovery repeats steps, so its change times are newer.
                    newest = {
                        path: when
                        for path, when in area.applied.items()
                        if path in kept["times"]
                    }
                    saved.refuse_overwriting(
                        layers.lower, {**kept["times"], **newest}, kept["indexes"]
                    )
                    saved.refuse_removing(layers.lower, kept["saved"], kept["times"])
                own.write(
                    "undo/begun",
                    json.dumps(saved.read_only_parents(layers.lower, paths)).encode(),
                )
            read_only = json.loads(own.read("undo/begun", 1 << 30))
            try:
                saved.make_writable(layers.lower, paths)
                for one in reversed(kept["saved"]):
                    step(one["path"])
                    saved.bring_back(own, layers.lower, one)
                flush(layers.lower)
                saved.restore_modes(
                    layers.lower,
                    {
                        path: mode
                        for path, mode in read_only.items()
                        if path not in paths
                    },
                )
            except OSError as error:
                raise BelljarError(
                    f"taken back in part ({said(error)}); once that is fixed, undo again: it does the rest"
                ) from error
            note_restored(area, layers.lower, kept)
            saved.note_in_other_areas(area, layers.lower, kept["saved"])
            forget_bases(own, paths, [".merged"])
            saved.pop(own)
    return paths
