"""What is mounted besides the workspace: read-only directories of the host, and caches.

    mounts   {"/data": "/srv/corpus"}       pinned like the workspace, and checked again once the container runs
    cache    {"pip": "~/.cache/pip"}        writable, below the sandbox's home (caches.py)

A cache is shared by all sessions whose workspaces have the same owner. Root's sandboxes each have another uid, so both
are mounted with mapped ids, as the workspace is.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from belljar.engines.spec import Mount
from belljar.errors import ProtectionMissing, UsageError, WorkspaceError
from belljar.layout import HOME
from belljar.options import Pairs
from belljar.records import record
from belljar.workspace.beneath import Folder
from belljar.workspace.pinned import Workspace, mount_points, shown_as

MOUNT_PREFIX = "extra-"


@record
class Extra:
    """A directory of the host that is mounted besides the workspace."""

    mount: Mount
    pinned: Workspace
    """The directory, pinned as a workspace is."""

    def check(self, pid: int) -> None:
        """ProtectionMissing unless this directory is mounted in the container."""
        target = self.mount.target
        try:
            with Folder.at(f"/proc/{pid}/root") as root:
                status = root.stat(target.lstrip("/"))
            points = mount_points(
                Path(f"/proc/{pid}/mountinfo").read_text(errors="surrogateescape")
            )
        except OSError:
            self.pinned.check_path_unchanged()
            return
        if (status.st_dev, status.st_ino) != self.pinned.inode or points.count(
            target
        ) != 1:
            raise ProtectionMissing(
                f"mounts: something else than {self.pinned.path} was mounted at {target}"
            )


@contextmanager
def shown(
    mounts: Pairs,
    caches: Pairs,
    caches_root: Path,
    workspace: Workspace,
    run_dir: Path,
    reserved: Sequence[Path],
    home: str = HOME,
) -> Iterator[list[Extra]]:
    """The mounts to give to the engine, valid while this is open; the workspace must be shown already."""
    from belljar.sandbox.caches import opened

    owner = owner_of(workspace)
    with ExitStack() as held:
        directories = [
            *(
                (target, True, held.enter_context(_source(path, workspace, reserved)))
                for target, path in mounts
            ),
            *(
                (
                    f"{home}/{path}",
                    False,
                    held.enter_context(
                        opened(
                            caches_root,
                            name,
                            owner,
                            run_dir / f"{MOUNT_PREFIX}cache-{name}",
                        )
                    ),
                )
                for name, path in caches
            ),
        ]
        yield [
            Extra(
                Mount(
                    "bind",
                    target,
                    held.enter_context(_mapped(pinned, workspace, run_dir, n)),
                    read_only=ro,
                ),
                pinned,
            )
            for n, (target, ro, pinned) in enumerate(directories)
        ]


def _source(path: str, workspace: Workspace, reserved: Sequence[Path]) -> Workspace:
    try:
        pinned = Workspace.open(path, reserved=reserved, surveys=workspace.surveys)
    except WorkspaceError as error:
        raise UsageError(f"mounts: {str(error).removeprefix('workspace ')}") from error
    real, work = Path(pinned.path), Path(workspace.path)
    if real.is_relative_to(work) or work.is_relative_to(real):
        pinned.close()
        raise UsageError(
            f"mounts: {path!r} and the workspace overlap; choose a directory outside it"
        )
    return pinned


def owner_of(workspace: Workspace) -> tuple[int, int]:
    """Who owns files on disk that commands make."""
    status = os.fstat(workspace.descriptor)
    identity = workspace.identity
    return (
        (status.st_uid, status.st_gid)
        if identity.mapped
        else (identity.uid, identity.gid)
    )


@contextmanager
def _mapped(
    pinned: Workspace, workspace: Workspace, run_dir: Path, number: int
) -> Iterator[str]:
    """The path to mount, with the sandbox's user as the owner inside."""
    who = workspace.identity
    if not who.mapped:
        pinned.check_path_unchanged()
        yield pinned.path
        return
    with ExitStack() as held:
        try:
            mapped = shown_as(
                pinned.descriptor, run_dir / f"{MOUNT_PREFIX}{number}", who.uid, who.gid
            )
            target = held.enter_context(mapped)
        except OSError as error:
            raise ProtectionMissing(
                f"{pinned.path} cannot be mapped to the sandbox's user: {error.strerror}"
            ) from error
        yield str(target)
