"""The workspace: one directory of the host, resolved once, pinned, and given to an unprivileged user.

`Workspace.open` follows the path a single time and holds a descriptor of the directory it found. From then on
the descriptor is the truth: the mount source is derived from it, and after the container has started
`check_mounted` compares what was mounted with it, so a path that was swapped in between is noticed before any
command runs.

Who the commands run as, and how their files come to belong to the right owner:

    caller      uid inside                       how
    not root    the caller's                     as it is
    root        one that nobody has (uids.py)    idmapped mount: the owner on disk is that uid inside

Where the file system has no idmapped mounts, a workspace that is not root's is used as it is, by its owner's uid;
root's own is refused.

An idmapped mount is needed only until the container has its own bind of it. It stands at `<dir>/workspace`
while `shown(dir)` is open; after a kill -9 in that moment `release_staging(dir / "workspace")` takes it
away. Never delete the directory around it before that has come back: the workspace's own files are below it.

A set-id file in the workspace could be rewritten from inside through a shared mapping, which keeps the bit. So such
files are looked for while the container starts, and `check_mounted` refuses them before any command runs.
"""

from __future__ import annotations

import os
import pwd
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from belljar.errors import ProtectionMissing, WorkspaceError
from belljar.layout import WORKSPACE
from belljar.records import record
from belljar.workspace import idmap, uids
from belljar.workspace.beneath import Folder
from belljar.workspace.survey import Survey, survey

STAGING = "workspace"
NOBODY = 65534

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


@record
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
        """Of whoever would run here without a mapping; `shown` settles it."""
        self._descriptor = descriptor
        self._status = os.fstat(descriptor)
        self._survey: Survey | None = None

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, reserved: Sequence[Path] = (), allow_home: bool = False) -> Self:
        """Resolve and pin. `reserved` are our own directories, which must stay out of reach; a home directory, or one
        that holds homes, is only taken with `allow_home`."""
        descriptor = _pin(path)
        try:
            real = _real_path(descriptor)
            refuse_unsuitable(Path(real), reserved, allow_home)
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
    def shown(self, directory: Path, *, shared: bool = True) -> Iterator[str]:
        """The path to give to the engine as the mount source, good while this is open. From here on `identity` is
        who the sandbox runs as; `directory` is the sandbox's own, `shared` whether the engine sees our mounts."""
        self._survey = survey(self._descriptor)
        target = directory / STAGING
        wanted = os.geteuid() == 0 and (shared or self._status.st_uid == 0)
        mapped = wanted and self._mount_mapped(directory, target)
        try:
            if not mapped:
                self.check_path_unchanged()
            yield str(target) if mapped else self.path
        finally:
            release_staging(target)

    @contextmanager
    def mapped_again(self, directory: Path, uid: int, gid: int) -> Iterator[str]:
        """As `shown`, for a sandbox that runs already: as whom it sees the workspace's owner is known."""
        if (self._status.st_uid, self._status.st_gid) == (uid, gid):
            self.check_path_unchanged()
            yield self.path
            return
        with shown_as(self._descriptor, directory / STAGING, uid, gid) as target:
            yield str(target)

    def check_mounted(self, init_pid: int | None, expected: tuple[int, int] | None = None) -> None:
        """Make sure that the container with this PID 1 has got the pinned directory and no other, and that it holds
        nothing that must not be given to it. `expected` is another directory that stands in for it: an overlay."""
        self._survey = self._survey or survey(self._descriptor)
        self._survey.refuse_privileged(self.path)
        self._refuse_mounts_below(init_pid)
        try:
            with Folder.at(f"/proc/{init_pid}/root") as root:
                found = root.stat(WORKSPACE.lstrip("/"))
        except OSError:
            # Not root, or an engine elsewhere: then the path must still lead where it led before.
            self.check_path_unchanged()
            return
        if (found.st_dev, found.st_ino) != (expected or self.inode):
            raise ProtectionMissing(
                f"workspace: something else than {self.path} was mounted; the path was changed meanwhile, or the image "
                f"has a link at {WORKSPACE}"
            )

    @staticmethod
    def _refuse_mounts_below(init_pid: int | None) -> None:
        """Anybody on this machine may read where a process has something mounted."""
        points: list[str] = []
        with suppress(OSError):
            points = mount_points(Path(f"/proc/{init_pid}/mountinfo").read_text(errors="surrogateescape"))
        if below := sorted(point for point in points if point.startswith(WORKSPACE + "/")):
            raise ProtectionMissing(f"workspace: the image has something else mounted inside it, at {below[0]}")

    def git_directories(self) -> list[str]:
        """Where git keeps its hooks and settings, relative to the workspace, as it was when the sandbox started."""
        return self._survey.git_directories() if self._survey is not None else []

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _mount_mapped(self, directory: Path, target: Path) -> bool:
        """False where it cannot be mapped, and need not be."""
        target.mkdir(mode=0o700, parents=True, exist_ok=True)
        number, owner = uids.reserve(directory), self._status
        try:
            idmap.mount_exchanged(self._descriptor, target, (owner.st_uid, number), (owner.st_gid, number))
        except OSError as error:
            release_staging(target)
            if owner.st_uid != 0:
                return False
            raise WorkspaceUnmappable(
                f"workspace {self.path!r} belongs to root and cannot be mapped to an unprivileged user here "
                f"({error.strerror}); give it another owner (chown) or run belljar as a user that is not root"
            ) from error
        self.identity = Identity(number, number, mapped=True)
        return True

    def check_path_unchanged(self) -> None:
        """That the path still leads to what was pinned."""
        try:
            found = os.stat(self.path, follow_symlinks=False)
        except OSError as error:
            raise WorkspaceError(f"workspace {self.path!r} is gone: {error.strerror}") from error
        if (found.st_dev, found.st_ino) != self.inode:
            raise WorkspaceError(f"workspace {self.path!r} was replaced by something else since it was opened")


