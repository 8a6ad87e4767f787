"""Saves in the area what each apply replaces, so that it can be undone, the newest apply first.

undo/            of the last apply
undo.7/ undo.6/  of earlier ones
undo.new/        of the apply in progress
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
from belljar.staged.copying import DEEPEST, copy_file, remove_tree, replacing
from belljar.workspace.beneath import Folder

if TYPE_CHECKING:
    from belljar.staged.area import StagedArea


UNDONE = "undone"
MOST = 20  # applies of one session that can be undone


def _older(own: Folder) -> list[int]:
    """The numbers of earlier applies, newest first."""
    return sorted(
        int(name[5:])
        for name in own.names("")
        if name.startswith("undo.") and name[5:].isdigit()
    )[::-1]


def push(own: Folder) -> None:
    """Make `undo.new` the last apply. If we are killed in between, it is repeated."""
    if own.exists("undo"):
        older = _older(own)
        own.rename("undo", f"undo.{older[0] + 1 if older else 1}")
        for number in older[MOST - 2 :]:
            remove_tree(own, f"undo.{number}")
    own.rename("undo.new", "undo")


def pop(own: Folder) -> None:
    """Remove the last apply, which was undone."""
    remove_tree(own, UNDONE)
    own.rename("undo", UNDONE)
    pull_up(own)
    remove_tree(own, UNDONE)


def pull_up(own: Folder) -> None:
    """If there is no last apply, make the one before it the last."""
    if not own.exists("undo") and (older := _older(own)):
        own.rename(f"undo.{older[0]}", "undo")


def note_in_other_areas(
    area: StagedArea, lower: Folder, kept: list[dict[str, Any]]
) -> None:
    """Note that files which other sessions had applied were restored: these are not changes of the host."""
    from belljar.staged.area import StagedArea

    restored = {one["path"]: one["ctime"] for one in every(kept)}
    for other in StagedArea.all(area.path.parent):
        if other.id == area.id or other.meta["inode"] != area.meta["inode"]:
            continue
        ours = {
            path: when
            for path, when in other.applied.items()
            if restored.get(path) == when and lower.exists(path)
        }
        if ours:
            other.note_again({path: lower.stat(path).st_ctime_ns for path in ours})


def save(
    own: Folder,
    lower: Folder,
    path: str,
    slot: str,
    step: Callable[[str], None],
    *,
    whole: bool = True,
) -> dict[str, Any]:
    """Save what is at `path`; of a directory, all of it (`whole`) or only its mode. The caller waits for the disk."""
    if path.count("/") > DEEPEST:
        raise OSError(
            errno.ENAMETOOLONG,
            f"more than {DEEPEST} directories in each other",
            path[:60],
        )
    step(f"save {path}")
    try:
        status = lower.stat(path)
    except OSError:
        return {"path": path, "kind": "absent"}
    if is_file := stat.S_ISREG(status.st_mode):
        # The status of the file that was really copied, in case the name was swapped after the `stat`.
        status = copy_file(lower, path, own, f"undo.new/{slot}", wait=False)
    kept = {
        "path": path,
        "slot": slot,
        "mode": stat.S_IMODE(status.st_mode),
        "uid": status.st_uid,
        "gid": status.st_gid,
        "mtime": status.st_mtime_ns,
        "ctime": status.st_ctime_ns,
    }
    if stat.S_ISLNK(status.st_mode):
        return {**kept, "kind": "link", "target": lower.readlink(path)}
    if is_file:
        return {**kept, "kind": "file"}
    if stat.S_ISDIR(status.st_mode):
        names = enumerate(lower.names(path) if whole else ())
        inside = [
            save(own, lower, f"{path}/{name}", f"{slot}.{n}", step) for n, name in names
        ]
        return {**kept, "kind": "directory", "inside": inside}
    return {**kept, "kind": "other"}


def every(kept: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """All entries that existed, with the contents of directories."""
    for one in kept:
        if one["kind"] != "absent":
            yield one
            yield from every(one.get("inside", []))


def refuse_overwriting(
    lower: Folder, times: dict[str, int], indexes: dict[str, str]
) -> None:
    """Conflict if the host changed a file since. `indexes`: meanings of git's indexes, which `git status` rewrites."""
    changed = {}
    for path, when in times.items():
        with suppress(OSError):
            status = lower.stat(path)
            if status.st_ctime_ns != when and not stat.S_ISDIR(status.st_mode):
                meaning = git_index.meaning_of(lower, path)
                if meaning is None or meaning.hex() != indexes.get(path):
                    changed[path] = "changed on the host since it was applied"
    if changed:
        raise Conflict(changed, "taken back")


