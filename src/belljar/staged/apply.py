"""Staged changes into the real workspace: all or some, each file old or new, never half.

The order that makes it safe: look for conflicts; save what is there (undo); write down what will be done (journal);
do it; forget the journal. Killed before the journal stands, nothing has happened; killed after it, the next one who
takes the lock does the rest: every step can be done twice. Files are written beside their place and renamed.

Everything happens beneath the opened workspace. Nothing is run. Owners stay as they are on the host, set-id bits are
never given, and what the host would run by itself needs a yes of its own.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import stat
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NoReturn

from belljar.errors import BelljarError, Conflict, UsageError
from belljar.staged.area import StagedArea
from belljar.staged.change import PLAIN, Change
from belljar.staged.copying import copy_file, remove_tree
from belljar.staged.layers import Layers, flattened
from belljar.staged.run_files import by_content
from belljar.workspace.beneath import Folder

_ORIGIN = ("trusted.overlay.origin", "user.overlay.origin")
Step = Callable[[str], None]
"""Told before each step; tests are killed there."""


@dataclass
class Applied:
    paths: list[str] = field(default_factory=list)
    """What is in the workspace now."""
    held: list[str] = field(default_factory=list)
    """Not applied: the host would run these by itself; name them with `runs_later=True`."""
    refused: list[str] = field(default_factory=list)
    """Not applied: FIFOs, sockets and devices."""


def select(changes: Sequence[Change], paths: Iterable[str] | None) -> list[Change]:
    """The changes at or below these paths, and the new directories they need."""
    if paths is None:
        return list(changes)
    wanted = [_cleaned(path) for path in paths]
    for path in wanted:
        if not any(_covers(path, change.path) for change in changes):
            raise UsageError(f"{path}: nothing changed there")
    chosen = [change for change in changes if any(_covers(path, change.path) for path in wanted)]
    needed = {above for change in chosen for above in _parents(change.path)}
    extra = [c for c in changes if c.path in needed and c.kind in ("added", "type") and c not in chosen]
    return [*extra, *chosen]


def _cleaned(path: str) -> str:
    cleaned = os.path.normpath(path)
    if cleaned.startswith(("/", "..")) or "\0" in path:
        raise UsageError(f"{path!r} is not a path below the workspace")
    return "" if cleaned == "." else cleaned


def _covers(path: str, changed: str) -> bool:
    return not path or changed == path or changed.startswith(f"{path}/")


def _parents(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:end]) for end in range(1, len(parts))]


def apply(
    area: StagedArea, paths: Iterable[str] | None = None, *, force: bool = False, runs_later: bool = False,
    contents: dict[str, bytes] | None = None, step: Step = lambda name: None,
) -> Applied:  # fmt: skip
    """`contents` gives the text of files of which only some hunks are taken."""
    with area.locked():
        recover(area, step)
        with area.layers() as layers:
            chosen = select(layers.changes(), paths)
            result = Applied()
            result.held = [c.path for c in chosen if c.runs_later and not runs_later]
            if result.held and paths is not None:
                raise UsageError(f"the host would run {', '.join(result.held)} by itself: say yes to that on its own")
            flat = flattened([c for c in chosen if c.path not in result.held])
            result.refused = [c.path for c in flat if c.after is not None and c.after.kind not in PLAIN]
            todo = [c for c in flat if c.path not in result.refused]
            if not force:
                _refuse_conflicts(area, layers, todo)
            result.paths = [c.path for c in todo]
            if todo:
                step("read")
                fixed = {} if runs_later else _judged_contents(layers, todo)
                _carry_out(area, layers, todo, fixed | (contents or {}), step)
        return result


def _judged_contents(layers: Layers, changes: Sequence[Change]) -> dict[str, bytes]:
    """Files that are not held because of what is in them: what was judged is what is applied, whatever a sandbox that
    still runs writes there meanwhile."""
    found = {}
    for change in changes:
        is_setting = by_content(change.path) and ".git" in change.path.split("/")
        if is_setting and change.after is not None and change.after.kind == "file":
            content = layers.harmless(change.path)
            if content is None:
                raise Conflict({change.path: "changed in the sandbox while it was looked at"})
            found[change.path] = content
    return found


# Conflicts.


def _refuse_conflicts(area: StagedArea, layers: Layers, changes: Sequence[Change]) -> None:
    ours = area.applied
    made = {c.path for c in changes if c.after is not None and c.after.kind == "directory"}
    moved = _inodes(layers)
    found = {c.path: why for c in changes if (why := _conflict(layers, c, area.since, ours, made, moved))}
    if found:
        raise Conflict(found)


def _conflict(
    layers: Layers, change: Change, since: int, ours: dict[str, int], made: set[str], moved: set[int]
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
            (path for path, status in layers.lower.walk(change.path) if _is_newer(path, status, since, ours)), None
        )
        return f"{changed} changed on the host, its directory was replaced in the sandbox" if changed else None
    status = layers.lower.stat(change.path)
    if _is_newer(change.path, status, since, ours):
        return f"changed on the host, {'deleted' if change.after is None else 'changed'} in the sandbox"
    return None


def _is_newer(path: str, status: os.stat_result, since: int, ours: dict[str, int]) -> bool:
    if stat.S_ISDIR(status.st_mode):
        return False
    return status.st_ctime_ns >= since and ours.get(path) != status.st_ctime_ns


def _was_copied_up(layers: Layers, path: str, moved: set[int]) -> bool:
    """Whether it was the workspace's own, at this path. A file that was renamed in the sandbox has the mark too: it
    holds a handle, and in it the inode of a file that the workspace still has elsewhere."""
    holder = layers.holder(path)
    try:
        marks = holder.xattrs(path) if holder is not None else {}
    except OSError:
        return False
    origin = next((marks[name] for name in _ORIGIN if name in marks), None)
    return origin is not None and not any((inode & 0xFFFFFFFF).to_bytes(4, "little") in origin for inode in moved)


def _inodes(layers: Layers) -> set[int]:
    """Of the workspace's files that the sandbox deleted, moved or replaced."""
    found = set()
    for change in flattened(layers.changes()):
        if change.before is not None and change.before.kind != "directory":
            with suppress(OSError):
                found.add(layers.lower.stat(change.path).st_ino)
    return found


