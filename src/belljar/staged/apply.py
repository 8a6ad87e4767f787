"""Applies staged changes to the real workspace, all or some, atomically for each file; and undoes it.

The order makes it safe: check for conflicts; save what will be replaced (undo); write the steps to a journal; do them;
delete the journal. If we are killed before the journal is complete, nothing has happened; if later, the next process
that takes the lock does the rest, since every step can be repeated. Files are written to a temporary name and renamed.

Everything happens beneath the opened workspace, and nothing is run. Owners stay as they are on the host, set-id bits
are never set, and files that the host would run by itself need a separate yes.
"""

from __future__ import annotations

import base64
import errno
import json
import os
import secrets
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NoReturn

from belljar.errors import BelljarError, Conflict, UsageError
from belljar.staged import git_index
from belljar.staged.area import StagedArea
from belljar.staged.change import Change
from belljar.staged.conflicts import conflicts
from belljar.staged.copying import copy_attributes, copy_file, digest, remove_tree
from belljar.staged.layers import Layers, flattened
from belljar.staged.merge import forget_bases, is_as_it_was, merge_conflicts, settle
from belljar.staged.run_files import by_content
from belljar.staged.saved import (
    bring_back,
    every,
    lock_again,
    locked,
    pop,
    pull_up,
    push,
    refuse_overwriting,
    refuse_removing,
    saved,
    tell_older,
    unlock,
)  # fmt: skip
from belljar.workspace import beneath
from belljar.workspace.beneath import Folder, Owner

Step = Callable[[str], None]
"""Called before each step; tests kill the process there."""


@dataclass
class Applied:
    paths: list[str] = field(default_factory=list)
    """Applied."""
    held: list[str] = field(default_factory=list)
    """Not applied: the host would run these by itself; `runs_later=True` applies them."""
    refused: list[str] = field(default_factory=list)
    """Not applied: FIFOs, sockets, devices, and directories nested too deeply."""
    merged: dict[str, str] = field(default_factory=dict)
    """Of `paths`, those that were merged with the host's own changes; with a digest of the sandbox's file."""


def select(changes: Sequence[Change], paths: Iterable[str] | None, *, parents: bool = True) -> list[Change]:
    """The changes at or below these paths, and (`parents`) the new directories they need."""
    if paths is None:
        return list(changes)
    tops = [_cleaned(path) for path in paths]
    for path in tops:
        if not has_changes(changes, path):
            raise UsageError(f"{path}: nothing changed there")
    chosen = [change for change in changes if any(_covers(path, change.path) for path in tops)]
    if not parents:
        return chosen
    needed = {above for change in chosen for above in beneath.parents(change.path)}
    extra = [c for c in changes if c.path in needed and c.kind in ("added", "type") and c not in chosen]
    return [*extra, *chosen]


def has_changes(changes: Sequence[Change], path: str) -> bool:
    return any(_covers(_cleaned(path), change.path) for change in changes)


def _cleaned(path: str) -> str:
    cleaned = os.path.normpath(path)
    if cleaned == ".." or cleaned.startswith(("/", "../")) or "\0" in path:
        raise UsageError(f"{path!r} is not a path below the workspace")
    return "" if cleaned == "." else cleaned


def _covers(path: str, changed: str) -> bool:
    return not path or changed == path or changed.startswith(f"{path}/")


def apply(
    area: StagedArea, paths: Iterable[str] | None = None, *, force: bool = False, merge: bool = False,
    runs_later: bool = False, contents: Mapping[str, bytes] = MappingProxyType({}),
    digests: Mapping[str, str] = MappingProxyType({}), seen: Collection[Change] = (), step: Step = lambda name: None,
) -> Applied:  # fmt: skip
    """`contents`: the text of files of which only some hunks are applied. `seen` and `digests`: the changes that a
    person approved, and the contents of their files; Conflict if they are not the same any more. `merge`: of a text
    file that the host changed as well, take both sides' changes if they do not overlap."""
    with area.locked():
        recover(area, step)
        with area.layers() as layers:
            chosen = select(layers.changes(), paths)
            if stale := {change.path for change in seen} - {change.path for change in {*chosen} & {*seen}}:
                raise Conflict(dict.fromkeys(sorted(stale), "changed in the sandbox since it was shown"))
            result = Applied()
            result.held = [c.path for c in chosen if c.runs_later and not runs_later]
            if result.held and paths is not None:
                names = ", ".join(result.held)
                raise UsageError(f"the host would run {names} by itself; --runs-later (runs_later=True) applies it")
            flat = flattened([c for c in chosen if c.path not in result.held])
            result.refused = [c.path for c in flat if not c.can_be_applied]
            todo = [c for c in flat if c.path not in result.refused]
            taken = {} if force else _merged(area, layers, todo, result, merge=merge)
            result.paths = [c.path for c in todo]
            if todo:
                step("read")
                texts = {**taken, **contents}
                texts |= _judged_contents(layers, todo, texts)
                _carry_out(area, layers, todo, _files(todo, texts, digests), result.merged, step)
        return result


