"""Where running sandboxes leave their traces on the host, and who owns them.

    <run>/<session>/          0700, one per sandbox
        owner                 locked (flock) for as long as the process that made it lives
        session.json          for sessions that outlive their process
        link.json             how their init is reached where no files are shared (holds a secret)
        link/                 the one directory that the container sees (read-only): sockets the init dials
        workspace/            mount point of an id-mapped workspace, while its container starts; extra-N: of mounts

The lock is the truth about life and death: the kernel drops it with the process, however that process dies. Labels on
the container (pid, start time, boot id) say the same for containers whose directory is gone.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from belljar import resources
from belljar.engines.kernel_facts import boot_id, start_time
from belljar.engines.spec import LABEL
from belljar.errors import BelljarError, UsageError
from belljar.patterns import lazy_pattern
from belljar.sandbox import scratch
from belljar.workspace import pinned as workspace

_SESSION_ID = lazy_pattern(r"bj-[0-9a-f]{12}")
_UNBORN = lazy_pattern(r"\.bj-[0-9a-f]{12}\.(\d+)\.(\d+)\.(\d+)")


def new_session_id() -> str:
    return f"bj-{os.urandom(6).hex()}"


def check_session_id(id: str) -> str:
    if not _SESSION_ID.fullmatch(id):
        raise UsageError(f"{id!r} is not a session id; `belljar session list` lists them")
    return id


def run_root() -> Path:
    return closed_to_others(_default_root())


def closed_to_others(root: Path) -> Path:
    """The root, if nobody else could have put a session there; one that is not there yet is for `_make_root`."""
    try:
        resources.check_ancestry(root.parent, "BELLJAR_RUN")
        status = root.lstat()
    except OSError:
        return root
    if status.st_uid != os.geteuid() or status.st_mode & 0o077 or not stat.S_ISDIR(status.st_mode):
        raise BelljarError(f"{root} must be a directory that only you can enter; set BELLJAR_RUN to another one")
    return root


def _default_root() -> Path:
    if given := os.environ.get("BELLJAR_RUN"):
        return Path(given)
    if os.geteuid() == 0:
        return Path("/run/belljar")
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        return Path(runtime) / "belljar"
    shared = Path(f"/tmp/belljar-{os.geteuid()}")
    with contextlib.suppress(OSError):
        shared.mkdir(mode=0o700)  # before somebody else does; from then on nobody can put another in its place
    return shared


def _make_root(root: Path) -> Path:
    closed_to_others(root)
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise BelljarError(
            f"Cannot use {root} ({error.strerror}); set BELLJAR_RUN to a directory of your own"
        ) from error
    return closed_to_others(root)


class RunDir:
    """One sandbox's directory, held by this process until `close` or `release`."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path, self._lock = path, lock

    @classmethod
    def create(cls, id: str, root: Path | None = None) -> RunDir:
        path = _make_root(root or run_root()) / id
        unborn = path.with_name(f".{id}.{os.getpid()}.{start_time(os.getpid())}.{_namespace()}")
        lock = -1
        try:
            unborn.mkdir(mode=0o700)
            lock = _lock(unborn)
            (unborn / "link").mkdir()
            (unborn / "link").chmod(0o755)
            unborn.rename(path)  # before it is locked, its name tells a reaper whose it is
        except OSError as error:
            if lock >= 0:
                os.close(lock)
            shutil.rmtree(unborn, ignore_errors=True)
            raise BelljarError(f"Cannot create {path}: {error.strerror}") from error
        return cls(path, lock)

    @property
    def link(self) -> Path:
        return self.path / "link"

    def write_session(self, facts: dict[str, Any], link: dict[str, Any] | None = None) -> None:
        self._write("link", link or {})
        self._write("session", facts)

    def _write(self, name: str, facts: dict[str, Any]) -> None:
        temporary = self.path / f"{name}.tmp"
        temporary.write_text(json.dumps(facts))
        temporary.rename(self.path / f"{name}.json")

    def release(self) -> None:
        """Leave the directory to the sandbox: it is a kept session's."""
        os.close(self._lock)

    def close(self) -> None:
        remove_run_dir(self.path)
        with contextlib.suppress(OSError):
            os.close(self._lock)


def _lock(path: Path) -> int:
    fd = os.open(path / "owner", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return fd


def owned(path: Path) -> bool:
    """Whether a living process holds this directory."""
    try:
        fd = _lock(path)
    except BlockingIOError:
        return True
    except OSError:
        return False
    os.close(fd)
    return False


def read_session(path: Path, name: str = "session") -> dict[str, Any] | None:
    return resources.read_json(path / f"{name}.json")


def run_dirs(root: Path | None = None) -> list[Path]:
    try:
        return [entry for entry in (root or run_root()).iterdir() if _SESSION_ID.fullmatch(entry.name)]
    except OSError:
        return []


def unborn_dirs(root: Path | None = None) -> list[Path]:
    """Those whose makers died before they were done."""
    try:
        found = [(entry, _UNBORN.fullmatch(entry.name)) for entry in (root or run_root()).iterdir()]
    except OSError:
        return []
    ours = [(entry, match) for entry, match in found if match and match[3] == str(_namespace())]
    return [entry for entry, match in ours if start_time(int(match[1])) != int(match[2])]


def remove_run_dir(path: Path) -> None:
    for mounted in [path / "merged", *path.glob("layer-*"), *path.glob("extra-*"), path / "workspace"]:
        workspace.release_staging(mounted)  # first: what is still mounted there must not be deleted with it
    scratch.release(path)
    shutil.rmtree(path, ignore_errors=True)


def _namespace() -> int:
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


def _boot_and_namespace() -> str:
    """Where a pid means something: this boot, this PID namespace."""
    return f"{boot_id()}:{_namespace()}"


def owner_labels(session: str, lease: float, keep: bool) -> dict[str, str]:
    pid = os.getpid()
    return {
        LABEL + "session": session,
        LABEL + "owner": f"{pid}:{start_time(pid)}:{_boot_and_namespace()}",
        LABEL + "uid": str(os.geteuid()),
        LABEL + "lease": str(lease),
        LABEL + "keep": "true" if keep else "false",
    }


def owner_pid(labels: Mapping[str, str]) -> int | None:
    pid = labels.get(LABEL + "owner", "").partition(":")[0]
    return int(pid) if pid.isdigit() else None


def owner_is_gone(label: str) -> bool:
    """True only where it is proven: a process of this boot and PID namespace that no longer exists.

    Others (another machine or container on a shared engine, or a boot before this one) end by their lease.
    """
    try:
        pid, started, world = label.split(":", 2)
        process, ticks = int(pid), int(started)
    except ValueError:
        return False
    return world == _boot_and_namespace() and start_time(process) != ticks
