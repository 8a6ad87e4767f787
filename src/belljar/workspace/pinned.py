"""The workspace: one directory of the host, resolved once, pinned, and given to an unprivileged user.

`Workspace.open` follows the path a single time and holds a descriptor of the directory it found. From then on
the descriptor is the truth: the mount source is derived from it, and after the container has started
`check_mounted` compares what was mounted with it, so a path that was swapped in between is noticed before any
command runs.

Who the commands run as, and how their files come to belong to the right owner:

    caller      workspace of     uid inside      how
    not root    anybody          the caller's    as it is
    root        not root         the owner's     as it is
    root        root             1000            idmapped mount: root on disk is 1000 inside

An idmapped mount is needed only until the container has its own bind of it. It stands at `<dir>/workspace`
while `staged(dir)` is open; after a kill -9 in that moment `release_staging(dir / "workspace")` takes it
away. Never delete the directory around it before that has come back: the workspace's own files are below it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from belljar.errors import ProtectionMissing, WorkspaceError
from belljar.workspace import idmap

UNPRIVILEGED = 1000
STAGING = "workspace"

# Not even a directory below these may be a workspace.
FORBIDDEN_TREES = tuple(
    Path(name)
    for name in (
        "/proc", "/sys", "/dev", "/boot", "/etc", "/run/docker", "/run/containerd", "/run/podman",
        "/.belljar", "/var/lib/docker", "/var/lib/containerd", "/var/lib/containers",
    )
)  # fmt: skip
# These themselves may not, but a directory below them may. /tmp and /run hold other programs' sockets, and a
# socket (tmux, an agent, a database) can be talked to through a bind mount.
FORBIDDEN = tuple(
    Path(name)
    for name in (
        "/", "/bin", "/home", "/lib", "/lib32", "/lib64", "/run", "/sbin", "/tmp", "/usr", "/usr/bin",
        "/usr/lib", "/usr/local", "/usr/sbin", "/var", "/var/lib", "/var/run", "/var/tmp",
    )
)  # fmt: skip


class WorkspaceUnmappable(WorkspaceError):
    code = "workspace_unmappable"


@dataclass(frozen=True)
class Identity:
    """Who commands run as; `mapped` when the workspace must be shown to them through an idmapped mount."""

    uid: int
    gid: int
    mapped: bool = False

    @property
    def user(self) -> str:
        return f"{self.uid}:{self.gid}"


class Workspace:
    def __init__(self, path: str, descriptor: int, identity: Identity) -> None:
        self.path = path
        self.identity = identity
        self._descriptor = descriptor
        self._status = os.fstat(descriptor)

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, reserved: Sequence[Path] = ()) -> Self:
        """Resolve and pin. `reserved` are our own directories, which must stay out of reach."""
        descriptor = _pin(path)
        try:
            real = _real_path(descriptor)
            _refuse_unsuitable(Path(real), reserved)
            return cls(real, descriptor, choose_identity(os.fstat(descriptor), os.geteuid(), os.getegid()))
        except BaseException:
            os.close(descriptor)
            raise

    @property
    def descriptor(self) -> int:
        return self._descriptor

    @property
    def inode(self) -> tuple[int, int]:
        return self._status.st_dev, self._status.st_ino

    @contextmanager
    def staged(self, directory: Path) -> Iterator[str]:
        """The path to give to the engine as the mount source, good while this is open."""
        if not self.identity.mapped:
            self._check_path_unchanged()
            yield self.path
            return
        target = directory / STAGING
        target.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            self._mount(target)
            yield str(target)
        finally:
            release_staging(target)

    def check_mounted(self, init_pid: int | None) -> None:
        """Make sure that the container with this PID 1 has got the pinned directory and no other."""
        try:
            found = os.stat(f"/proc/{init_pid}/root/workspace")
        except OSError:
            # Not root, or an engine elsewhere: then the path must still lead where it led before.
            self._check_path_unchanged()
            return
        if (found.st_dev, found.st_ino) != self.inode:
            raise ProtectionMissing(
                f"workspace: something else than {self.path} was mounted; the path was changed meanwhile"
            )

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _mount(self, target: Path) -> None:
        uids, gids = (self._status.st_uid, self.identity.uid), (self._status.st_gid, self.identity.gid)
        try:
            idmap.mount_exchanged(self._descriptor, target, uids, gids)
        except OSError as error:
            raise WorkspaceUnmappable(
                f"workspace {self.path!r} belongs to root and cannot be mapped to an unprivileged user here "
                f"({error.strerror}); give it another owner (chown) or run belljar as a user that is not root"
            ) from error

    def _check_path_unchanged(self) -> None:
        try:
            found = os.stat(self.path, follow_symlinks=False)
        except OSError as error:
            raise WorkspaceError(f"workspace {self.path!r} is gone: {error.strerror}") from error
        if (found.st_dev, found.st_ino) != self.inode:
            raise WorkspaceError(f"workspace {self.path!r} was replaced by something else since it was opened")


def choose_identity(status: os.stat_result, caller_uid: int, caller_gid: int) -> Identity:
    if caller_uid != 0:
        return Identity(caller_uid, caller_gid)
    if status.st_uid != 0:
        return Identity(status.st_uid, status.st_gid or status.st_uid)
    return Identity(UNPRIVILEGED, UNPRIVILEGED, mapped=True)


def release_staging(target: Path) -> None:
    """Take away what `staged` set up, ours or that of a process that died; harmless where there is
    nothing.

    When this comes back nothing of the workspace is at `target` any more; if that cannot be had it raises
    OSError.
    """
    if target.is_symlink() or not target.is_dir():
        return
    idmap.unmount(target)
    target.rmdir()


def _pin(path: str | os.PathLike[str]) -> int:
    text = os.fspath(path)
    if not text or "\0" in text:
        raise WorkspaceError("workspace: the path is empty or holds a NUL byte")
    try:
        return os.open(text, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise WorkspaceError(f"workspace {text!r} does not exist") from error
    except NotADirectoryError as error:
        raise WorkspaceError(f"workspace {text!r} is not a directory") from error
    except OSError as error:
        raise WorkspaceError(f"workspace {text!r} cannot be opened: {error.strerror}") from error


def _real_path(descriptor: int) -> str:
    real = os.readlink(f"/proc/self/fd/{descriptor}")
    pinned = os.fstat(descriptor)
    try:
        found = os.stat(real, follow_symlinks=False)
        real.encode()
    except UnicodeEncodeError as error:
        raise WorkspaceError(f"workspace {real!r}: the name is not valid UTF-8, which engines cannot mount") from error
    except OSError as error:
        raise WorkspaceError(f"workspace {real!r} was removed or cannot be reached: {error.strerror}") from error
    if (found.st_dev, found.st_ino) != (pinned.st_dev, pinned.st_ino):
        raise WorkspaceError(f"workspace {real!r} was replaced while it was opened")
    if not stat.S_ISDIR(found.st_mode):
        raise WorkspaceError(f"workspace {real!r} is not a directory")
    return real


def _refuse_unsuitable(real: Path, reserved: Sequence[Path]) -> None:
    if real in FORBIDDEN or any(real.is_relative_to(tree) for tree in FORBIDDEN_TREES):
        raise WorkspaceError(f"workspace {str(real)!r} is a system directory; choose the directory of one project")
    for own in (Path(os.path.realpath(path)) for path in reserved):
        if real.is_relative_to(own) or own.is_relative_to(real):
            raise WorkspaceError(f"workspace {str(real)!r} would give commands access to Belljar's own files in {own}")
