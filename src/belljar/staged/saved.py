"""What each apply replaces, kept in the area so that it can be brought back, the newest first.

undo/            of the last apply
undo.7/ undo.6/  of those before it
undo.new/        of one that is being done
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from belljar.errors import Conflict
from belljar.staged import git_index
from belljar.staged.copying import DEEPEST, copy_file, remove_tree
from belljar.workspace.beneath import Folder

if TYPE_CHECKING:
    from belljar.staged.area import StagedArea


UNDONE = "undone"
MOST = 20  # applies of one session that can be taken back: each holds what it replaced


def _older(own: Folder) -> list[int]:
    """The newest first."""
    return sorted(int(name[5:]) for name in own.names("") if name.startswith("undo.") and name[5:].isdigit())[::-1]


def push(own: Folder) -> None:
    """`undo.new` is the last apply now. Killed in between, it is done again."""
    if own.exists("undo"):
        older = _older(own)
        own.rename("undo", f"undo.{older[0] + 1 if older else 1}")
        for number in older[MOST - 2 :]:
            remove_tree(own, f"undo.{number}")
    own.rename("undo.new", "undo")


def pop(own: Folder) -> None:
    """The last apply was taken back."""
    remove_tree(own, UNDONE)
    own.rename("undo", UNDONE)
    pull_up(own)
    remove_tree(own, UNDONE)


def pull_up(own: Folder) -> None:
    """The one before the last is the last now, if that is gone."""
    if not own.exists("undo") and (older := _older(own)):
        own.rename(f"undo.{older[0]}", "undo")


def tell_older(area: StagedArea, lower: Folder, kept: list[dict[str, Any]]) -> None:
    """Sessions that had applied what was brought back: it is theirs again, not a change of the host's."""
    from belljar.staged.area import StagedArea

    there = {one["path"]: one["ctime"] for one in every(kept)}
    for other in StagedArea.all(area.path.parent):
        if other.id == area.id or other.meta["inode"] != area.meta["inode"]:
            continue
        ours = {path: when for path, when in other.applied.items() if there.get(path) == when and lower.exists(path)}
        if ours:
            other.note_again({path: lower.stat(path).st_ctime_ns for path in ours})


def saved(
    own: Folder, lower: Folder, path: str, slot: str, step: Callable[[str], None], *, whole: bool = True
) -> dict[str, Any]:
    """What is at `path` now, kept so that it can be brought back; of a directory, `whole` or its mode only."""
    if path.count("/") > DEEPEST:
        raise OSError(errno.ENAMETOOLONG, f"more than {DEEPEST} directories in each other", path[:60])
    step(f"save {path}")
    try:
        status = lower.stat(path)
    except OSError:
        return {"path": path, "kind": "absent"}
    if is_file := stat.S_ISREG(status.st_mode):
        status = copy_file(lower, path, own, f"undo.new/{slot}")  # whose it is: not another's that was there before
    kept = {
        "path": path, "slot": slot, "mode": stat.S_IMODE(status.st_mode), "uid": status.st_uid, "gid": status.st_gid,
        "mtime": status.st_mtime_ns, "ctime": status.st_ctime_ns,
    }  # fmt: skip
    if stat.S_ISLNK(status.st_mode):
        return {**kept, "kind": "link", "target": lower.readlink(path)}
    if is_file:
        return {**kept, "kind": "file"}
    if stat.S_ISDIR(status.st_mode):
        names = enumerate(lower.names(path) if whole else ())
        inside = [saved(own, lower, f"{path}/{name}", f"{slot}.{n}", step) for n, name in names]
        return {**kept, "kind": "directory", "inside": inside}
    return {**kept, "kind": "other"}