def refuse_removing(
    lower: Folder, kept: list[dict[str, Any]], times: dict[str, int]
) -> None:
    """Conflict if a directory that must be replaced by the earlier file holds files of the host."""
    own: dict[str, str] = {}
    for one in kept:
        if one["kind"] in ("file", "link") and lower.exists(one["path"]):
            inside = (path for path, _ in lower.walk(one["path"]) if path not in times)
            own |= dict.fromkeys(
                inside, "made on the host since its directory was applied"
            )
    if own:
        raise Conflict(own, "taken back")


def _remove_ours(lower: Folder, path: str) -> None:
    """Remove what we applied. A directory that the host has put files into stays. If the host has replaced a directory
    of the path by a file or link, nothing of ours is left."""
    try:
        if stat.S_ISDIR(lower.stat(path).st_mode):
            lower.rmdir(path)
        else:
            lower.unlink(path)
    except OSError as error:
        if error.errno not in (
            errno.ENOENT,
            errno.ENOTDIR,
            errno.ELOOP,
            errno.ENOTEMPTY,
        ):
            raise


def read_only_parents(lower: Folder, paths: Iterable[str]) -> dict[str, int]:
    """The parent directories of these paths that are read-only, with their modes. Root needs no list."""
    modes: dict[str, int] = {}
    for parent in (
        {path.rpartition("/")[0] for path in paths} if os.geteuid() != 0 else ()
    ):
        with suppress(OSError):
            status = lower.stat(parent)
            if (
                parent
                and stat.S_ISDIR(status.st_mode)
                and status.st_mode & 0o300 != 0o300
            ):
                modes[parent] = stat.S_IMODE(status.st_mode)
    return dict(sorted(modes.items()))


def make_writable(lower: Folder, paths: Iterable[str]) -> None:
    """Make their parent directories writable, also after a kill that left some read-only again."""
    for path, mode in read_only_parents(lower, paths).items():
        lower.chmod(path, mode | 0o700)


def restore_modes(lower: Folder, modes: dict[str, int]) -> None:
    for path, mode in reversed(modes.items()):
        with suppress(FileNotFoundError, NotADirectoryError):
            lower.chmod(path, mode)


def _is_untouched(lower: Folder, path: str, ctime: int) -> bool:
    with suppress(OSError):
        return lower.stat(path).st_ctime_ns == ctime
    return False


def bring_back(
    own: Folder, lower: Folder, one: dict[str, Any], kept_in: str = "undo"
) -> None:
    """Restore what was saved. The caller waits for the disk before it forgets that."""
    path = one["path"]
    owner = (one["uid"], one["gid"]) if os.geteuid() == 0 and "uid" in one else None
    if one["kind"] in ("file", "link") and _is_untouched(lower, path, one["ctime"]):
        return
    if one["kind"] == "directory":
        if lower.exists(path) and not stat.S_ISDIR(lower.stat(path).st_mode):
            remove_tree(lower, path)
        with suppress(FileExistsError):
            lower.mkdir(path, 0o700, owner)
        for inside in one["inside"]:
            if not lower.exists(inside["path"]):
                bring_back(own, lower, inside, kept_in)
        lower.chmod(path, one["mode"])
    elif one["kind"] == "absent":
        _remove_ours(lower, path)
    elif one["kind"] != "other":
        with replacing(lower, path, f".{one['slot']}.belljar") as beside:
            if one["kind"] == "link":
                lower.symlink(one["target"], beside, owner)
            else:
                copy_file(
                    own,
                    f"{kept_in}/{one['slot']}",
                    lower,
                    beside,
                    one["mode"],
                    owner=owner,
                    wait=False,
                )
            if lower.exists(path) and stat.S_ISDIR(lower.stat(path).st_mode):
                remove_tree(lower, path)
    if one["kind"] in ("directory", "link", "file"):
        lower.utime(path, (one["mtime"], one["mtime"]))
