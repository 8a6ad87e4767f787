"""A sandbox's control group: its current usage (empty if that cannot be read), and a limit that no engine sets.

With version 2 the buffers of sockets count as memory of the group. Version 1 counts them apart, and only if there is a
limit: without one a sandbox could take all memory that the machine has for sockets (net.ipv4.tcp_mem and udp_mem),
gigabytes beyond its own limit, and stall everybody's connections. No runtime sets that limit (runc 1.1 ignores it), so
we do, if we may write to the group.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from belljar.engines.kernel_facts import cgroup_files, cgroup_paths, read

# Our name → cgroup v1 controller and file, cgroup v2 file.
_USAGE = {
    "memory": ("memory", "memory.usage_in_bytes", "memory.current"),
    "peak_memory": ("memory", "memory.max_usage_in_bytes", "memory.peak"),
    "pids": ("pids", "pids.current", "pids.current"),
}
_CPU = {"cpu": ("cpuacct", "cpuacct.usage", "cpu.stat")}
_SOCKETS = {"limit": ("memory", "memory.kmem.tcp.limit_in_bytes", "")}
_EVENTS = {"events": ("memory", "memory.oom_control", "memory.events")}


def usage(pid: int) -> dict[str, int]:
    """Bytes of memory and number of processes of the group that process `pid` is in."""
    texts, _ = cgroup_files(read(f"/proc/{pid}/cgroup") or "", _USAGE)
    return {name: int(text) for name, text in texts.items() if text.strip().isdigit()}


def cpu_time(pid: int) -> float | None:
    """Seconds of processor time that its group has used; None if that cannot be read."""
    texts, unified = cgroup_files(read(f"/proc/{pid}/cgroup") or "", _CPU)
    words = texts.get("cpu", "").split()
    if unified:  # `usage_usec N` is the first line
        return int(words[1]) / 1e6 if len(words) > 1 and words[1].isdigit() else None
    return int(words[0]) / 1e9 if words and words[0].isdigit() else None


def oom_kills(pid: int) -> int:
    """How many of its processes were killed for lack of memory."""
    texts, _ = cgroup_files(read(f"/proc/{pid}/cgroup") or "", _EVENTS)
    lines = texts.get("events", "").splitlines()
    return next(
        (int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0
    )


def limit_sockets(pid: int, most: int) -> None:
    """Must be called before anything runs in the sandbox: existing sockets are not counted."""
    paths, _ = cgroup_paths(read(f"/proc/{pid}/cgroup") or "", _SOCKETS)
    for path in paths.values():
        with suppress(OSError):
            Path(path).write_text(str(most))
