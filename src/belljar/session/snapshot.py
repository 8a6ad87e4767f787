"""Snapshots: what a sandbox holds, under a name, for later sessions to begin with.

    <state>/snapshots/<name>/
        snapshot.json       what it is, the session's options, the directories and variables of its shells
        layers/0, 1, …      staged changes, newest first, as overlays have them
        copy.tmp …          /tmp, home and perhaps the whole workspace, as the init packs them
        root/               with root inside: what differs from the root file system of a new sandbox (root_files.py)

Processes are not kept, nor is a directory that would go over the limit; `Snapshot.left_out` names them. Restoring goes
through the init's tools, so it works for every caller and engine.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from anyio import to_thread

from belljar import environment, resources, user_namespace
from belljar.errors import BelljarError, UsageError
from belljar.layout import WORKSPACE
from belljar.limits import parse_size
from belljar.options import FIELDS, SESSION_NAME, Here, SandboxOptions, must
from belljar.records import record
from belljar.session import root_files, scratch_copies
from belljar.staged.copying import copy_layer
from belljar.staged.layers import Layers
from belljar.workspace.beneath import Folder

if TYPE_CHECKING:
    from belljar.host import Host
    from belljar.session.inside import Inside
    from belljar.session.shells import Shells
    from belljar.session.staged import Staged

SIZE = "BELLJAR_SNAPSHOTS_SIZE"
DEFAULT = "8g"
FACTS, COPY, LAYERS, ROOT = "snapshot.json", "copy", "layers", "root"
PROCESSES = "processes"
NOT_CARRIED = frozenset(
    {
        "name",
        "keep",
        "keepable",
        "id",
        "longest",
        "base",
        "continues",
        "reserved",
        "metadata",
        "lease",
        "snapshot",
    }
)
"""Options that belong to the session and not to what it held."""


@record
class Snapshot:
    """`await box.snapshot("ready")` makes one; `Session(snapshot="ready")` begins with it."""

    name: str
    image: str
    engine: str
    workspace: str
    created: float
    """Unix time."""
    size: int
    """Bytes on disk."""
    left_out: tuple[str, ...] = ()
    """What it does not hold: `processes` that ran, directories that were too large or hold something of the host."""

    def as_dict(self) -> dict[str, Any]:
        return {**vars(self), "left_out": list(self.left_out)}


class SnapshotFiles:
    """A snapshot's directory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.facts: dict[str, Any] = json.loads((path / FACTS).read_bytes())

    @classmethod
    def find(cls, host: Host, name: str) -> Self:
        path = host.snapshots_root / checked(name)
        if not (path / FACTS).is_file():
            raise UsageError(
                f"there is no snapshot {name!r}; `belljar snapshots list` lists them"
            )
        return cls(path)

    @classmethod
    def all(cls, host: Host) -> list[Self]:
        """Oldest first."""
        try:
            paths = [
                path
                for path in host.snapshots_root.iterdir()
                if (path / FACTS).is_file()
            ]
        except OSError:
            return []
        found = [cls(path) for path in paths if not path.name.startswith(".")]
        return sorted(found, key=lambda each: float(each.facts["created"]))

    @property
    def snapshot(self) -> Snapshot:
        facts = self.facts
        plain = ("name", "image", "engine", "workspace", "created", "size")
        return Snapshot(
            **{name: facts[name] for name in plain}, left_out=tuple(facts["left_out"])
        )

    @property
    def options(self) -> dict[str, Any]:
        """Those of the session, without what was only that session's."""
        saved = SandboxOptions.restored(self.facts["options"])
        return {
            name: getattr(saved, name) for name in FIELDS if name not in NOT_CARRIED
        }

    @property
    def copies(self) -> Path:
        """How the names of the packed directories begin."""
        return self.path / COPY

    def layers(self) -> list[Path]:
        with suppress(OSError):
            return sorted(
                (self.path / LAYERS).iterdir(), key=lambda path: int(path.name)
            )
        return []

    def remove(self) -> None:
        gone = self.path.with_name(f".{self.path.name}.{os.urandom(4).hex()}.gone")
        with suppress(FileNotFoundError):
            self.path.rename(gone)
            user_namespace.remove_tree(gone)