def choose_identity(status: os.stat_result, caller_uid: int, caller_gid: int) -> Identity:
    """Who would run there without a mapped mount; never root, whoever asks."""
    if caller_uid != 0:
        return Identity(caller_uid, caller_gid or caller_uid)
    if status.st_uid != 0:
        return Identity(status.st_uid, status.st_gid or status.st_uid)
    return Identity(NOBODY, NOBODY)


def mount_points(mountinfo: str) -> list[str]:
    """Where things are mounted, as one process sees it; the kernel writes blanks and such in octal."""
    points = [line.split(" ")[4] for line in mountinfo.splitlines() if line.count(" ") > 4]
    return [re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), point) for point in points]


@contextmanager
def shown_as(directory: int, target: Path, uid: int, gid: int) -> Iterator[Path]:
    """A directory's owner is somebody else at `target`, while this is open. OSError where it cannot be mapped."""
    owner = os.fstat(directory)
    target.mkdir(mode=0o700, exist_ok=True)
    try:
        idmap.mount_exchanged(directory, target, (owner.st_uid, uid), (owner.st_gid, gid))
        yield target
    finally:
        release_staging(target)


def release_staging(target: Path) -> None:
    """Take away what `shown` set up, ours or that of a process that died; harmless where there is
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
        if os.path.isdir(text) and not os.access(text, os.R_OK | os.X_OK, effective_ids=True):
            raise WorkspaceError(f"workspace {text!r}: you may not read it; choose a directory of your own")
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


def refuse_unsuitable(real: Path, reserved: Sequence[Path], allow_home: bool = False) -> None:
    if real in FORBIDDEN or any(real.is_relative_to(tree) for tree in FORBIDDEN_TREES):
        raise WorkspaceError(f"workspace {str(real)!r} is a system directory; choose the directory of one project")
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
    """The caller's home: what the environment says, and what the account says."""
    given = {os.environ.get("HOME") or "/"}
    with suppress(KeyError):
        given.add(pwd.getpwuid(os.geteuid()).pw_dir)
    if os.geteuid() == 0 and (behind := os.environ.get("SUDO_USER")):
        with suppress(KeyError):
            given.add(pwd.getpwnam(behind).pw_dir)
    return {Path(os.path.realpath(path)) for path in given} - {Path("/")}
