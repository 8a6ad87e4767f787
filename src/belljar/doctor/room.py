"""How many idle sandboxes fit on this machine, and what stops them first."""

from __future__ import annotations

import os
import resource
from pathlib import Path

from belljar.doctor.check import Check, first_line
from belljar.engines.base import Description
from belljar.workspace import uids

NAME = "room for sandboxes"
PROCESSES = 5
"""Of an idle sandbox: its init, and shells that wait for a command, each with its keeper."""
DESCRIPTORS = 4
"""That the process which made it keeps open for it."""
MIB = 1 << 20


def check(about: Description, *, own_ids: bool) -> Check:
    """`own_ids`: each sandbox gets a user id of its own."""
    bounds = sorted((most, what) for what, most in _bounds(about, own_ids).items())
    most, what = bounds[0]
    later = ", ".join(f"{what} at {most:,}" for most, what in bounds[1:3])
    detail = f"{most:,} idle ones: then it is out of {what}"
    return Check(NAME, True, f"{detail} (next would be {later})" if later else detail)


def _bounds(about: Description, own_ids: bool) -> dict[str, int]:
    """What bounds them → how many more there may be."""
    bounds = {
        f"memory ({about.idle_bytes // MIB} MiB each)": _memory() // about.idle_bytes
    }
    if most := _number("/proc/sys/kernel/pid_max"):
        bounds["process ids (kernel.pid_max)"] = max(0, most - _tasks()) // PROCESSES
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY:
        bounds["open files in one process (ulimit -Hn)"] = hard // DESCRIPTORS
    if own_ids:
        first, last = uids.allowed()
        bounds[f"user ids ({uids.SETTING})"] = last - first + 1
    return {**bounds, **about.bounds}


def _memory() -> int:
    """Bytes that are available."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _tasks() -> int:
    """Threads on this machine: `running/all` is the fourth word."""
    words = first_line("/proc/loadavg").split()
    return int(words[3].partition("/")[2]) if len(words) > 3 else 0


def _number(path: str) -> int:
    text = first_line(path).strip()
    return int(text) if text.isdigit() else 0