def _merged(
    area: StagedArea, layers: Layers, todo: Sequence[Change], result: Applied, *, merge: bool
) -> dict[str, bytes]:
    """The text of files that both sides changed; `Conflict` if there are others."""
    possible = conflicts(area, layers, todo)
    real = {path: why for path, why in possible.items() if not is_as_it_was(area, layers, path)}
    contents: dict[str, bytes] = {}
    if real and merge:
        contents, result.merged, overlapping = merge_conflicts(area, layers, [c for c in todo if c.path in real])
        real |= overlapping
    if left := {path: why for path, why in real.items() if path not in contents}:
        raise Conflict(left)
    return contents


def _judged_contents(layers: Layers, changes: Sequence[Change], texts: dict[str, bytes]) -> dict[str, bytes]:
    """The contents of git's settings files, which were checked: exactly these are applied, even if a running sandbox
    changes the files meanwhile. `texts`: the contents of merged files."""
    contents = {}
    for change in changes:
        is_setting = by_content(change.path) and ".git" in change.path.split("/")
        if is_setting and not change.runs_later and change.after is not None and change.after.kind == "file":
            content = layers.harmless(change.path, texts.get(change.path))
            if content is None:
                raise Conflict({change.path: "changed in the sandbox while it was looked at"})
            contents[change.path] = content
    return contents


# Carrying it out.


def _carry_out(
    area: StagedArea,
    layers: Layers,
    changes: Sequence[Change],
    files: Sequence[dict[str, Any]],
    merged: dict[str, str],
    step: Step,
) -> None:
    token = secrets.token_hex(6)
    with Folder.at(area.path) as own:
        try:
            kept = _saved(own, layers, changes, step)
            ours, since = area.applied, area.since
            there = ((one["path"], one["ctime"]) for one in every(kept))
            newer = [path for path, when in there if when >= since and ours.get(path) != when]
            theirs = [path for path in newer if not is_as_it_was(area, layers, path)]
            shut = locked(layers.lower, [change.path for change in changes])
            steps = [*_removals(changes), *_directories(changes), *files, *_modes(changes)]
            journal = {"token": token, "steps": steps, "saved": kept, "merged": merged, "theirs": theirs, "shut": shut}
            step("journal")
            own.write("journal.json", json.dumps(journal).encode())
        except OSError as error:
            remove_tree(own, "undo.new")
            raise BelljarError(f"nothing was applied: {_said(error)}") from error
        try:
            _perform(area, own, layers, journal, step)
        except OSError as error:
            _take_back(area, own, layers, journal, error)


def _saved(own: Folder, layers: Layers, changes: Sequence[Change], step: Step) -> list[dict[str, Any]]:
    step("save")
    remove_tree(own, "undo.new")
    own.mkdir("undo.new", 0o700)
    return [
        saved(own, layers.lower, change.path, str(number), step, whole=change.kind != "mode")
        for number, change in enumerate(changes)
    ]


def _said(error: OSError) -> str:
    return f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}"


def _take_back(area: StagedArea, own: Folder, layers: Layers, journal: dict[str, Any], error: OSError) -> NoReturn:
    """A step that is refused (no permission, no space) undoes those before it. Where even that is refused the journal
    stays: each file is whole, and the next apply does the rest."""
    said = _said(error)
    try:
        unlock(layers.lower, [one["path"] for one in journal["saved"]])
        for one in reversed(journal["saved"]):
            bring_back(own, layers.lower, one, "undo.new")
        lock_again(layers.lower, journal["shut"])
        _note_back(area, layers.lower, journal)
        own.unlink("journal.json")
    except OSError:
        raise BelljarError(f"applied in part ({said}); `belljar apply` does the rest once that is fixed") from error
    raise BelljarError(f"nothing was applied: {said}") from error