# Doing it.


def _carry_out(
    area: StagedArea, layers: Layers, changes: Sequence[Change], contents: dict[str, bytes], step: Step
) -> None:
    token = secrets.token_hex(6)
    with Folder.at(area.path) as own:
        step("save")
        remove_tree(own, "undo.new")
        own.mkdir("undo.new", 0o700)
        saved = [_saved(own, layers.lower, change.path, str(number), step) for number, change in enumerate(changes)]
        steps = [*_removals(changes), *_directories(changes), *_files(changes, contents), *_modes(changes)]
        journal = {"token": token, "steps": steps, "saved": saved}
        step("journal")
        own.write("journal.json", json.dumps(journal).encode("utf-8", "surrogateescape"))
        try:
            _perform(area, own, layers, journal, step)
        except OSError as error:
            _take_back(own, layers, journal, error)


def _take_back(own: Folder, layers: Layers, journal: dict[str, Any], error: OSError) -> NoReturn:
    """A step that is refused (no permission, no space) undoes those before it. Where even that is refused the journal
    stays: each file is whole, and the next apply does the rest."""
    said = f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}"
    try:
        for one in reversed(journal["saved"]):
            _bring_back(own, layers.lower, one, "undo.new")
        own.unlink("journal.json")
    except OSError:
        raise BelljarError(f"applied in part ({said}); `belljar apply` does the rest when that is mended") from error
    raise BelljarError(f"nothing was applied: {said}") from error


def _removals(changes: Sequence[Change]) -> list[dict[str, Any]]:
    gone = [c for c in changes if c.after is None or (c.kind == "type" and _has_directory(c))]
    return [{"do": "remove", "path": c.path} for c in sorted(gone, key=lambda c: c.path, reverse=True)]


def _has_directory(change: Change) -> bool:
    """Only then is one not simply renamed over the other."""
    return any(side is not None and side.kind == "directory" for side in (change.before, change.after))