def every(kept: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """What was there, with what was in its directories."""
    for one in kept:
        if one["kind"] != "absent":
            yield one
            yield from every(one.get("inside", []))


def refuse_overwriting(lower: Folder, times: dict[str, int], indexes: dict[str, str]) -> None:
    """`indexes`: what git's said when they were applied; a `git status` writes them anew."""
    changed = {}
    for path, when in times.items():
        with suppress(OSError):
            status = lower.stat(path)
            if status.st_ctime_ns != when and not stat.S_ISDIR(status.st_mode):
                said = git_index.meaning_of(lower, path)
                if said is None or said.hex() != indexes.get(path):
                    changed[path] = "changed on the host since it was applied"
    if changed:
        raise Conflict(changed, "taken back")


def refuse_removing(lower: Folder, kept: list[dict[str, Any]], times: dict[str, int]) -> None:
    """A directory that must give way to the file that was there before holds something of the host's own."""
    found: dict[str, str] = {}
    for one in kept:
        if one["kind"] in ("file", "link") and lower.exists(one["path"]):
            inside = (path for path, _ in lower.walk(one["path"]) if path not in times)
            found |= dict.fromkeys(inside, "made on the host since its directory was applied")
    if found:
        raise Conflict(found, "taken back")


def _remove_ours(lower: Folder, path: str) -> None:
    """What was in a directory is gone already; what the host has put there since stays, and so does the directory.
    Where the host has a file or a link in place of one on the way, nothing of ours is left."""
    try:
        if stat.S_ISDIR(lower.stat(path).st_mode):
            lower.rmdir(path)
        else:
            lower.unlink(path)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENOTEMPTY):
            raise


def locked(lower: Folder, paths: Iterable[str]) -> dict[str, int]:
    """Directories that these are in, and that we may not write to though they are ours: with their modes."""
    found: dict[str, int] = {}
    for parent in {path.rpartition("/")[0] for path in paths} if os.geteuid() != 0 else ():
        with suppress(OSError):
            status = lower.stat(parent)
            if parent and stat.S_ISDIR(status.st_mode) and status.st_mode & 0o300 != 0o300:
                found[parent] = stat.S_IMODE(status.st_mode)
    return dict(sorted(found.items()))


def unlock(lower: Folder, paths: Iterable[str]) -> None:
    """Also where a kill came after some were shut again."""
    for path, mode in locked(lower, paths).items():
        lower.chmod(path, mode | 0o700)


def lock_again(lower: Folder, modes: dict[str, int]) -> None:
    for path, mode in reversed(modes.items()):
        with suppress(FileNotFoundError, NotADirectoryError):
            lower.chmod(path, mode)


def _is_untouched(lower: Folder, path: str, ctime: int) -> bool:
    with suppress(OSError):
        return lower.stat(path).st_ctime_ns == ctime
    return False


def bring_back(own: Folder, lower: Folder, one: dict[str, Any], kept_in: str = "undo") -> None:
    path = one["path"]
    owner = (one["uid"], one["gid"]) if os.geteuid() == 0 and "uid" in one else None
    if one["kind"] in ("file", "link") and _is_untouched(lower, path, one["ctime"]):
        return
    if one["kind"] == "directory":
        if lower.exists(path) and not stat.S_ISDIR(lower.stat(path).st_mode):
            remove_tree(lower, path)
        with suppress(FileExistsError):
            lower.mkdir(path, 0o700)
            if owner:
                lower.give(path, owner)
        for inside in one["inside"]:
            if not lower.exists(inside["path"]):
                bring_back(own, lower, inside, kept_in)
        lower.chmod(path, one["mode"])
    elif one["kind"] == "absent":
        _remove_ours(lower, path)
    elif one["kind"] != "other":
        parent, _, _ = path.rpartition("/")
        beside = f"{parent}/.{one['slot']}.belljar" if parent else f".{one['slot']}.belljar"
        remove_tree(lower, beside)
        if one["kind"] == "link":
            lower.symlink(one["target"], beside)
            if owner:
                lower.give(beside, owner)
        else:
            copy_file(own, f"{kept_in}/{one['slot']}", lower, beside, one["mode"], owner=owner)
        if lower.exists(path) and stat.S_ISDIR(lower.stat(path).st_mode):
            remove_tree(lower, path)
        lower.rename(beside, path)
    if one["kind"] in ("directory", "link", "file"):
        lower.utime(path, (one["mtime"], one["mtime"]))