def _note_back(area: StagedArea, lower: Folder, kept: dict[str, Any]) -> None:
    """Restored files are not changes of the host; but those that the host had changed before the apply still are."""
    back = [one["path"] for one in every(kept["saved"]) if one["path"] not in kept["theirs"]]
    times = {path: lower.stat(path).st_ctime_ns for path in back if lower.exists(path)}
    area.note_applied(times, forget=[one["path"] for one in kept["saved"]])


def _removals(changes: Sequence[Change]) -> list[dict[str, Any]]:
    gone = [c for c in changes if c.after is None or (c.kind == "type" and _has_directory(c))]
    return [{"do": "remove", "path": c.path} for c in sorted(gone, key=lambda c: c.path, reverse=True)]


def _has_directory(change: Change) -> bool:
    """Then one cannot simply be renamed over the other."""
    return any(side is not None and side.kind == "directory" for side in (change.before, change.after))


def _directories(changes: Sequence[Change]) -> list[dict[str, Any]]:
    new = [c for c in changes if c.after is not None and c.after.kind == "directory" and c.kind in ("added", "type")]
    return [{"do": "mkdir", "path": c.path} for c in sorted(new, key=lambda c: c.path)]


def _files(
    changes: Sequence[Change], contents: Mapping[str, bytes], digests: Mapping[str, str]
) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = []
    for change in changes:
        after = change.after
        if after is None or after.kind == "directory" or change.kind == "mode":
            continue
        one: dict[str, Any] = {"do": after.kind, "path": change.path, "mode": after.mode, "target": after.target}
        if change.path in contents:
            one["text"] = base64.b64encode(contents[change.path]).decode()
        elif change.path in digests:
            one["digest"] = digests[change.path]
        steps.append(one)
    return steps


def _modes(changes: Sequence[Change]) -> list[dict[str, Any]]:
    """Modes come last: a read-only directory must be filled first."""
    new = [c for c in changes if c.after is not None and (c.kind == "mode" or c.after.kind == "directory")]
    return [
        {"do": "chmod", "path": c.path, "mode": c.after.mode}
        for c in sorted(new, key=lambda c: c.path, reverse=True)
        if c.after
    ]


def _perform(area: StagedArea, own: Folder, layers: Layers, journal: dict[str, Any], step: Step) -> None:
    """Do the steps; each may have been done already."""
    times: dict[str, int] = {}
    unlock(layers.lower, [one["path"] for one in journal["steps"]])
    for number, one in enumerate(journal["steps"]):
        step(f"{one['do']} {one['path']}")
        _do(layers, one, f".{journal['token']}.{number}.belljar")
        with suppress(OSError):
            times[one["path"]] = layers.lower.stat(one["path"]).st_ctime_ns
    changed = {one["path"] for one in journal["steps"] if one["do"] == "chmod"}
    lock_again(layers.lower, {path: mode for path, mode in journal["shut"].items() if path not in changed})
    step("note")
    merged = journal.get("merged", {})
    forget_bases(own, [path for path in times if path not in merged])
    whole = [one["path"] for one in journal["steps"] if one["do"] == "file" and "text" not in one]
    settled = settle(own, layers.lower, [path for path in whole if path not in merged])
    area.note_applied({path: when for path, when in times.items() if path not in merged}, {**merged, **settled})
    step("undo")
    if own.exists("undo.new"):  # else we were killed after the rename in `push`
        indexes = {path: found.hex() for path in whole if (found := git_index.meaning_of(layers.lower, path))}
        kept = {"saved": journal["saved"], "theirs": journal["theirs"], "times": times, "indexes": indexes}
        own.write("undo.new/saved.json", json.dumps(kept).encode())
        push(own)
    step("forget")
    own.unlink("journal.json")


