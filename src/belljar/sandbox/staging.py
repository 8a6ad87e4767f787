"""What a sandbox finds at /workspace: the workspace itself, or an overlay that keeps its changes apart (staged).

Root mounts the overlay itself, where the engine can bind it, and takes the mount away once the container has it. For
everybody else the engine mounts it: Docker as an unnamed volume of its own driver.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from belljar.engines.base import Engine
from belljar.engines.spec import Mount
from belljar.errors import ProtectionMissing, UsageError
from belljar.layout import WORKSPACE
from belljar.staged import overlay
from belljar.staged.area import StagedArea
from belljar.workspace.pinned import Workspace, release_staging

Changes = Literal["direct", "staged"]
MERGED = "merged"


class Place:
    """The mount, and how to know it again inside."""

    def __init__(self, mount: Mount, inode: tuple[int, int] | None, area: StagedArea | None = None) -> None:
        self.mount, self.inode, self.area = mount, inode, area


def direct(workspace: Workspace, source: str) -> Place:
    return Place(Mount("bind", WORKSPACE, source, read_only=False), workspace.inode)


@contextmanager
def staged(engine: Engine, root: Path, id: str, workspace: Workspace, source: str, run_dir: Path) -> Iterator[Place]:
    """`root` is where areas are kept."""
    if not engine.shares_files:
        raise UsageError("a staged workspace needs an engine that shares this machine's files; this one does not")
    who = workspace.identity
    area = StagedArea.create(root, id, workspace.path, workspace.inode, who.uid, who.gid)
    try:
        with _overlaid(area, source, run_dir) as place:
            yield place
    except BaseException:
        area.remove()
        raise


@contextmanager
def _overlaid(area: StagedArea, source: str, run_dir: Path) -> Iterator[Place]:
    upper, *below = area.uppers
    work = area.path / "work"
    if os.geteuid() != 0:
        if any(character in path for character in ",:\\" for path in (source, str(area.path))):
            raise UsageError(f"{source!r} cannot be staged: its path holds a comma, a colon or a backslash")
        lower = ":".join(str(each) for each in [*below, source])
        yield Place(Mount("overlay", WORKSPACE, lower, read_only=False, upper=str(upper), work=str(work)), None, area)
        return
    target = run_dir / MERGED
    target.mkdir(mode=0o700, exist_ok=True)
    try:
        try:
            overlay.mount([*below, source], upper, work, target)
        except OSError as error:
            raise ProtectionMissing(f"staged workspace: the overlay cannot be mounted ({error.strerror})") from error
        found = target.stat()
        yield Place(Mount("bind", WORKSPACE, str(target), read_only=False), (found.st_dev, found.st_ino), area)
    finally:
        release_staging(target)