def checked(name: str) -> str:
    must(
        bool(SESSION_NAME.fullmatch(name)),
        "snapshot",
        name,
        "made of letters, digits, dots and dashes",
    )
    return name


def completed(
    options: Mapping[str, Any], workspace: Any, host: Host
) -> tuple[Any, dict[str, Any]]:
    """The workspace and options of a session that begins with a snapshot: what is not given is the original's. If there
    is no such snapshot, opening the session will say so."""
    try:
        saved = SnapshotFiles.find(host, str(options["snapshot"])).options
    except UsageError:
        return workspace, dict(options)
    original = saved.pop("workspace")
    return (original if isinstance(workspace, Here) else workspace), {
        **saved,
        **options,
    }


def listed(host: Host) -> tuple[Snapshot, ...]:
    return tuple(each.snapshot for each in SnapshotFiles.all(host))


def remove(host: Host, name: str) -> None:
    SnapshotFiles.find(host, name).remove()


def remove_if_there(host: Host, name: str) -> None:
    with suppress(UsageError):
        remove(host, name)


# Making one.


async def take(
    inside: Inside,
    staged: Staged,
    shells: Shells,
    host: Host,
    name: str,
    *,
    whole: bool,
    replace: bool,
) -> Snapshot:
    """`whole`: with the contents of a workspace that the session writes straight into."""
    checked(name)
    await to_thread.run_sync(_refuse_taken, host, name, replace)
    await staged.copy_out()
    async with inside.standstill.still(), AsyncExitStack() as opened:
        made = await to_thread.run_sync(opened.enter_context, _new(host, name, replace))
        left = await to_thread.run_sync(_room, host, name)
        if staged.is_on:
            await to_thread.run_sync(
                _copy_layers, staged.area.uppers, made / LAYERS, left
            )
        options = inside.options
        whole = whole and not staged.is_on
        for root in (*scratch_copies.roots(options), *([WORKSPACE] if whole else [])):
            await scratch_copies.keep_one(
                inside.files,
                root,
                made / COPY,
                left - await to_thread.run_sync(_size, made),
            )
        left_out = scratch_copies.left_out(options, made / COPY)
        if whole and not scratch_copies.copy_of(made / COPY, WORKSPACE).is_file():
            left_out.append(WORKSPACE)
        if options.root:
            left_out.remove(options.home)  # it is in the root file system
            await root_files.keep(
                inside, host, made / ROOT, left - await to_thread.run_sync(_size, made)
            )
        if await inside.standstill.running():
            left_out.append(PROCESSES)
        facts = {
            "name": name,
            "image": options.image,
            "engine": inside.sandbox.engine.name,
            "workspace": inside.sandbox.workspace.path,
            "created": time.time(),
            "size": await to_thread.run_sync(_size, made),
            "left_out": left_out,
            "options": {
                **options.as_dict(),
                "workspace": inside.sandbox.workspace.path,
            },
            "shells": shells.states(),
            "inode": staged.area.meta["inode"] if staged.is_on else None,
            "since": staged.area.since if staged.is_on else None,
        }
        await to_thread.run_sync(resources.write_whole, made / FACTS, json.dumps(facts))
    return (await to_thread.run_sync(SnapshotFiles.find, host, name)).snapshot


def _refuse_taken(host: Host, name: str, replace: bool) -> None:
    if not replace and (host.snapshots_root / name).exists():
        raise UsageError(
            f"there is a snapshot {name!r} already; choose another name, or replace it (--replace, replace=True)"
        )


