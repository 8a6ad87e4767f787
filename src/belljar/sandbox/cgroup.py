"""What a sandbox uses right now, read off its control group. Empty where that cannot be read."""

from __future__ import annotations

from belljar.engines.kernel_facts import cgroup_files, read

# What we call it → (cgroup v1 controller and file, cgroup v2 file).
_USAGE = {
    "memory": ("memory", "memory.usage_in_bytes", "memory.current"),
    "peak_memory": ("memory", "memory.max_usage_in_bytes", "memory.peak"),
    "pids": ("pids", "pids.current", "pids.current"),
}
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
