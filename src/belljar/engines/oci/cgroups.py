"""Finds, empties and removes the control groups of our sandboxes by their names.

Each sandbox has one group, directly below the group where the caller may make some (root: the top), in each hierarchy
of version 1 or in the single one of version 2. The runtime makes them. They are removed here even when no runtime knows
them any more. Groups with other names are never touched.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

from belljar import environment
from belljar.engines.kernel_facts import parse_mounts, read
from belljar.errors import EngineError, EngineUnavailable
from belljar.patience import stretched
from belljar.patterns import lazy_pattern
from belljar.records import record

ABANDONED = lazy_pattern(r"belljar-[0-9a-f]{8}-belljar-bj-[0-9a-f]{12}(\.scope)?")
ABANDONED_SECONDS = 3600
VARIABLE = "BELLJAR_CGROUP"
FREEZER_1, FREEZER_2 = "freezer.state", "cgroup.freeze"
"""Of control groups version 1, which is the one that limits on a hybrid machine, and 2."""
FREEZE_SECONDS = (
    10.0  # usually a millisecond; a process in uninterruptible sleep takes longer
)
UNIT_END = ".scope"
REMOVAL_SECONDS = 5.0
"""A group stays busy until the kernel has dropped the last of its processes."""


@record
class Place:
    """Where groups are made: below `parent` of every hierarchy."""

    parent: str = "/"
    systemd: bool = False
    """Whether the user's own systemd makes them, as units."""

    def path(self, name: str) -> str:
        """In the runtime's form: a path, or `slice:prefix:name` for systemd."""
        if not self.systemd:
            return os.path.join(self.parent, name)
        prefix, _, rest = name.removesuffix(UNIT_END).rpartition("-")
        return f"user.slice:{prefix}:{rest}"

    @property
    def ending(self) -> str:
        """The suffix of each group's name."""
        return UNIT_END if self.systemd else ""

    def controllers(self) -> set[str]:
        """The controllers that can limit groups here."""
        found: set[str] = set()
        for kind, point in _hierarchies():
            if kind == "cgroup2":
                with suppress(OSError):
                    found |= set(
                        _existing(Path(point + self.parent), "cgroup.controllers")
                        .read_text()
                        .split()
                    )
            else:
                found |= set(Path(point).name.split(","))
        return found

    def counts_swap(self) -> bool | None:
        """None: unknown, since there is no group to look at."""
        names = {"cgroup": "memory.memsw.limit_in_bytes", "cgroup2": "memory.swap.max"}
        limiting = [
            (kind, point)
            for kind, point in _hierarchies()
            if kind == "cgroup2" or point.endswith("/memory")
        ]
        groups = [
            (kind, path)
            for kind, point in limiting
            for path in Path(point).iterdir()
            if path.is_dir()
        ]
        return (
            any((path / names[kind]).exists() for kind, path in groups)
            if groups
            else None
        )

    def _paths(self, name: str) -> list[str]:
        return [os.path.join(point + self.parent, name) for point in _mounts()]

    def names(self, prefix: str) -> set[str]:
        found: set[str] = set()
        for point in _mounts():
            with suppress(OSError), os.scandir(point + self.parent) as entries:
                found |= {
                    entry.name for entry in entries if entry.name.startswith(prefix)
                }
        return found

    def processes(self, name: str) -> set[int]:
        found: set[int] = set()
        for path in self._paths(name):
            with suppress(ValueError):
                found |= {
                    int(line) for line in (read(f"{path}/cgroup.procs") or "").split()
                }
        return found

    def freeze(self, name: str, frozen: bool) -> None:
        """Freeze all processes of the group, or let them go on, and wait until it is done."""
        file, words = self._freezer(name)
        deadline = time.monotonic() + stretched(FREEZE_SECONDS)
        Path(file).write_text(words[frozen])
        while self.is_frozen(name) is not frozen:
            if time.monotonic() > deadline:
                Path(file).write_text(words[False])
                raise EngineError(
                    f"the processes of the group {name} could not be frozen in time"
                )
            time.sleep(0.001)

    def is_frozen(self, name: str) -> bool:
        """Whether all of its processes are."""
        file, words = self._freezer(name)
        if file.endswith(FREEZER_2):
            return "frozen 1" in (read(f"{os.path.dirname(file)}/cgroup.events") or "")
        return (read(file) or "").strip() == words[True]

    def _freezer(self, name: str) -> tuple[str, tuple[str, str]]:
        """The file that freezes the group, and what to write: to let it go on, to freeze it."""
        for path in self._paths(name):
            if os.path.exists(f"{path}/{FREEZER_1}"):
                return f"{path}/{FREEZER_1}", ("THAWED", "FROZEN")
        for path in self._paths(name):
            if os.path.exists(f"{path}/{FREEZER_2}"):
                return f"{path}/{FREEZER_2}", ("0", "1")
        raise EngineError(
            f"the control group {name} cannot be frozen: it is gone, or this machine has no freezer"
        )

    def clear(self, name: str) -> bool:
        """Kill everything in the group and remove it; returns whether it is gone.

        Does both repeatedly: a runtime whose caller was killed may still add a process.
        """
        deadline = time.monotonic() + stretched(REMOVAL_SECONDS)
        while not all(_removed(path) for path in self._paths(name)):
            if time.monotonic() > deadline:
                return False
            for pid in self.processes(name):
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.002)
        return True

    def remove_abandoned(self) -> None:
        """Remove old empty groups of sandboxes whose state directory is gone: nobody else would find them.

        The kernel refuses to remove a group with a process in it. A live sandbox's group is empty only for a moment,
        while it starts or ends.
        """
        for point in _mounts():
            for path in Path(point + self.parent).glob("belljar-*-belljar-bj-*"):
                with suppress(OSError):
                    if (
                        ABANDONED.fullmatch(path.name)
                        and time.time() - path.stat().st_mtime > ABANDONED_SECONDS
                    ):
                        path.rmdir()


