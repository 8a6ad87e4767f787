"""A staged area: the directory that holds the staged changes of one session until they are applied or discarded.

    <state>/staged/<id>/       0700
        meta.json              the workspace, checkpoints, …
        copied.json            what was copied into a sandbox that shares no files (session/copied_workspace.py)
        upper/  work*/         the overlay's directories; `upper` belongs to the sandbox's user
        applied.json           what was applied, so that our own writes are not taken for the host's
        merged.json  base/     for merges: what was applied, and the host's files as they were (merge.py)
        journal.json           of an apply; replayed after a crash
        undo/  undo.N/         what the last apply replaced, and earlier ones (saved.py)
    <state>/staged/.layers/    uppers of checkpoints, shared by a session and its forks; meta.json names them

Areas never expire: only `apply`, `discard` and `prune --staged` remove changes.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import asdict, field
from itertools import chain, count
from pathlib import Path
from typing import Any

from belljar import resources, user_namespace
from belljar.errors import BelljarError, UsageError
from belljar.patterns import lazy_pattern
from belljar.records import record
from belljar.staged.change import Change
from belljar.staged.copying import copy_layer, remove_tree
from belljar.staged.layers import Layers
from belljar.syscalls import closing
from belljar.workspace.beneath import Folder

_ID = lazy_pattern(r"[a-z]{2}-[0-9a-f]{12}")
LAYERS = ".layers"
COPIED = "copied.json"
MOST_COPIED = 1 << 30  # bytes on disk that a copied checkpoint may hold


@record
class Point:
    """A checkpoint: a session's files as they were."""

    name: str
    layers: list[str] = field(repr=False)
    when: float = 0.0


def numbered(name: str) -> Iterator[str]:
    """The name, and then with numbers: `a`, `a 2`, `a 3` …"""
    return chain([name], (f"{name} {number}" for number in count(2)))


def forget_layers(root: Path) -> None:
    """Remove the layers that no area names."""
    with resources.locked(root / ".layers.lock"):
        areas = StagedArea.all(root)
        named = {
            layer
            for area in areas
            for one in (area.meta, *area.meta["points"])
            for layer in one["layers"]
        }
        with suppress(OSError):
            for path in list((root / LAYERS).iterdir()):
                if (
                    path.name.partition(".")[0] not in named
                ):  # a layer, or a file that belongs to one
                    user_namespace.remove_tree(path) if path.is_dir() else path.unlink()


