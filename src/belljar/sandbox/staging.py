"""What is mounted at /workspace: the workspace itself, or an overlay that keeps its changes apart (staged).

Root mounts the overlay itself, lets the engine bind it, and unmounts it once the container has it. For other callers
the engine mounts it: Docker as an unnamed volume of its own driver. Where the engine can do neither it is
an empty tmpfs, and the workspace is copied into it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from errno import EINVAL
from pathlib import Path
from typing import TYPE_CHECKING

from belljar.engines.base import Engine
from belljar.engines.spec import Mount
from belljar.errors import ProtectionMissing, UsageError
from belljar.layout import WORKSPACE
from belljar.limits import Limits
from belljar.options import SandboxOptions
from belljar.records import record
from belljar.workspace.beneath import Folder
from belljar.workspace.pinned import Identity, Workspace, release_mount, shown_as

if TYPE_CHECKING:
    from belljar.staged.area import StagedArea

MERGED = "merged"


@record
class Place:
    """The mount, and its inode as it must appear inside (None: unknown)."""

    mount: Mount
    inode: tuple[int, int] | None
    area: StagedArea | None = None


def direct(workspace: Workspace, source: str) -> Place:
    return Place(Mount("bind", WORKSPACE, source, read_only=False), workspace.inode)


@contextmanager
def staged(
    engine: Engine,
    root: Path,
    id: str,
    workspace: Workspace,
    source: str,
    run_dir: Path,
    options: SandboxOptions,
) -> Iterator[Place]:
    """`root`: the directory of all areas. With the option `base` it begins from the last checkpoint of that area, with
    `continues` it is that area."""
    from belljar.staged.area import StagedArea

    who = workspace.identity
    if options.continues and engine.capabilities.overlays:
        old = StagedArea.find(root, options.continues)
        area = StagedArea.continued(root, id, old, who.uid, who.gid, options.name)
        with _overlaid(area, source, run_dir) as place:
            yield place
        return
    begin = (
        StagedArea.find(root, options.base)
        if options.base and engine.capabilities.overlays
        else None
    )
    area = StagedArea.create(
        root, id, workspace.path, workspace.inode, who.uid, who.gid, begin, options.name
    )
    try:
        if not engine.capabilities.overlays:
            yield Place(_copied(options.limits, who), None, area)
            return
        with _overlaid(area, source, run_dir) as place:
            yield place
    except BaseException:
        area.remove()
        raise


def _copied(limits: Limits, who: Identity) -> Mount:
    """An empty tmpfs, which the session fills (session/copied_workspace.py)."""
    owner = (who.uid, who.gid)
    return Mount(
        "tmpfs",
        WORKSPACE,
        read_only=False,
        size=limits.memory // 2,
        inodes=limits.inodes,
        owner=owner,
    )


@contextmanager
def _overlaid(area: StagedArea, source: str, run_dir: Path) -> Iterator[Place]:
    from belljar.staged import overlay

    upper, *below = area.uppers
    if os.geteuid() != 0:
        if any(
            character in path
            for character in ",:\\"
            for path in (source, str(area.path))
        ):
            raise UsageError(
                f"{source!r} cannot be staged: its path holds a comma, a colon or a backslash"
            )
        lower = ":".join([*map(str, below), source])
        layers = Mount(
            "overlay",
            WORKSPACE,
            lower,
            read_only=False,
            upper=str(upper),
            work=str(area.work),
        )
        yield Place(layers, None, area)
        return
    target = run_dir / MERGED
    target.mkdir(mode=0o700, exist_ok=True)
    with ExitStack() as mounted:
        mounted.callback(release_mount, target)
        try:
            lowers = [
                mounted.enter_context(_as_of(upper, layer, run_dir)) for layer in below
            ]
            overlay.mount([*lowers, source], upper, area.work, target)
        except OSError as error:
            message = (
                f"staged workspace: the overlay cannot be mounted ({error.strerror})"
            )
            if error.errno == EINVAL:
                message += "; the kernel stacks at most two overlays: is the workspace on two already?"
            raise ProtectionMissing(message) from error
        status = target.stat()
        yield Place(
            Mount("bind", WORKSPACE, str(target), read_only=False),
            (status.st_dev, status.st_ino),
            area,
        )


@contextmanager
def _as_of(upper: Path, layer: Path, run_dir: Path) -> Iterator[Path]:
    """A layer of another session, shown as if this session's user had written it."""
    ours, theirs = upper.stat(), layer.stat()
    if (ours.st_uid, ours.st_gid) == (theirs.st_uid, theirs.st_gid):
        yield layer
        return
    target = run_dir / f"layer-{layer.name}"
    with (
        Folder.at(layer) as opened,
        shown_as(opened.descriptor, target, ours.st_uid, ours.st_gid),
    ):
        yield target


def can_remount(engine: Engine) -> bool:
    """Whether checkpoints are layers; if not, they are copies of the changes."""
    return os.geteuid() == 0 and engine.capabilities.overlays


def remount(area: StagedArea, workspace: Workspace, run_dir: Path, pid: int) -> None:
    """Give a running sandbox the overlay that its area describes now, after a checkpoint or rollback."""
    from belljar.staged.swap import swap

    owner = (area.path / "upper").stat()
    with (
        workspace.mapped_again(run_dir, owner.st_uid, owner.st_gid) as source,
        _overlaid(area, source, run_dir) as place,
    ):
        try:
            swap(pid, place.mount.source, WORKSPACE)
        except OSError as error:
            raise ProtectionMissing(
                f"checkpoint: the sandbox's mount cannot be exchanged ({error.strerror})"
            ) from error
