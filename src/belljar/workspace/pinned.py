"""The workspace: a directory of the host, resolved once, pinned by a descriptor, and given to an unprivileged user.

`Workspace.open` resolves the path once and keeps a descriptor of the directory. The mount source is derived from the
descriptor, and `check_mounted` compares it with what the container has mounted: so a path that was replaced meanwhile
is noticed before any command runs.

Which user commands run as, and how files get the right owner:

    caller      uid inside                       how
    not root    the caller's                     as it is
    root        one that nobody has (uids.py)    idmapped mount: the owner on disk is that uid inside

On a file system without idmapped mounts, commands run with the uid of the workspace's owner; a workspace that root
owns is refused.

An idmapped mount is needed only until the container has its own bind of it. It is at `<dir>/workspace` while
`shown(dir)` is open; after a kill -9 in that moment `release_mount(dir / "workspace")` removes it. Never delete the
directory around it before that has returned: the workspace's own files are below it.

A command could rewrite a set-id file through a shared mapping, which keeps the bit. So the workspace is searched for
such files while the container starts, and `check_mounted` refuses them before any command runs.
"""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from belljar import environment
from belljar.errors import ProtectionMissing, WorkspaceError
from belljar.layout import WORKSPACE
from belljar.records import record
from belljar.workspace import idmap, uids
from belljar.workspace.beneath import Folder
from belljar.workspace.survey import Survey, Surveys

MOUNT_NAME = "workspace"
NOBODY = 65534

# No directory at or below these may be a workspace.
FORBIDDEN_TREES = tuple(
    Path(name)
    for name in (
        "/proc",
        "/sys",
        "/dev",
        "/boot",
        "/etc",
        "/run/docker",
        "/run/containerd",
        "/run/podman",
        "/.belljar",
        "/var/lib/docker",
        "/var/lib/containerd",
        "/var/lib/containers",
    )
)
# These may not be a workspace, but directories below them may. /tmp and /run hold sockets of other programs (tmux, an
# agent, a database), which can be used through a bind mount.
FORBIDDEN = tuple(
    Path(name)
    for name in (
        "/",
        "/bin",
        "/home",
        "/lib",
        "/lib32",
        "/lib64",
        "/run",
        "/sbin",
        "/tmp",
        "/usr",
        "/usr/bin",
        "/usr/lib",
        "/usr/local",
        "/usr/sbin",
        "/var",
        "/var/lib",
        "/var/run",
        "/var/tmp",
    )
)


class WorkspaceUnmappable(WorkspaceError):
    code = "workspace_unmappable"


@record
class Identity:
    """The user that commands run as; `mapped`: the workspace needs an idmapped mount for it."""

    uid: int
    gid: int
    mapped: bool = False

    @property
    def user(self) -> str:
        return f"{self.uid}:{self.gid}"