class StagedArea:
    def __init__(self, path: Path) -> None:
        self.path, self.id = path, path.name
        self.meta: dict[str, Any] = json.loads((path / "meta.json").read_bytes())

    # Making and finding.

    @classmethod
    def create(
        cls,
        root: Path,
        id: str,
        workspace: str,
        inode: tuple[int, int],
        uid: int,
        gid: int,
        base: StagedArea | None = None,
        name: str | None = None,
    ) -> StagedArea:
        """An empty area for a workspace; `uid` and `gid`: of the sandbox's user. With `base`, it begins from the last
        checkpoint of that area. `name`: the session's, for people."""
        path = root / id
        unborn = root / f".{id}.{secrets.token_hex(4)}"
        try:
            root.mkdir(mode=0o700, parents=True, exist_ok=True)
            unborn.mkdir(mode=0o700)
            (unborn / "work").mkdir(mode=0o700)
            # The sandbox sees the mode and owner of the upper directory as those of /workspace.
            _make(unborn / "upper", os.stat(workspace).st_mode, uid, gid)
            meta = {
                "workspace": workspace,
                "inode": list(inode),
                "boot": _boot(),
                "since": _now_on_disk(unborn),
                "created": time.time(),
                "name": name,
                "work": "work",
                "layers": [],
                "points": [],
            }
            if base is not None:
                meta |= {"layers": base.points[-1].layers, "since": base.since}
                _write(unborn / "applied.json", base.applied)
            _write(unborn / "meta.json", meta)
            unborn.rename(path)
        except OSError as error:
            shutil.rmtree(unborn, ignore_errors=True)
            raise BelljarError(
                f"Cannot keep staged changes in {path}: {error.strerror}"
            ) from error
        return cls(path)

    @classmethod
    def continued(
        cls, root: Path, id: str, old: StagedArea, uid: int, gid: int, name: str | None
    ) -> StagedArea:
        """The area of a session that has ended, under the id of a new one that goes on with its changes. If the new
        sandbox has another user, they become a layer, which can be shown as that user's."""
        with old.locked():
            try:
                old.path.rename(root / id)
            except OSError as error:
                raise UsageError(
                    f"the changes of {old.id} cannot be continued: {error.strerror}"
                ) from error
        area = cls(root / id)
        upper = area.path / "upper"
        status = upper.stat()
        if os.geteuid() == 0 and (status.st_uid, status.st_gid) != (uid, gid):
            layer = area._new_point("").layers
            area._note(layers=layer)
            upper.rename(area.path.parent / LAYERS / layer[-1])
            area._new_upper(status, owner=(uid, gid))
        else:
            work = f"work-{secrets.token_hex(4)}"
            (area.path / work).mkdir(mode=0o700)
            area._note(work=work)
        area._note(
            name=name or area.name,
            continued=[*area.meta.get("continued", [])[-20:], old.id],
        )
        return area

    @classmethod
    def find(cls, root: Path, id: str) -> StagedArea:
        if (
            _ID.fullmatch(id) and not (root / id / "meta.json").is_file()
        ):  # another session may go on with it
            id = next(
                (
                    area.id
                    for area in cls.all(root)
                    if id in area.meta.get("continued", ())
                ),
                id,
            )
        if not _ID.fullmatch(id) or not (root / id / "meta.json").is_file():
            raise UsageError(
                f"no staged changes under {id!r}; `belljar session list` lists them"
            )
        return cls(root / id)

    @classmethod
    def all(cls, root: Path) -> list[StagedArea]:
        try:
            paths = [
                path for path in sorted(root.iterdir()) if _ID.fullmatch(path.name)
            ]
        except OSError:
            return []
        return [cls(path) for path in paths if (path / "meta.json").is_file()]

    def remove(self) -> None:
        """Remove it with its contents. If it cannot be renamed, it stays whole."""
        gone = self.path.with_name(f".{self.id}.{secrets.token_hex(4)}.gone")
        with suppress(FileNotFoundError):
            self.path.rename(gone)
            # If Docker mounted the overlay for an ordinary user, the kernel's empty work directory may stay.
            user_namespace.remove_tree(gone)
        forget_layers(self.path.parent)

    # Contents.

    @property
    def name(self) -> str | None:
        """What people called the session."""
        return self.meta.get("name")

    @property
    def workspace(self) -> str:
        return str(self.meta["workspace"])

    @property
    def is_in_place(self) -> bool:
        """Whether the workspace's path still leads to the directory that was staged."""
        with suppress(OSError):
            return self._is_of(os.stat(self.workspace))
        return False

    def _is_of(self, directory: os.stat_result) -> bool:
        """Only the inode is compared after a reboot, which may change the number of a file system."""
        device, inode = self.meta["inode"]
        return directory.st_ino == inode and (
            directory.st_dev == device or self.meta.get("boot") != _boot()
        )

    @property
    def since(self) -> int:
        return int(self.meta["since"])

    @property
    def uppers(self) -> list[Path]:
        """The upper directories, newest first."""
        return [self.path / "upper", *self._layers(self.meta["layers"])]

    def _layers(self, names: Sequence[str]) -> list[Path]:
        paths = [self.path.parent / LAYERS / name for name in reversed(names)]
        return [path for path in paths if path.is_dir()]

    @property
    def incomplete(self) -> str:
        """Why some changes are missing; empty if none are."""
        return str(self.meta.get("incomplete", ""))

    @property
    def command(self) -> str:
        """The last command of the session, for people."""
        return str(self.meta.get("command", ""))

    def note_command(self, text: str) -> None:
        self._note(command=" ".join(text.split())[:200])

    def note_since(self, since: int) -> None:
        """Whatever the host changed after this counts as changed on its side, too."""
        self._note(since=min(since, self.since))

    def note_incomplete(self, why: str) -> None:
        self._note(incomplete=why)

    @property
    def is_copied(self) -> bool:
        """Whether changes must be copied out of the sandbox first."""
        return (self.path / COPIED).is_file()

    @property
    def can_undo(self) -> float:
        """The time of the last apply that can be undone; 0 if there is none."""
        with suppress(OSError):
            return (self.path / "undo").stat().st_mtime
        return 0.0

    @property
    def is_cut_off(self) -> bool:
        """Whether an apply was killed and must be finished."""
        return (self.path / "journal.json").is_file()

    @property
    def work(self) -> Path:
        return self.path / str(self.meta["work"])

    # Checkpoints.

    def freeze(self, name: str) -> Point:
        """Make the changes so far a layer, and begin a new upper. The overlay must be remounted."""
        point = self._new_point(name)
        # Written first: if we are killed now, the layer does not exist yet and the upper still does.
        self._note_points([*self.points, point], layers=point.layers)
        upper = self.path / "upper"
        status = upper.stat()
        upper.rename(self.beside(point))
        self._new_upper(status)
        return point

    def _new_point(self, name: str) -> Point:
        (self.path.parent / LAYERS).mkdir(mode=0o700, exist_ok=True)
        return Point(name, [*self.meta["layers"], secrets.token_hex(8)], time.time())

    def snapshot(self, name: str) -> Point:
        """Copy the changes so far, for an overlay that cannot be remounted. Limited: each copy holds everything."""
        with Folder.at(self.path / "upper") as upper:
            size = sum(status.st_blocks * 512 for _, status in upper.walk())
        if size > MOST_COPIED:
            raise UsageError(
                f"no checkpoint: {size >> 20} MiB changed so far. For this user or engine a checkpoint is a copy, "
                f"of {MOST_COPIED >> 20} MiB at most; as root it is a layer of any size"
            )
        point = self._new_point(name)
        self._note_points([*self.points, point])
        self.beside(point).mkdir(mode=0o700)
        try:
            with (
                Folder.at(self.path / "upper") as upper,
                Folder.at(self.beside(point)) as target,
            ):
                copy_layer(upper, target)
        except OSError as error:
            self.forget(point)
            forget_layers(self.path.parent)
            raise BelljarError(
                f"no checkpoint: {error.strerror}: {error.filename}"
            ) from error
        return point

    def unused(self, name: str) -> str:
        """This name for a checkpoint, or the first with a number that no checkpoint has."""
        taken = {point.name for point in self.points}
        return next(each for each in numbered(name) if each not in taken)

    def taken(self, name: str, *, replace: bool = False) -> Point | None:
        """The checkpoint that has this name; UsageError unless it may be replaced."""
        found = next((point for point in self.points if point.name == name), None)
        if found is not None and not replace:
            raise UsageError(
                f"there is a checkpoint {name!r} already; choose another name, or replace it (--replace, replace=True)"
            )
        return found

    def point(self, name: Point | str | None) -> Point:
        """A checkpoint, perhaps by its name; None: the last one."""
        if not self.points:
            raise UsageError(
                "there is no checkpoint of this session; `discard` takes changes back to the host's files"
            )
        if name is None:
            return self.points[-1]
        found = next(
            (point for point in reversed(self.points) if name in (point, point.name)),
            None,
        )
        if found is None:
            names = ", ".join(repr(point.name) for point in self.points)
            raise UsageError(f"there is no checkpoint {name!r}; choose from {names}")
        return found

    def beside(self, point: Point) -> Path:
        """A checkpoint's newest layer. The names of its other files begin like this path."""
        return self.path.parent / LAYERS / point.layers[-1]

    def forget_after(self, point: Point) -> None:
        """Forget the checkpoints after this one."""
        self._note_points(self._until(point))
        forget_layers(self.path.parent)

    def _until(self, point: Point) -> list[Point]:
        if point not in self.points:
            raise UsageError(
                f"there is no checkpoint {point.name!r} of this session any more"
            )
        return self.points[: self.points.index(point) + 1]

    def replace_upper(self, made: Path, modes: dict[str, int]) -> None:
        """Replace it by one that was copied out of the sandbox. Directories stay readable for us."""
        with Folder.at(self.path) as own:
            for path in sorted(modes, reverse=True):
                own.chmod(f"{made.name}/{path}", modes[path] & 0o777 | 0o500)
            own.chmod(made.name, own.stat("upper").st_mode & 0o777)
            gone = f".{secrets.token_hex(4)}.gone"
            own.rename("upper", gone)
            own.rename(made.name, "upper")
            remove_tree(own, gone)

    def go_back(self, point: Point | None = None) -> None:
        """Drop what came after a checkpoint, or (None) all changes and checkpoints. The overlay must be remounted."""
        layers, points = (point.layers, self._until(point)) if point else ([], [])
        upper = self.path / "upper"
        status = upper.stat()
        gone = self.path / f".{secrets.token_hex(4)}.gone"
        upper.rename(gone)
        self._note_points(points, layers=layers)
        self._new_upper(status)
        user_namespace.remove_tree(gone)
        forget_layers(self.path.parent)

    def forget(self, point: Point) -> None:
        self._note_points([each for each in self.points if each != point])

    @property
    def points(self) -> list[Point]:
        return [Point(**each) for each in self.meta["points"]]

    def _new_upper(
        self, like: os.stat_result, owner: tuple[int, int] | None = None
    ) -> None:
        made, work = (
            self.path / f".{secrets.token_hex(4)}.new",
            f"work-{secrets.token_hex(4)}",
        )
        _make(made, like.st_mode, *(owner or (like.st_uid, like.st_gid)))
        (self.path / work).mkdir(mode=0o700)
        self._note(work=work)
        made.rename(self.path / "upper")

    def _note_points(self, points: Iterable[Point], **facts: Any) -> None:
        self._note(points=[asdict(point) for point in points], **facts)

    def _note(self, **facts: Any) -> None:
        """What others have noted meanwhile stays."""
        with closing(
            os.open(
                self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            )
        ) as place:
            fcntl.flock(place, fcntl.LOCK_EX)
            self.meta = json.loads((self.path / "meta.json").read_bytes()) | facts
            _write(self.path / "meta.json", self.meta)

    @contextmanager
    def layers(
        self, at: Point | None = None, *, settled: bool = True
    ) -> Iterator[Layers]:
        """Open the layers (`at`: of a checkpoint) and the workspace. UsageError if the workspace was replaced.
        `settled` False: what was applied counts as changed, too."""
        with ExitStack() as opened:
            try:
                lower = opened.enter_context(Folder.at(self.workspace))
            except OSError as error:
                raise UsageError(
                    f"the workspace {self.workspace} cannot be opened: {error.strerror}"
                ) from error
            if not self._is_of(os.fstat(lower.descriptor)):
                raise UsageError(
                    f"{self.workspace} is no longer the directory that was staged; `belljar discard {self.id}` drops "
                    f"what was changed in that one (it is in {self.path / 'upper'})"
                )
            paths = self._layers(at.layers) if at else self.uppers
            uppers = [opened.enter_context(Folder.at(path)) for path in paths]
            yield Layers(
                uppers, lower, self.merged if settled else {}, is_copied=self.is_copied
            )

    def changes(self) -> list[Change]:
        from belljar.staged.merge import keep_bases

        with self.layers() as layers:
            changes = layers.changes()
            keep_bases(self, layers, changes)
        return changes

    @property
    def applied(self) -> dict[str, int]:
        """Path → the change time that our own apply gave it."""
        return resources.read_json(self.path / "applied.json") or {}

    @property
    def merged(self) -> dict[str, str]:
        """Path → what the sandbox has there and was applied (settled.py). Until it changes again it is no change,
        whatever the host does with its own."""
        return resources.read_json(self.path / "merged.json") or {}

    def note_applied(
        self,
        times: dict[str, int],
        merged: dict[str, str] | None = None,
        forget: Sequence[str] = (),
    ) -> None:
        """`forget`: paths to remove from `merged`."""
        before = self.merged
        gone = {*times, *forget}
        if merged or not gone.isdisjoint(before):
            kept = {path: digest for path, digest in before.items() if path not in gone}
            _write(self.path / "merged.json", kept | (merged or {}))
        ours = {
            path: when
            for path, when in self.applied.items()
            if path not in (merged or {})
        }
        _write(self.path / "applied.json", ours | times)

    def note_again(self, times: dict[str, int]) -> None:
        """Files that we had applied are in the workspace again, with these change times."""
        _write(self.path / "applied.json", self.applied | times)

    def locked(self) -> AbstractContextManager[None]:
        """Holds the lock of the workspace, for all its areas."""
        inode = "-".join(str(part) for part in self.meta["inode"])
        return resources.locked(self.path.parent / f".workspace-{inode}.lock")


def _make(upper: Path, mode: int, uid: int, gid: int) -> None:
    upper.mkdir(mode=0o700)
    upper.chmod(mode & 0o777)
    if os.geteuid() == 0:
        os.chown(upper, uid, gid)


def _now_on_disk(directory: Path) -> int:
    """A change time later than that of any file so far. The kernel's clock for files is coarse: we wait for a tick."""
    marker = directory / "meta.json"
    marker.touch()
    first = now = marker.stat().st_ctime_ns
    while now == first:
        time.sleep(0.001)
        os.utime(marker)
        now = marker.stat().st_ctime_ns
    return now


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _write(path: Path, content: dict[str, Any]) -> None:
    with Folder.at(path.parent) as folder:
        folder.write(path.name, json.dumps(content).encode())
