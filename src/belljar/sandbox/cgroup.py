"""What a sandbox uses right now, read off its control group. Empty where that cannot be read."""

from __future__ import annotations

from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
# What we call it → (cgroup v1 controller and file, cgroup v2 file).
_FILES = {
    "memory": ("memory", "memory.usage_in_bytes", "memory.current"),
    "peak_memory": ("memory", "memory.max_usage_in_bytes", "memory.peak"),
    "pids": ("pids", "pids.current", "pids.current"),
}


def usage(pid: int) -> dict[str, int]:
    """Bytes of memory and number of processes of the group that process `pid` is in."""
    groups = _groups(pid)
    found = {name: _read(groups, *places) for name, places in _FILES.items()}
    return {name: value for name, value in found.items() if value is not None}


def oom_kills(pid: int) -> int:
    """How many of its processes were killed for lack of memory."""
    text = _text(_groups(pid), "memory", "memory.oom_control", "memory.events") or ""
    return next((int(line.split()[1]) for line in text.splitlines() if line.startswith("oom_kill ")), 0)


def _groups(pid: int) -> dict[str, str]:
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    except OSError:
        return {}
    return {names: path for _, names, path in (line.split(":", 2) for line in lines)}


def _read(groups: dict[str, str], controller: str, first: str, second: str) -> int | None:
    text = _text(groups, controller, first, second)
    return int(text) if text and text.strip().isdigit() else None


def _text(groups: dict[str, str], controller: str, first: str, second: str) -> str | None:
    path = next((path for names, path in groups.items() if controller in names.split(",")), None)
    old, new = f"{controller}/{path}/{first}", f"{groups.get('', '')}/{second}"
    try:
        return (_ROOT / (new if path is None else old).lstrip("/").replace("//", "/")).read_text()
    except (OSError, ValueError):
        return None
