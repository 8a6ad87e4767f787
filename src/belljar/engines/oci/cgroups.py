"""The control groups of our sandboxes, found by their names.

Each sandbox has one group, directly below where we may make any, in each hierarchy (version 1) or in the one there is
(version 2). The runtime makes them; here they are looked for, emptied and removed, also when no runtime knows of them
any more. Groups of another name are never touched.
"""

from __future__ import annotations

import os
import re
import signal
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

from belljar.patience import stretched

ABANDONED = re.compile(r"belljar-[0-9a-f]{8}-belljar-bj-[0-9a-f]{12}")
ABANDONED_SECONDS = 3600
REMOVAL_SECONDS = 5.0
"""A group is busy until the last of its processes is gone from the kernel's lists."""


def directories(name: str, parent: str = "/") -> list[Path]:
    found = [Path(point + parent, name) for point in _mounts()]
    return [path for path in found if path.is_dir()]


def names(prefix: str, parent: str = "/") -> set[str]:
    found: set[str] = set()
    for point in _mounts():
        with suppress(OSError), os.scandir(point + parent) as entries:
            found |= {entry.name for entry in entries if entry.name.startswith(prefix)}
    return found


def processes(name: str, parent: str = "/") -> set[int]:
    found: set[int] = set()
    for path in directories(name, parent):
        with suppress(OSError, ValueError):
            found |= {int(line) for line in (path / "cgroup.procs").read_text().split()}
    return found


def clear(name: str, parent: str = "/") -> bool:
    """Kill everything in the group and remove it; whether nothing is left of it.

    Both together, again and again: a runtime that was left alone in the middle of its work may still put a process in.
    """
    deadline = time.monotonic() + stretched(REMOVAL_SECONDS)
    while left := directories(name, parent):
        for pid in processes(name, parent):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        for path in left:
            with suppress(OSError):
                _remove(path)
        if time.monotonic() > deadline:
            return False
        if any(path.is_dir() for path in left):
            time.sleep(0.002)
    return True


def remove_abandoned() -> None:
    """Empty groups of sandboxes whose state directory is gone, so that nobody else will ever look for them.

    The kernel removes no group that has a process in it; one without is only ever seen while a sandbox starts or ends.
    """
    for point in _mounts():
        for path in Path(point).glob("belljar-*-belljar-bj-*"):
            with suppress(OSError):
                if ABANDONED.fullmatch(path.name) and time.time() - path.stat().st_mtime > ABANDONED_SECONDS:
                    path.rmdir()


def _remove(path: Path) -> None:
    for entry in list(path.iterdir()):
        if entry.is_dir():
            _remove(entry)
    path.rmdir()


def version() -> str:
    kinds = {kind for kind, _ in _hierarchies()}
    return "2" if kinds == {"cgroup2"} else "1" if kinds == {"cgroup"} else "1 and 2" if kinds else "none"


@cache
def controllers() -> frozenset[str]:
    """Those that sandboxes can be limited with."""
    found: set[str] = set()
    for kind, point in _hierarchies():
        if kind == "cgroup2":
            with suppress(OSError):
                found |= set(Path(point, "cgroup.controllers").read_text().split())
        else:
            found |= set(Path(point).name.split(","))
    return frozenset(found)


@cache
def _mounts() -> tuple[str, ...]:
    return tuple(dict.fromkeys(point for _, point in _hierarchies()))


@cache
def _hierarchies() -> tuple[tuple[str, str], ...]:
    """The kind and the mount point of every hierarchy that is mounted whole."""
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        kind = right.split(" ", 1)[0]
        root, point = left.split(" ")[3:5]
        if kind in ("cgroup", "cgroup2") and root == "/":
            found.append((kind, point))
    return tuple(found)
