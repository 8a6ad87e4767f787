"""Where staged changes are kept: one directory each below the state directory, until they are applied or discarded.

    <state>/staged/<id>/       0700
        meta.json              of which workspace, since when
        copied.json            where nothing is shared with the engine: what was copied in (session/copied_workspace.py)
        upper/  work*/         the overlay's; `upper` belongs to the sandbox's user
        applied.json           what was applied, so that our own writing is not taken for the host's
        journal.json           of an apply: redone after a crash
        undo/  undo.N/         what was there before the last apply, and before those ahead of it (saved.py)
    <state>/staged/.layers/    uppers of checkpoints, shared by a session and its forks; meta.json names them

They never vanish by themselves: only `apply`, `discard` and a `prune` that was told so remove them.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import field
from pathlib import Path
from typing import Any

from belljar import resources, user_namespace
from belljar.errors import BelljarError, UsageError
from belljar.patterns import lazy_pattern
from belljar.records import record
from belljar.staged.change import Change
from belljar.staged.copying import copy_layer, remove_tree
from belljar.staged.layers import Layers
from belljar.staged.run_files import RunsLater, runs_later
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

    def as_dict(self) -> dict[str, Any]:
        return {"name": self.name, "layers": self.layers, "when": self.when}


def forget_layers(root: Path) -> None:
    """Remove the layers that no area names any more."""
    with resources.locked(root / ".layers.lock"):
        named = {layer for area in StagedArea.all(root) for layer in area.meta["layers"]}
        named |= {layer for area in StagedArea.all(root) for point in area.points for layer in point.layers}
        with suppress(OSError):
            for each in list((root / LAYERS).iterdir()):
                if each.name.partition(".")[0] not in named:  # a layer, or what belongs to one
                    user_namespace.remove_tree(each) if each.is_dir() else each.unlink()


class StagedArea:
    def __init__(self, path: Path) -> None:
        self.path, self.id = path, path.name
        self.meta: dict[str, Any] = _read(path / "meta.json")

    # Making and finding.

    @classmethod
    def create(
        cls, root: Path, id: str, workspace: str, inode: tuple[int, int], uid: int, gid: int,
        base: StagedArea | None = None,
    ) -> StagedArea:  # fmt: skip
        """An empty area for a workspace; `uid` and `gid` are who the sandbox is. With `base`, one that begins where
        that area's last checkpoint is."""
        path = root / id
        unborn = root / f".{id}.{secrets.token_hex(4)}"
        try:
            root.mkdir(mode=0o700, parents=True, exist_ok=True)
            unborn.mkdir(mode=0o700)
            for name in ("upper", "work"):
                (unborn / name).mkdir(mode=0o700)
            _like(unborn / "upper", workspace, uid, gid)
            meta = {"workspace": workspace, "inode": list(inode), "boot": _boot(),
                    "since": _now_on_disk(unborn), "created": time.time(),
                    "work": "work", "layers": [], "points": []}  # fmt: skip
            if base is not None:
                meta |= {"layers": base.points[-1].layers, "since": base.since}
                _write(unborn / "applied.json", base.applied)
            _write(unborn / "meta.json", meta)
            unborn.rename(path)
        except OSError as error:
            shutil.rmtree(unborn, ignore_errors=True)
            raise BelljarError(f"Cannot keep staged changes in {path}: {error.strerror}") from error
        return cls(path)

    @classmethod
    def find(cls, root: Path, id: str) -> StagedArea:
        if not _ID.fullmatch(id) or not (root / id / "meta.json").is_file():
            raise UsageError(f"no staged changes under {id!r}; `belljar session list` lists them")
        return cls(root / id)

    @classmethod
    def all(cls, root: Path) -> list[StagedArea]:
        try:
            found = [entry for entry in sorted(root.iterdir()) if _ID.fullmatch(entry.name)]
        except OSError:
            return []
        return [cls(entry) for entry in found if (entry / "meta.json").is_file()]

    def remove(self) -> None:
        """With all that is in it. What cannot be removed is left whole, not half."""
        gone = self.path.with_name(f".{self.id}.{secrets.token_hex(4)}.gone")
        with suppress(FileNotFoundError):
            self.path.rename(gone)
            # Of what Docker mounted for an ordinary user the kernel's own empty work directory may stay: it is root's.
            user_namespace.remove_tree(gone)
        forget_layers(self.path.parent)

    # What is in it.

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
        """After a restart of the machine a file system may have another number."""
        device, inode = self.meta["inode"]
        return directory.st_ino == inode and (directory.st_dev == device or self.meta.get("boot") != _boot())

    @property
    def since(self) -> int:
        return int(self.meta["since"])

    @property
    def uppers(self) -> list[Path]:
        """The newest first."""
        return [self.path / "upper", *self._layers(self.meta["layers"])]

    def _layers(self, names: Sequence[str]) -> list[Path]:
        pool = self.path.parent / LAYERS
        return [each for each in (pool / name for name in reversed(names)) if each.is_dir()]

    @property
    def incomplete(self) -> str:
        """Why not all that was changed is here."""
        return str(self.meta.get("incomplete", ""))

    def note_incomplete(self, why: str) -> None:
        self._note(incomplete=why)

    @property
    def is_copied(self) -> bool:
        """Whether what changed is here only once it was copied out of the sandbox."""
        return (self.path / COPIED).is_file()

    @property
    def can_undo(self) -> float:
        """When what can still be taken back was applied; 0 where there is none."""
        with suppress(OSError):
            return (self.path / "undo").stat().st_mtime
        return 0.0

    @property
    def is_cut_off(self) -> bool:
        """Whether an apply was killed, and waits for its end."""
        return (self.path / "journal.json").is_file()

    @property
    def work(self) -> Path:
        return self.path / str(self.meta["work"])

    # Checkpoints.

    def freeze(self, name: str) -> Point:
        """What changed so far becomes a layer of its own, and a new upper begins. The overlay must be mounted anew."""
        layer = secrets.token_hex(8)
        (self.path.parent / LAYERS).mkdir(mode=0o700, exist_ok=True)
        point = Point(name, [*self.meta["layers"], layer], time.time())
        # Named first: killed in between, the layer is not there yet and the upper still is.
        self._note(layers=point.layers, points=[*self.meta["points"], point.as_dict()])
        upper = self.path / "upper"
        status = upper.stat()
        upper.rename(self.path.parent / LAYERS / layer)
        self._new_upper(status)
        return point

    def snapshot(self, name: str) -> Point:
        """What changed so far, copied: for an overlay that goes on as it is. Bounded: each holds all."""
        with Folder.at(self.path / "upper") as upper:
            size = sum(status.st_blocks * 512 for _, status in upper.walk())
        if size > MOST_COPIED:
            raise UsageError(
                f"no checkpoint: {size >> 20} MiB changed so far. For this user or engine a checkpoint is a copy, "
                f"of {MOST_COPIED >> 20} MiB at most; as root it is a layer of any size"
            )
        layer = secrets.token_hex(8)
        made = self.path.parent / LAYERS / layer
        made.parent.mkdir(mode=0o700, exist_ok=True)
        point = Point(name, [*self.meta["layers"], layer], time.time())
        self._note(points=[*self.meta["points"], point.as_dict()])
        made.mkdir(mode=0o700)
        try:
            with Folder.at(self.path / "upper") as upper, Folder.at(made) as target:
                copy_layer(upper, target)
        except OSError as error:
            self.forget(point)
            forget_layers(self.path.parent)
            raise BelljarError(f"no checkpoint: {error.strerror}: {error.filename}") from error
        return point

    def beside(self, point: Point) -> Path:
        """How the names of files begin that belong to a checkpoint, and go with it."""
        return self.path.parent / LAYERS / point.layers[-1]

    def forget_after(self, point: Point) -> None:
        """The files are as they were then: later checkpoints are gone."""
        self._note(points=[each.as_dict() for each in self._until(point)])
        forget_layers(self.path.parent)

    def _until(self, point: Point) -> list[Point]:
        if point not in self.points:
            raise UsageError(f"there is no checkpoint {point.name!r} of this session any more")
        return self.points[: self.points.index(point) + 1]

    def replace_upper(self, made: Path, modes: dict[str, int]) -> None:
        """With one that was copied out of the sandbox. A directory keeps what it needs to be looked into."""
        with Folder.at(self.path) as own:
            for path in sorted(modes, reverse=True):
                own.chmod(f"{made.name}/{path}", modes[path] & 0o777 | 0o500)
            own.chmod(made.name, own.stat("upper").st_mode & 0o777)
            gone = f".{secrets.token_hex(4)}.gone"
            own.rename("upper", gone)
            own.rename(made.name, "upper")
            remove_tree(own, gone)

    def thaw(self, point: Point) -> None:
        """Back to a checkpoint: what came after it is gone. The overlay must be mounted anew."""
        self._go_back(point.layers, self._until(point))

    def empty(self) -> None:
        """Nothing is changed any more, nor was it at a checkpoint. No sandbox has the overlay."""
        self._go_back([], [])

    def _go_back(self, layers: Sequence[str], points: Sequence[Point]) -> None:
        upper = self.path / "upper"
        status = upper.stat()
        gone = self.path / f".{secrets.token_hex(4)}.gone"
        upper.rename(gone)
        self._note(layers=list(layers), points=[each.as_dict() for each in points])
        self._new_upper(status)
        user_namespace.remove_tree(gone)
        forget_layers(self.path.parent)

    def forget(self, point: Point) -> None:
        self._note(points=[each.as_dict() for each in self.points if each != point])

    @property
    def points(self) -> list[Point]:
        return [Point(each["name"], each["layers"], each["when"]) for each in self.meta["points"]]

    def _new_upper(self, like: os.stat_result) -> None:
        made, work = self.path / f".{secrets.token_hex(4)}.new", f"work-{secrets.token_hex(4)}"
        made.mkdir(mode=0o700)
        made.chmod(like.st_mode & 0o777)
        if os.geteuid() == 0:
            os.chown(made, like.st_uid, like.st_gid)
        (self.path / work).mkdir(mode=0o700)
        self._note(work=work)
        made.rename(self.path / "upper")

    def _note(self, **facts: Any) -> None:
        self.meta |= facts
        _write(self.path / "meta.json", self.meta)

    @contextmanager
    def layers(self, is_run_later: RunsLater = runs_later, at: Point | None = None) -> Iterator[Layers]:
        """The layers (those of a checkpoint) and the workspace, opened. It must be the workspace that was staged."""
        with ExitStack() as opened:
            try:
                lower = opened.enter_context(Folder.at(self.workspace))
            except OSError as error:
                raise UsageError(f"the workspace {self.workspace} cannot be opened: {error.strerror}") from error
            if not self._is_of(os.fstat(lower.descriptor)):
                raise UsageError(
                    f"{self.workspace} is no longer the directory that was staged; `belljar discard {self.id}` drops "
                    f"what was changed in that one (it is in {self.path / 'upper'})"
                )
            paths = self._layers(at.layers) if at else self.uppers
            uppers = [opened.enter_context(Folder.at(path)) for path in paths]
            yield Layers(uppers, lower, is_run_later, self.merged)

    def changes(self) -> list[Change]:
        from belljar.staged.merge import keep_bases

        with self.layers() as layers:
            found = layers.changes()
            keep_bases(self, layers, found)
        return found

    @property
    def applied(self) -> dict[str, int]:
        """Path → the change time that our own apply gave it."""
        with suppress(OSError, ValueError):
            return {str(path): int(when) for path, when in _read(self.path / "applied.json").items()}
        return {}

    @property
    def merged(self) -> dict[str, str]:
        """Path → digest of the sandbox's file that the host's has taken in, whole or merged: until it changes again,
        nothing is to be applied, whatever the host does with its own."""
        with suppress(OSError, ValueError):
            return {str(path): str(digest) for path, digest in _read(self.path / "merged.json").items()}
        return {}

    def note_applied(
        self, times: dict[str, int], merged: dict[str, str] | None = None, forget: Sequence[str] = ()
    ) -> None:
        """`forget`: of these nothing is merged any more."""
        known = self.merged
        gone = {*times, *forget}
        if merged or not gone.isdisjoint(known):
            kept = {path: digest for path, digest in known.items() if path not in gone}
            _write(self.path / "merged.json", kept | (merged or {}))
        ours = {path: when for path, when in self.applied.items() if path not in (merged or {})}
        _write(self.path / "applied.json", ours | times)

    def note_again(self, times: dict[str, int]) -> None:
        """What we applied is there once more, as it was."""
        _write(self.path / "applied.json", self.applied | times)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One at a time, for this area and for its workspace."""
        inode = "-".join(str(part) for part in self.meta["inode"])
        with resources.locked(self.path.parent / f".workspace-{inode}.lock"):
            yield


def _like(upper: Path, workspace: str, uid: int, gid: int) -> None:
    """The upper's own mode and owner are what the sandbox sees of /workspace itself."""
    upper.chmod(os.stat(workspace).st_mode & 0o777)
    if os.geteuid() == 0:
        os.chown(upper, uid, gid)


def _now_on_disk(directory: Path) -> int:
    """A change time that is later than that of any file so far: the kernel's clock for files ticks slowly."""
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


def _read(path: Path) -> dict[str, Any]:
    found = json.loads(path.read_bytes())
    return found if isinstance(found, dict) else {}


def _write(path: Path, content: dict[str, Any]) -> None:
    with Folder.at(path.parent) as folder:
        folder.write(path.name, json.dumps(content).encode())
