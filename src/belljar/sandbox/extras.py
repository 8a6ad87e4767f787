"""What is mounted besides the workspace: read-only directories of the host, and caches.

    mounts   {"/data": "/srv/corpus"}       pinned like the workspace, and checked again once the container runs
    cache    {"pip": "~/.cache/pip"}        writable, below the sandbox's home (caches.py)

A cache is shared by all sessions whose workspaces have the same owner. Root's sandboxes each have another uid, so both
are mounted with mapped ids, as the workspace is.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from belljar.engines.spec import Mount
from belljar.errors import ProtectionMissing, UsageError, WorkspaceError
from belljar.layout import HOME, PRIVATE, WORKSPACE
from belljar.patterns import lazy_pattern
from belljar.records import record
from belljar.workspace.beneath import Folder
from belljar.workspace.pinned import Workspace, mount_points, shown_as

Pairs = tuple[tuple[str, str], ...]

MOST = 16
MOUNT_PREFIX = "extra-"
_CACHE_NAME = lazy_pattern(r"[a-z0-9][a-z0-9._-]{0,63}")
# Used by the system or by us: nothing may be mounted at or below these.
_TAKEN = (
    WORKSPACE, "/proc", "/sys", "/dev", "/run", "/tmp", "/etc", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32",
    "/usr", "/boot", "/var/run", "/var/tmp",
)  # fmt: skip
_NEVER_WHOLE = ("/", "/var", "/home", "/root", "/opt", HOME)


def mounts_of(value: Any) -> Pairs:
    """Checked targets and absolute sources."""
    mounts = {_target(target): os.path.abspath(source) for target, source in _items("mounts", value)}
    return tuple(sorted(mounts.items()))


def caches_of(value: Any) -> Pairs:
    """Checked names, and paths relative to the home directory."""
    caches = {_name(name): _below_home(name, path) for name, path in _items("cache", value)}
    if len(set(caches.values())) < len(caches):
        raise UsageError("cache: two caches cannot be at the same place")
    return tuple(sorted(caches.items()))


def _items(option: str, mapping: Any) -> list[tuple[str, str]]:
    if mapping is None:
        return []
    if not isinstance(mapping, Mapping) or not all(
        isinstance(key, str) and isinstance(value, str | os.PathLike) for key, value in mapping.items()
    ):
        raise UsageError(f"{option}: {mapping!r} must be a mapping of names to paths")
    pairs = [(key, os.fspath(value)) for key, value in mapping.items()]
    if len(pairs) > MOST or any("\0" in key + value or not key or not value for key, value in pairs):
        raise UsageError(f"{option}: at most {MOST} of them, and none empty or with a NUL byte")
    return pairs


def _target(path: str) -> str:
    plain = posixpath.normpath(path)
    inside = any(plain == taken or plain.startswith(f"{taken}/") for taken in _TAKEN)
    if not path.startswith("/") or path.startswith("//") or inside or plain in _NEVER_WHOLE:
        raise UsageError(f"mounts: {path!r} is not a free place to mount at; choose another, such as /data")
    if plain.startswith(PRIVATE):
        raise UsageError(f"mounts: {path!r} is Belljar's own")
    return plain


def _name(name: str) -> str:
    if not _CACHE_NAME.fullmatch(name):
        raise UsageError(f"cache: {name!r} is not a name for a cache; use lower-case letters, digits, dots and dashes")
    return name


def _below_home(name: str, path: str) -> str:
    below = path.removeprefix("~/").removeprefix(f"{HOME}/")
    plain = posixpath.normpath(below)
    if below.startswith(("/", "~")) or plain == "." or plain.split("/")[0] == "..":
        raise UsageError(
            f"cache: {name} is at {path!r}, which is outside the home directory; use for example ~/.cache/{name}"
        )
    return plain


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
            points = mount_points(Path(f"/proc/{pid}/mountinfo").read_text(errors="surrogateescape"))
        except OSError:
            self.pinned.check_path_unchanged()
            return
        if (status.st_dev, status.st_ino) != self.pinned.inode or points.count(target) != 1:
            raise ProtectionMissing(f"mounts: something else than {self.pinned.path} was mounted at {target}")


@contextmanager
def shown(
    mounts: Pairs, caches: Pairs, caches_root: Path, workspace: Workspace, run_dir: Path, reserved: Sequence[Path],
    home: str = HOME,
) -> Iterator[list[Extra]]:  # fmt: skip
    """The mounts to give to the engine, valid while this is open; the workspace must be shown already."""
    from belljar.sandbox.caches import opened

    owner = owner_of(workspace)
    with ExitStack() as held:
        directories = [
            *((target, True, held.enter_context(_source(path, workspace, reserved))) for target, path in mounts),
            *((f"{home}/{path}", False,
               held.enter_context(opened(caches_root, name, owner, run_dir / f"{MOUNT_PREFIX}cache-{name}")))
              for name, path in caches),
        ]  # fmt: skip
        yield [
            Extra(
                Mount("bind", target, held.enter_context(_mapped(pinned, workspace, run_dir, n)), read_only=ro), pinned
            )
            for n, (target, ro, pinned) in enumerate(directories)
        ]


def _source(path: str, workspace: Workspace, reserved: Sequence[Path]) -> Workspace:
    try:
        pinned = Workspace.open(path, reserved=reserved)
    except WorkspaceError as error:
        raise UsageError(f"mounts: {str(error).removeprefix('workspace ')}") from error
    real, work = Path(pinned.path), Path(workspace.path)
    if real.is_relative_to(work) or work.is_relative_to(real):
        pinned.close()
        raise UsageError(f"mounts: {path!r} and the workspace overlap; choose a directory outside it")
    return pinned


def owner_of(workspace: Workspace) -> tuple[int, int]:
    """Who owns files on disk that commands make."""
    status = os.fstat(workspace.descriptor)
    identity = workspace.identity
    return (status.st_uid, status.st_gid) if identity.mapped else (identity.uid, identity.gid)


@contextmanager
def _mapped(pinned: Workspace, workspace: Workspace, run_dir: Path, number: int) -> Iterator[str]:
    """The path to mount, with the sandbox's user as the owner inside."""
    who = workspace.identity
    if not who.mapped:
        pinned.check_path_unchanged()
        yield pinned.path
        return
    with ExitStack() as held:
        try:
            mapped = shown_as(pinned.descriptor, run_dir / f"{MOUNT_PREFIX}{number}", who.uid, who.gid)
            target = held.enter_context(mapped)
        except OSError as error:
            raise ProtectionMissing(
                f"{pinned.path} cannot be mapped to the sandbox's user: {error.strerror}"
            ) from error
        yield str(target)