@contextmanager
def _new(host: Host, name: str, replace: bool) -> Iterator[Path]:
    """A directory that gets its name when the block is left well."""
    root = host.snapshots_root
    made = root / f".{name}.{os.urandom(4).hex()}.new"
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        made.mkdir(mode=0o700)
        yield made
        with resources.locked(root / ".lock"):
            _refuse_taken(host, name, replace)
            if (root / name).exists():
                SnapshotFiles(root / name).remove()
            made.rename(root / name)
    except BaseException as error:
        with suppress(OSError):
            user_namespace.remove_tree(made)
        if isinstance(error, OSError) and not isinstance(error, BelljarError):
            raise BelljarError(
                f"no snapshot: {error.strerror}: {error.filename}"
            ) from error
        raise


def _room(host: Host, replaced: str) -> int:
    """How many bytes a new snapshot may hold."""
    try:
        most = parse_size(environment.value(SIZE, DEFAULT))
    except ValueError as error:
        raise UsageError(f"{SIZE}: {error}") from None
    used = sum(
        each.snapshot.size
        for each in SnapshotFiles.all(host)
        if each.path.name != replaced
    )
    free = shutil.disk_usage(host.snapshots_root).free
    return max(0, min(most - used, free - (free >> 3)))


def _copy_layers(uppers: list[Path], target: Path, left: int) -> None:
    size = sum(_size(upper) for upper in uppers)
    if size > left:
        raise UsageError(
            f"no snapshot: {size >> 20} MiB changed, and there is room for {left >> 20} MiB: `belljar snapshots remove "
            f"NAME` makes some, {SIZE} allows more"
        )
    target.mkdir(mode=0o700)
    for number, upper in enumerate(uppers):
        (target / str(number)).mkdir(mode=0o700)
        with Folder.at(upper) as source, Folder.at(target / str(number)) as layer:
            copy_layer(source, layer)


def _size(path: Path) -> int:
    with Folder.at(path) as folder:
        return sum(status.st_blocks * 512 for _, status in folder.walk())


# Beginning with one.


async def restore(
    inside: Inside, staged: Staged, shells: Shells, host: Host, name: str
) -> None:
    """Put what a snapshot holds into a sandbox that was just made."""
    saved = await to_thread.run_sync(SnapshotFiles.find, host, name)
    engine = inside.sandbox.engine.name
    if saved.facts["engine"] != engine:
        raise UsageError(
            f"the snapshot {name!r} is of the engine {saved.facts['engine']}, not of {engine}"
        )
    layers, whole = (
        await to_thread.run_sync(saved.layers),
        scratch_copies.copy_of(saved.copies, WORKSPACE),
    )
    if layers and not staged.is_on:
        raise UsageError(
            f'the snapshot {name!r} holds staged changes: begin with changes="staged" (--staged)'
        )
    if layers:
        async with AsyncExitStack() as opened:
            found = await to_thread.run_sync(
                opened.enter_context, _opened(layers, staged.area.workspace)
            )
            await staged.put(found)
        await to_thread.run_sync(_date_back, staged, saved.facts)
    if await to_thread.run_sync(whole.is_file):
        if await inside.files.list(WORKSPACE):
            raise UsageError(
                f"the snapshot {name!r} holds a whole workspace: begin with an empty directory"
            )
        await scratch_copies.unpack_one(inside.files, WORKSPACE, saved.copies)
    if await to_thread.run_sync(root_files.is_kept, saved.path / ROOT):
        if not inside.options.root:
            raise UsageError(
                f"the snapshot {name!r} holds a root file system: begin with root=True (--root)"
            )
        await root_files.bring_back(inside.files, saved.path / ROOT)
    await scratch_copies.bring_back(inside.files, inside.options, saved.copies)
    await shells.restore(saved.facts["shells"])


@contextmanager
def _opened(layers: list[Path], workspace: str) -> Iterator[Layers]:
    with ExitStack() as opened:
        uppers = [opened.enter_context(Folder.at(path)) for path in layers]
        yield Layers(
            uppers, opened.enter_context(Folder.at(workspace)), {}, is_copied=True
        )


def _date_back(staged: Staged, facts: Mapping[str, Any]) -> None:
    """What the host has changed since the original session began is a conflict."""
    if facts["inode"] == staged.area.meta["inode"]:
        staged.area.note_since(int(facts["since"]))
