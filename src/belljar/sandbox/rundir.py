"""The directories of running sandboxes on the host, and the processes that own them.

    <run>/<session>/          0700, one per sandbox
        owner                 locked (flock) while the process that made it lives
        session.json          the facts about the session
        ending                when its work is done and it only ends
        paused                while a kept sandbox is paused (pausing.py)
        link.json             how to reach the init if no files are shared (holds a secret)
        link/                 the only part that the container sees (read-only): sockets that the init dials
        workspace/            mount point of an id-mapped workspace while its container starts; extra-N: of mounts

The lock tells whether the owner lives: the kernel drops it when the process dies. Labels on the container (pid, start
time, boot id) tell the same for containers whose directory is gone.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from belljar import resources
from belljar.engines.kernel_facts import boot_id, start_time
from belljar.engines.spec import LABEL
from belljar.errors import BelljarError
from belljar.options import SESSION_ID, SandboxOptions
from belljar.patterns import lazy_pattern
from belljar.sandbox import scratch
from belljar.workspace import pinned as workspace

ENDING = "ending"
_UNBORN = lazy_pattern(r"\.bj-[0-9a-f]{12}\.(\d+)\.(\d+)\.(\d+)")


def new_session_id() -> str:
    return f"bj-{os.urandom(6).hex()}"


def _make_root(root: Path) -> Path:
    resources.closed_to_others(root)
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise BelljarError(
            f"Cannot use {root} ({error.strerror}); set BELLJAR_RUN to a directory of your own"
        ) from error
    return resources.closed_to_others(root)


class RunDir:
    """The directory of one sandbox, locked by this process until `close` or `release`."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path, self._lock = path, lock

    @classmethod
    def create(cls, id: str, root: Path | None = None) -> RunDir:
        path = _make_root(root or resources.run_root()) / id
        unborn = path.with_name(
            f".{id}.{os.getpid()}.{start_time(os.getpid())}.{_namespace()}"
        )
        lock = -1
        try:
            unborn.mkdir(mode=0o700)
            lock = _lock(unborn)
            (unborn / "link").mkdir()
            (unborn / "link").chmod(0o755)
            unborn.rename(
                path
            )  # until it is locked, its name tells a reaper whose it is
        except OSError as error:
            if lock >= 0:
                os.close(lock)
            shutil.rmtree(unborn, ignore_errors=True)
            raise BelljarError(f"Cannot create {path}: {error.strerror}") from error
        return cls(path, lock)

    @property
    def link(self) -> Path:
        return self.path / "link"

    def release(self) -> None:
        """Leave the directory to a kept session."""
        os.close(self._lock)

    def close(self) -> None:
        remove_run_dir(self.path)
        with contextlib.suppress(OSError):
            os.close(self._lock)


def _lock(path: Path) -> int:
    fd = os.open(
        path / "owner", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
    )
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return fd


def owned(path: Path) -> bool:
    """Whether a living process owns this directory."""
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


def write_session(path: Path, facts: Mapping[str, Any], name: str = "session") -> None:
    try:
        resources.write_whole(path / f"{name}.json", json.dumps(facts))
    except OSError as error:
        raise BelljarError(
            f"Cannot write {path}/{name}.json: {error.strerror}"
        ) from error


def remember(path: Path, options: SandboxOptions) -> None:
    """Write down the options that a session has now, for processes that attach to it. One that waited begins now."""
    facts = read_session(path)
    if facts is None:
        return
    if facts.pop("waits", False):
        facts["started"] = time.time()
    write_session(
        path,
        {
            **facts,
            "options": {
                **options.as_dict(),
                "workspace": facts["options"]["workspace"],
            },
        },
    )


def mark_waiting(path: Path) -> None:
    """Note that a sandbox waits for its first use: until then it is nobody's session, and not listed."""
    facts = read_session(path)
    if facts is not None:
        write_session(path, {**facts, "waits": True})


def mark_ending(path: Path) -> None:
    """Note that a sandbox has done its work, and only ends: it is nobody's session any more, and not listed."""
    with contextlib.suppress(OSError):
        (path / ENDING).touch()


def is_ending(path: Path) -> bool:
    return (path / ENDING).exists()


def run_dirs(root: Path | None = None) -> list[Path]:
    return [entry for entry in _entries(root) if SESSION_ID.fullmatch(entry.name)]


def _entries(root: Path | None) -> list[Path]:
    try:
        return [*(root or resources.run_root()).iterdir()]
    except OSError:
        return []


def unborn_dirs(root: Path | None = None) -> list[Path]:
    """Unfinished directories whose makers have died."""
    matches = [(entry, _UNBORN.fullmatch(entry.name)) for entry in _entries(root)]
    ours = [
        (entry, match)
        for entry, match in matches
        if match and match[3] == str(_namespace())
    ]
    return [
        entry for entry, match in ours if start_time(int(match[1])) != int(match[2])
    ]


def remove_run_dir(path: Path) -> None:
    for mounted in [
        path / "merged",
        *path.glob("layer-*"),
        *path.glob("extra-*"),
        path / "workspace",
    ]:
        workspace.release_mount(
            mounted
        )  # first: a mounted workspace must not be deleted with the directory
    scratch.release(path)
    shutil.rmtree(path, ignore_errors=True)


def _namespace() -> int:
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


def _boot_and_namespace() -> str:
    """A pid is unique only within one boot and one PID namespace."""
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
    """True only for a process of this boot and PID namespace that no longer exists.

    Others (of another machine or container on a shared engine, or of an earlier boot) end with their lease.
    """
    try:
        pid, started, world = label.split(":", 2)
        process, ticks = int(pid), int(started)
    except ValueError:
        return False
    return world == _boot_and_namespace() and start_time(process) != ticks