def _directories(changes: Sequence[Change]) -> list[dict[str, Any]]:
    new = [c for c in changes if c.after is not None and c.after.kind == "directory" and c.kind in ("added", "type")]
    return [{"do": "mkdir", "path": c.path} for c in sorted(new, key=lambda c: c.path)]


def _files(changes: Sequence[Change], contents: dict[str, bytes]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for change in changes:
        after = change.after
        if after is None or after.kind == "directory" or change.kind == "mode":
            continue
        one: dict[str, Any] = {"do": after.kind, "path": change.path, "mode": after.mode, "target": after.target}
        if change.path in contents:
            one["text"] = base64.b64encode(contents[change.path]).decode()
        found.append(one)
    return found


def _modes(changes: Sequence[Change]) -> list[dict[str, Any]]:
    """Of directories last: one that nobody may write to is filled first."""
    new = [c for c in changes if c.after is not None and (c.kind == "mode" or c.after.kind == "directory")]
    return [
        {"do": "chmod", "path": c.path, "mode": c.after.mode}
        for c in sorted(new, key=lambda c: c.path, reverse=True)
        if c.after
    ]


def _perform(area: StagedArea, own: Folder, layers: Layers, journal: dict[str, Any], step: Step) -> None:
    """Every step may have been done already."""
    times: dict[str, int] = {}
    for number, one in enumerate(journal["steps"]):
        step(f"{one['do']} {one['path']}")
        _do(layers, one, f".{journal['token']}.{number}.belljar")
        with suppress(OSError):
            times[one["path"]] = layers.lower.stat(one["path"]).st_ctime_ns
    step("note")
    area.note_applied(times)
    step("undo")
    if own.exists("undo.new"):  # killed from here on, it is not there any more
        kept = {"saved": journal["saved"], "times": times}
        own.write("undo.new/saved.json", json.dumps(kept).encode("utf-8", "surrogateescape"))
        remove_tree(own, "undo")
        own.rename("undo.new", "undo")
    step("forget")
    own.unlink("journal.json")


def _do(layers: Layers, one: dict[str, Any], temporary: str) -> None:
    lower, path = layers.lower, one["path"]
    if one["do"] == "remove":
        remove_tree(lower, path)
    elif one["do"] == "mkdir":
        with suppress(FileExistsError):
            lower.mkdir(path, 0o700)
            _owned_like(lower, path, path.rpartition("/")[0])
    elif one["do"] == "chmod":
        lower.chmod(path, one["mode"] & 0o777)
    else:
        _put(layers, one, temporary)


def _put(layers: Layers, one: dict[str, Any], temporary: str) -> None:
    lower, path = layers.lower, one["path"]
    parent = path.rpartition("/")[0]
    beside = f"{parent}/{temporary}" if parent else temporary
    remove_tree(lower, beside)
    try:
        if one["do"] == "link":
            lower.symlink(one["target"], beside)
        elif "text" in one:
            lower.write(beside, base64.b64decode(one["text"]), one["mode"] & 0o777)
        else:
            holder = layers.holder(path)
            if holder is None:
                raise UsageError(f"{path} is no longer among the staged changes")
            copy_file(holder, path, lower, beside, one["mode"])
        _owned_like(lower, beside, path if lower.exists(path) else parent)
        lower.rename(beside, path)
    except BaseException:
        with suppress(OSError):
            remove_tree(lower, beside)
        raise


def _owned_like(folder: Folder, path: str, model: str) -> None:
    """What was there keeps its owner; what is new belongs to whom its directory belongs to."""
    if os.geteuid() == 0:
        status = folder.stat(model)
        folder.chown(path, status.st_uid, status.st_gid)


def recover(area: StagedArea, step: Step = lambda name: None) -> bool:
    """Finish an apply that was killed. The lock is held by the caller."""
    with Folder.at(area.path) as own:
        if not own.exists("journal.json"):
            return False
        journal = json.loads(own.read("journal.json", 1 << 30).decode("utf-8", "surrogateescape"))
        with area.layers() as layers:
            _perform(area, own, layers, journal, step)
    return True


# Taking it back, once.


def _saved(own: Folder, lower: Folder, path: str, slot: str, step: Step) -> dict[str, Any]:
    """What is at `path` now, kept so that it can be brought back."""
    step(f"save {path}")
    try:
        status = lower.stat(path)
    except OSError:
        return {"path": path, "kind": "absent"}
    kept = {
        "path": path, "slot": slot, "mode": stat.S_IMODE(status.st_mode), "uid": status.st_uid, "gid": status.st_gid,
        "mtime": status.st_mtime_ns, "ctime": status.st_ctime_ns,
    }  # fmt: skip
    if stat.S_ISLNK(status.st_mode):
        return {**kept, "kind": "link", "target": lower.readlink(path)}
    if stat.S_ISREG(status.st_mode):
        copy_file(lower, path, own, f"undo.new/{slot}")
        return {**kept, "kind": "file"}
    if stat.S_ISDIR(status.st_mode):
        inside = [_saved(own, lower, f"{path}/{name}", f"{slot}.{n}", step) for n, name in enumerate(lower.names(path))]
        return {**kept, "kind": "directory", "inside": inside}
    return {**kept, "kind": "other"}


def undo(area: StagedArea, *, force: bool = False) -> list[str]:
    """Bring back what the last apply replaced; the paths. Once: there is no undo of an undo."""
    with area.locked():
        recover(area)
        with Folder.at(area.path) as own, area.layers() as layers:
            try:
                kept = json.loads(own.read("undo/saved.json", 1 << 30).decode("utf-8", "surrogateescape"))
            except FileNotFoundError:
                raise UsageError("there is nothing to take back: only the last apply can be, once") from None
            if not force:
                # A recovery does steps again: what it noted of these files is newer.
                _refuse_overwriting(
                    layers.lower, {**kept["times"], **{p: t for p, t in area.applied.items() if p in kept["times"]}}
                )
            for one in reversed(kept["saved"]):
                _bring_back(own, layers.lower, one)
            times = {
                one["path"]: layers.lower.stat(one["path"]).st_ctime_ns
                for one in kept["saved"]
                if layers.lower.exists(one["path"])
            }
            area.note_applied(times)
            remove_tree(own, "undo")
    return [one["path"] for one in kept["saved"]]


def _refuse_overwriting(lower: Folder, times: dict[str, int]) -> None:
    changed = {}
    for path, when in times.items():
        with suppress(OSError):
            status = lower.stat(path)
            if status.st_ctime_ns != when and not stat.S_ISDIR(status.st_mode):
                changed[path] = "changed on the host since it was applied"
    if changed:
        raise Conflict(changed)


def _is_untouched(lower: Folder, path: str, ctime: int) -> bool:
    with suppress(OSError):
        return lower.stat(path).st_ctime_ns == ctime
    return False


def _bring_back(own: Folder, lower: Folder, one: dict[str, Any], saved: str = "undo") -> None:
    path = one["path"]
    if one["kind"] in ("file", "link") and _is_untouched(lower, path, one["ctime"]):
        return
    if one["kind"] == "directory":
        if lower.exists(path) and not stat.S_ISDIR(lower.stat(path).st_mode):
            remove_tree(lower, path)
        with suppress(FileExistsError):
            lower.mkdir(path, 0o700)
        for inside in one["inside"]:
            if not lower.exists(inside["path"]):
                _bring_back(own, lower, inside, saved)
        lower.chmod(path, one["mode"])
    elif one["kind"] == "absent":
        remove_tree(lower, path)
    elif one["kind"] != "other":
        parent, _, name = path.rpartition("/")
        beside = f"{parent}/.{name}.belljar" if parent else f".{name}.belljar"
        remove_tree(lower, beside)
        if one["kind"] == "link":
            lower.symlink(one["target"], beside)
        else:
            copy_file(own, f"{saved}/{one['slot']}", lower, beside, one["mode"])
        if lower.exists(path) and stat.S_ISDIR(lower.stat(path).st_mode):
            remove_tree(lower, path)
        lower.rename(beside, path)
    if one["kind"] in ("directory", "link", "file"):
        if os.geteuid() == 0:
            lower.chown(path, one["uid"], one["gid"])
        lower.utime(path, (one["mtime"], one["mtime"]))
