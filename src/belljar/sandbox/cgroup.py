"""A sandbox's control group: what it uses right now (empty where that cannot be read), and a limit that no engine sets.

What the buffers of sockets take is part of a group's memory with version 2. Version 1 counts it apart, and only where
there is a limit: without one, a sandbox could take all that the whole machine has for sockets (net.ipv4.tcp_mem and
udp_mem), gigabytes past its own limit, and nobody's connections would get on. No runtime sets that limit (runc 1.1
takes it and leaves it out), and only who may write to the group can.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from belljar.engines.kernel_facts import cgroup_files, cgroup_paths, read

# What we call it → (cgroup v1 controller and file, cgroup v2 file).
_USAGE = {
    "memory": ("memory", "memory.usage_in_bytes", "memory.current"),
    "peak_memory": ("memory", "memory.max_usage_in_bytes", "memory.peak"),
    "pids": ("pids", "pids.current", "pids.current"),
}
_SOCKETS = {"limit": ("memory", "memory.kmem.tcp.limit_in_bytes", "")}
_EVENTS = {"events": ("memory", "memory.oom_control", "memory.events")}


def usage(pid: int) -> dict[str, int]:
    """Bytes of memory and number of processes of the group that process `pid` is in."""
    found, _ = cgroup_files(read(f"/proc/{pid}/cgroup") or "", _USAGE)
    return {name: int(text) for name, text in found.items() if text.strip().isdigit()}


def oom_kills(pid: int) -> int:
    """How many of its processes were killed for lack of memory."""
    found, _ = cgroup_files(read(f"/proc/{pid}/cgroup") or "", _EVENTS)
    lines = found.get("events", "").splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)


def limit_sockets(pid: int, most: int) -> None:
    """Before anything runs in it: sockets that are there already are not counted."""
    found, _ = cgroup_paths(read(f"/proc/{pid}/cgroup") or "", _SOCKETS)
    for path in found.values():
        with suppress(OSError):
            Path(path).write_text(str(most))