class Workspace:
    def __init__(
        self,
        path: str,
        descriptor: int,
        identity: Identity,
        surveys: Surveys | None = None,
    ) -> None:
        self.path = path
        self.identity = identity
        """The user without a mapping; `shown` may change it."""
        self.descriptor = descriptor
        self._status = os.fstat(descriptor)
        self.surveys = surveys or Surveys()
        self._survey: Survey | None = None

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        reserved: Sequence[Path] = (),
        allow_home: bool = False,
        surveys: Surveys | None = None,
    ) -> Self:
        """Resolve and pin. `reserved`: our own directories, which commands must not reach. A home directory, or one
        that contains homes, needs `allow_home`. `surveys`: the host's, so that a burst of sandboxes shares a walk."""
        descriptor = _pin(path)
        try:
            real = _real_path(descriptor)
            refuse_unsuitable(Path(real), reserved, allow_home)
            return cls(
                real,
                descriptor,
                choose_identity(os.fstat(descriptor), os.geteuid(), os.getegid()),
                surveys,
            )
        except BaseException:
            os.close(descriptor)
            raise

    @property
    def inode(self) -> tuple[int, int]:
        return self._status.st_dev, self._status.st_ino

    @contextmanager
    def shown(self, directory: Path, *, shared: bool = True) -> Iterator[str]:
        """The mount source for the engine, valid while this is open. From now on `identity` is the sandbox's user.
        `directory`: the sandbox's run directory. `shared`: whether the engine sees our mounts."""
        self._survey = self.surveys.of(self.descriptor)
        target = directory / MOUNT_NAME
        may_map = os.geteuid() == 0 and (shared or self._status.st_uid == 0)
        mapped = may_map and self._mount_mapped(directory, target)
        try:
            if not mapped:
                self.check_path_unchanged()
            yield str(target) if mapped else self.path
        finally:
            release_mount(target)

    @contextmanager
    def mapped_again(self, directory: Path, uid: int, gid: int) -> Iterator[str]:
        """Like `shown`, for a running sandbox whose user is known."""
        if (self._status.st_uid, self._status.st_gid) == (uid, gid):
            self.check_path_unchanged()
            yield self.path
            return
        with shown_as(self.descriptor, directory / MOUNT_NAME, uid, gid) as target:
            yield str(target)

    def check_mounted(
        self, init_pid: int | None, expected: tuple[int, int] | None = None
    ) -> None:
        """ProtectionMissing unless the container with this PID 1 has mounted the pinned directory, or if that contains
        set-id files or mounts. `expected`: the inode of an overlay that is mounted instead."""
        self._survey = self._survey or self.surveys.of(self.descriptor)
        self._survey.refuse_privileged(self.path)
        self._refuse_mounts_below(init_pid)
        try:
            with Folder.at(f"/proc/{init_pid}/root") as root:
                status = root.stat(WORKSPACE.lstrip("/"))
        except OSError:
            # Not root, or a remote engine: then the path must still lead to the same directory.
            self.check_path_unchanged()
            return
        if (status.st_dev, status.st_ino) != (expected or self.inode):
            raise ProtectionMissing(
                f"workspace: something else than {self.path} was mounted; the path was changed meanwhile, or the image "
                f"has a link at {WORKSPACE}"
            )

    @staticmethod
    def _refuse_mounts_below(init_pid: int | None) -> None:
        """The mount table of a process is readable for everybody."""
        points: list[str] = []
        with suppress(OSError):
            points = mount_points(
                Path(f"/proc/{init_pid}/mountinfo").read_text(errors="surrogateescape")
            )
        if below := sorted(
            point for point in points if point.startswith(WORKSPACE + "/")
        ):
            raise ProtectionMissing(
                f"workspace: the image has something else mounted inside it, at {below[0]}"
            )

    def git_directories(self) -> list[str]:
        """The git directories, relative to the workspace, when the sandbox started."""
        return self._survey.git_directories() if self._survey is not None else []

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _mount_mapped(self, directory: Path, target: Path) -> bool:
        """False if it cannot be mapped but has another owner than root."""
        target.mkdir(mode=0o700, parents=True, exist_ok=True)
        number, owner = uids.reserve(directory), self._status
        try:
            idmap.mount_exchanged(
                self.descriptor, target, (owner.st_uid, number), (owner.st_gid, number)
            )
        except OSError as error:
            release_mount(target)
            if owner.st_uid != 0:
                return False
            raise WorkspaceUnmappable(
                f"workspace {self.path!r} belongs to root and cannot be mapped to an unprivileged user here "
                f"({error.strerror}); give it another owner (chown) or run belljar as a user that is not root"
            ) from error
        self.identity = Identity(number, number, mapped=True)
        return True

    def check_path_unchanged(self) -> None:
        """WorkspaceError unless the path still leads to the pinned directory."""
        try:
            status = os.stat(self.path, follow_symlinks=False)
        except OSError as error:
            raise WorkspaceError(
                f"workspace {self.path!r} is gone: {error.strerror}"
            ) from error
        if (status.st_dev, status.st_ino) != self.inode:
            raise WorkspaceError(
                f"workspace {self.path!r} was replaced by something else since it was opened"
            )