def inhabited(names: set[str]) -> set[str]:
    """Which of these groups have a process in them, anywhere in the hierarchy."""
    found: set[str] = set()
    for path in Path("/proc").glob("[0-9]*/cgroup") if names else ():
        with suppress(OSError):
            found |= names & {
                part
                for line in path.read_text().splitlines()
                for part in line.split("/")
            }
    return found


def ease_joining(pid: int) -> None:
    """Move a runtime to the group that it is already in, so that moving its child is faster.

    The kernel's first move of a process waits for an RCU grace period (5 to 20 ms); moves shortly after it do not. A
    runtime makes its first move about 10 ms after its start, so we wait for this one in parallel. Skipped without the
    permission.
    """
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
            _, controllers, group = line.split(":", 2)
            for kind, point in _hierarchies():
                if (
                    (kind == "cgroup2")
                    if not controllers
                    else point.endswith(f"/{controllers}")
                ):
                    Path(f"{point}{group}/cgroup.procs").write_text(str(pid))
                    return


def delegated(uid: int) -> Place:
    """Where an ordinary user may make groups with limits. Only root can set that up."""
    configured = environment.value(VARIABLE)
    if version() == "2" and not configured:
        return _user_manager(uid)
    parent = "/" + (configured or f"belljar-{uid}").strip("/")
    places = _limiting(parent)
    if all(os.access(place, os.W_OK | os.X_OK) for place in places):
        return Place(parent)
    where = " ".join(places)
    by = (
        f"mkdir -p {where}; chown -R {uid} {where}"
        if configured
        else f"sudo belljar setup-user {uid}"
    )
    raise EngineUnavailable(
        "the engine oci cannot limit what an ordinary user's sandboxes take: no control groups are yours "
        f"({parent} in each of /sys/fs/cgroup). Root can give you them: `{by}`"
    )


def places_for(uid: int) -> list[str]:
    """The groups that must belong to an ordinary user, with version 1."""
    return _limiting(f"/belljar-{uid}")


def _limiting(parent: str) -> list[str]:
    return [
        point + parent
        for kind, point in _hierarchies()
        if kind == "cgroup" or version() == "2"
    ]


def _user_manager(uid: int) -> Place:
    """The groups of the user's own systemd, which runs while he is logged in or lingering is enabled."""
    service = f"/user.slice/user-{uid}.slice/user@{uid}.service"
    runtime = Path(environment.value("XDG_RUNTIME_DIR", f"/run/user/{uid}"))
    [point] = _mounts()
    if not (runtime / "bus").exists() or not os.access(point + service, os.W_OK):
        raise EngineUnavailable(
            "the engine oci cannot limit what an ordinary user's sandboxes take: no systemd of yours runs. "
            f"`sudo belljar setup-user {uid}` starts one (it needs the package dbus-user-session); or give "
            f"{VARIABLE} a control group that is yours"
        )
    has = set(Path(point + service, "cgroup.controllers").read_text().split())
    if lacking := sorted({"cpu", "memory", "pids"} - has):
        raise EngineUnavailable(
            f"the engine oci cannot limit what an ordinary user's sandboxes take: systemd does not give you "
            f"{', '.join(lacking)}: `sudo belljar setup-user {uid}`, then log in again"
        )
    return Place(f"{service}/user.slice", systemd=True)


def _existing(directory: Path, name: str) -> Path:
    """The file in this directory or the nearest one above: the parent group may be made only with the first sandbox."""
    while not (directory / name).exists() and directory != directory.parent:
        directory = directory.parent
    return directory / name


def _removed(path: str) -> bool:
    """Removes the groups in it too. That is rare, so we look for them only if rmdir fails."""
    with suppress(OSError):
        os.rmdir(path)
        return True
    try:
        with os.scandir(path) as entries:
            below = [
                entry.path for entry in entries if entry.is_dir(follow_symlinks=False)
            ]
    except OSError:
        return not os.path.exists(path)
    return bool(below) and all(_removed(each) for each in below) and _removed(path)


def unified_beside_version_1() -> tuple[str, ...]:
    """Where version 2 is mounted on a hybrid machine, whose limits come from version 1."""
    if version() == "1 and 2":
        return tuple(point for kind, point in _hierarchies() if kind == "cgroup2")
    return ()


def version() -> str:
    kinds = {kind for kind, _ in _hierarchies()}
    if kinds == {"cgroup2"}:
        return "2"
    if kinds == {"cgroup"}:
        return "1"
    return "1 and 2" if kinds else "none"


@cache
def _mounts() -> tuple[str, ...]:
    return tuple(dict.fromkeys(point for _, point in _hierarchies()))


@cache
def _hierarchies() -> tuple[tuple[str, str], ...]:
    """The kind and the mount point of every hierarchy that is mounted completely."""
    mounts = parse_mounts(read("/proc/self/mountinfo") or "").items()
    return tuple(
        (each.kind, point)
        for point, each in mounts
        if each.kind in ("cgroup", "cgroup2") and each.root == "/"
    )