def _do(layers: Layers, one: dict[str, Any], temporary: str) -> None:
    lower, path = layers.lower, one["path"]
    if one["do"] == "remove":
        remove_tree(lower, path)
    elif one["do"] == "mkdir":
        with suppress(FileExistsError):
            lower.mkdir(path, 0o700)
            if owner := _owner_of(lower, path.rpartition("/")[0]):
                lower.give(path, owner)
    elif one["do"] == "chmod":
        lower.chmod(path, one["mode"] & 0o777)
    else:
        _put(layers, one, temporary)


def _put(layers: Layers, one: dict[str, Any], temporary: str) -> None:
    lower, path = layers.lower, one["path"]
    parent = path.rpartition("/")[0]
    beside = f"{parent}/{temporary}" if parent else temporary
    remove_tree(lower, beside)
    holder = layers.holder(path)
    owner = _owner_of(lower, path if lower.exists(path) else parent)
    try:
        if one["do"] == "link":
            lower.symlink(one["target"], beside)
            if owner:
                lower.give(beside, owner)
        elif "text" in one:
            lower.write(beside, base64.b64decode(one["text"]), one["mode"] & 0o777, owner)
            if holder is not None:
                copy_attributes(holder, path, lower, beside)
        else:
            if holder is None:
                raise UsageError(f"{path} is no longer among the staged changes")
            copy_file(holder, path, lower, beside, one["mode"], owner=owner)
            if "digest" in one and digest(lower, beside) != one["digest"]:
                raise OSError(errno.ESTALE, "changed in the sandbox since it was shown", path)
        lower.rename(beside, path)
    except BaseException:
        with suppress(OSError):
            remove_tree(lower, beside)
        raise


def _owner_of(folder: Folder, model: str) -> Owner | None:
    """A replaced file keeps its owner; a new one gets that of its directory. None: we are not root."""
    if os.geteuid() != 0:
        return None
    status = folder.stat(model)
    return status.st_uid, status.st_gid


def recover(area: StagedArea, step: Step = lambda name: None) -> bool:
    """Finish an apply that was killed. The caller holds the lock."""
    with Folder.at(area.path) as own:
        if not own.exists("journal.json"):
            return False
        journal = json.loads(own.read("journal.json", 1 << 30))
        with area.layers() as layers:
            try:
                _perform(area, own, layers, journal, step)
            except OSError as error:
                if error.errno == errno.ESTALE:
                    _take_back(area, own, layers, journal, error)
                raise BelljarError(f"an apply that was cut off cannot be finished: {_said(error)}; "
                                   "fix that and apply again, or discard all") from error  # fmt: skip
    return True


# Undo.


def undo(area: StagedArea, *, force: bool = False, step: Step = lambda name: None) -> list[str]:
    """Restore what the last apply replaced, and return the paths. The next call undoes the apply before it: an undo
    cannot be undone. If it is killed, the next call does it again from the beginning."""
    with area.locked():
        recover(area)
        with Folder.at(area.path) as own, area.layers() as layers:
            pull_up(own)
            try:
                kept = json.loads(own.read("undo/saved.json", 1 << 30))
            except FileNotFoundError:
                raise UsageError(f"{area.id} applied nothing that can still be taken back") from None
            paths = [one["path"] for one in kept["saved"]]
            if not own.exists("undo/begun"):
                if not force:
                    # A recovery repeats steps, so its change times are newer.
                    noted = {path: when for path, when in area.applied.items() if path in kept["times"]}
                    refuse_overwriting(layers.lower, {**kept["times"], **noted}, kept.get("indexes", {}))
                    refuse_removing(layers.lower, kept["saved"], kept["times"])
                own.write("undo/begun", json.dumps(locked(layers.lower, paths)).encode())
            shut = json.loads(own.read("undo/begun", 1 << 30))
            try:
                unlock(layers.lower, paths)
                for one in reversed(kept["saved"]):
                    step(one["path"])
                    bring_back(own, layers.lower, one)
                lock_again(layers.lower, {path: mode for path, mode in shut.items() if path not in paths})
            except OSError as error:
                raise BelljarError(
                    f"taken back in part ({_said(error)}); once that is fixed, undo again: it does the rest"
                ) from error
            _note_back(area, layers.lower, kept)
            tell_older(area, layers.lower, kept["saved"])
            forget_bases(own, paths, [".merged"])
            pop(own)
    return paths