def choose_identity(
    status: os.stat_result, caller_uid: int, caller_gid: int
) -> Identity:
    """The user of a sandbox without a mapped mount; never root."""
    if caller_uid != 0:
        return Identity(caller_uid, caller_gid or caller_uid)
    if status.st_uid != 0:
        return Identity(status.st_uid, status.st_gid or status.st_uid)
    return Identity(NOBODY, NOBODY)


def mount_points(mountinfo: str) -> list[str]:
    """The mount points in a mount table; the kernel writes blanks and the like in octal."""
    points = [
        line.split(" ")[4] for line in mountinfo.splitlines() if line.count(" ") > 4
    ]
    return [
        re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), point)
        for point in points
    ]


@contextmanager
def shown_as(directory: int, target: Path, uid: int, gid: int) -> Iterator[Path]:
    """Show a directory at `target` with another owner, while this is open. OSError if it cannot be mapped."""
    owner = os.fstat(directory)
    target.mkdir(mode=0o700, exist_ok=True)
    try:
        idmap.mount_exchanged(
            directory, target, (owner.st_uid, uid), (owner.st_gid, gid)
        )
        yield target
    finally:
        release_mount(target)


def release_mount(target: Path) -> None:
    """Remove the mount of `shown`, ours or that of a process that died, if there is one.

    When this returns nothing of the workspace is at `target` any more; else it raises OSError.
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
        if os.path.isdir(text) and not os.access(
            text, os.R_OK | os.X_OK, effective_ids=True
        ):
            raise WorkspaceError(
                f"workspace {text!r}: you may not read it; choose a directory of your own"
            )
        return os.open(text, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise WorkspaceError(f"workspace {text!r} does not exist") from error
    except NotADirectoryError as error:
        raise WorkspaceError(f"workspace {text!r} is not a directory") from error
    except OSError as error:
        raise WorkspaceError(
            f"workspace {text!r} cannot be opened: {error.strerror}"
        ) from error


def _real_path(descriptor: int) -> str:
    real = os.readlink(f"/proc/self/fd/{descriptor}")
    pinned = os.fstat(descriptor)
    try:
        status = os.stat(real, follow_symlinks=False)
        real.encode()
    except UnicodeEncodeError as error:
        raise WorkspaceError(
            f"workspace {real!r}: the name is not valid UTF-8, which engines cannot mount"
        ) from error
    except OSError as error:
        raise WorkspaceError(
            f"workspace {real!r} was removed or cannot be reached: {error.strerror}"
        ) from error
    if (status.st_dev, status.st_ino) != (pinned.st_dev, pinned.st_ino):
        raise WorkspaceError(f"workspace {real!r} was replaced while it was opened")
    return real


def refuse_unsuitable(
    real: Path, reserved: Sequence[Path], allow_home: bool = False
) -> None:
    if real in FORBIDDEN or any(real.is_relative_to(tree) for tree in FORBIDDEN_TREES):
        raise WorkspaceError(
            f"workspace {str(real)!r} is a system directory; choose the directory of one project"
        )
    for home in homes() if not allow_home else ():
        if home.is_relative_to(real):
            raise WorkspaceError(
                f"workspace {str(real)!r} is or holds your home directory, with keys and settings that no command "
                "should see; choose the directory of one project, or allow it (--allow-home, Session(allow_home=True))"
            )
    for own in (Path(os.path.realpath(path)) for path in reserved):
        if real.is_relative_to(own) or own.is_relative_to(real):
            raise WorkspaceError(
                f"workspace {str(real)!r} would give commands access to Belljar's own files in {own}; choose another "
                "directory, or move them (BELLJAR_STATE, BELLJAR_RUN)"
            )


def homes() -> set[Path]:
    """The caller's home directories: of the environment, of the account, and of the user behind sudo."""
    paths = {environment.value("HOME", "/")}
    with suppress(KeyError):
        paths.add(pwd.getpwuid(os.geteuid()).pw_dir)
    if os.geteuid() == 0 and (user := environment.value("SUDO_USER")):
        with suppress(KeyError):
            paths.add(pwd.getpwnam(user).pw_dir)
    return {Path(os.path.realpath(path)) for path in paths} - {Path("/")}
