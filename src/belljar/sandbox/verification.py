"""Is what was asked for really in force? The engine's word, and the kernel's where it can be seen.

Ask only once the init has said hello: until its exec the process is still the engine's, and the seccomp
filter is the last thing to be put on it.

`gather` reads a few files of /proc and of the cgroups; `missing` judges facts and is pure; `verify` stops the
run. A file that cannot be read (an engine elsewhere, a caller who is not root) is no fact: there the engine's
word counts.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from belljar.engines.spec import ContainerSpec
from belljar.errors import ProtectionMissing

# Of the engine's HostConfig; an empty list, null, "" and 0 all mean "nothing".
ENGINE_ITEMS = (
    "Memory", "MemorySwap", "NanoCpus", "PidsLimit", "ShmSize", "ReadonlyRootfs", "Privileged", "CapAdd",
    "CapDrop", "SecurityOpt", "NetworkMode", "IpcMode", "PidMode", "UTSMode", "CgroupnsMode", "UsernsMode",
    "OomKillDisable", "MaskedPaths", "ReadonlyPaths", "Devices", "DeviceRequests", "DeviceCgroupRules",
    "GroupAdd", "Binds", "VolumesFrom", "PortBindings", "ExtraHosts", "Sysctls", "Ulimits", "AutoRemove",
)  # fmt: skip

# Engines print these each in their own way; where the kernel has been asked its answer is enough.
KERNEL_KNOWS = {"CapAdd", "CapDrop", "Ulimits"}
EXEC_SECONDS = 1.0  # from the engine's answer to the exec of the init; takes about a millisecond
CAPABILITY_SETS = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")
NAMESPACES = ("net", "mnt", "pid", "ipc", "uts", "cgroup")
_LIMIT_NAMES = {
    "core": "Max core file size",
    "nofile": "Max open files",
    "fsize": "Max file size",
    "memlock": "Max locked memory",
}
# Ours → (cgroup v1 controller and file, cgroup v2 file).
_CGROUP_FILES = {
    "memory": ("memory", "memory.limit_in_bytes", "memory.max"),
    "swap": ("memory", "memory.memsw.limit_in_bytes", "memory.swap.max"),
    "pids": ("pids", "pids.max", "pids.max"),
    "quota": ("cpu", "cpu.cfs_quota_us", "cpu.max"),
    "period": ("cpu", "cpu.cfs_period_us", "cpu.max"),
}


@dataclass(frozen=True)
class Facts:
    """What the kernel says of a container's PID 1; an item that could not be read is absent or None."""

    status: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, str] = field(default_factory=dict)
    """Hard limits by their name in /proc/PID/limits."""
    cgroup: Mapping[str, str] = field(default_factory=dict)
    unified: bool = False
    """Whether the cgroup values are version 2's."""
    routes: int | None = None
    shared: tuple[str, ...] = ()
    """Namespaces that are the host's own."""
    root_writable: bool | None = None
    host_swap: bool = True


def verify(spec: ContainerSpec, inspect: Mapping[str, Any], init_pid: int | None) -> None:
    """Raise ProtectionMissing that names each protection which is not in force."""
    if init_pid:
        _await_init(init_pid)
    facts = gather(init_pid) if init_pid else None
    if lacking := missing(spec, inspect, facts):
        raise ProtectionMissing("not in force, so nothing was run: " + "; ".join(lacking))


def _await_init(pid: int) -> None:
    deadline = time.monotonic() + EXEC_SECONDS
    while _read(f"/proc/{pid}/comm") not in (None, "init\n") and time.monotonic() < deadline:
        time.sleep(0.001)


def missing(spec: ContainerSpec, inspect: Mapping[str, Any], facts: Facts | None) -> list[str]:
    items = [item for item in ENGINE_ITEMS if facts is None or item not in KERNEL_KNOWS]
    lacking = [*_against_engine(spec, inspect, items)]
    if facts is not None:
        lacking += [
            *_privileges(spec, facts),
            *_limits(spec, facts),
            *_cgroup(spec, facts),
            *_surroundings(spec, facts),
        ]
    return lacking


def gather(pid: int) -> Facts | None:
    """One pass over /proc; None where the process cannot be seen at all."""
    status = _read(f"/proc/{pid}/status")
    if status is None:
        return None
    cgroup, unified = _gather_cgroup(_read(f"/proc/{pid}/cgroup") or "")
    routes = _read(f"/proc/{pid}/net/route")
    return Facts(
        status=parse_status(status),
        limits=parse_limits(_read(f"/proc/{pid}/limits") or ""),
        cgroup=cgroup,
        unified=unified,
        routes=None if routes is None else max(0, len(routes.splitlines()) - 1),
        shared=tuple(name for name in NAMESPACES if _is_ours(pid, name)),
        root_writable=_root_writable(pid),
        host_swap=len((_read("/proc/swaps") or "\n\n").splitlines()) > 1,
    )


def parse_status(text: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in text.splitlines())
    return {name: value.strip() for name, _, value in pairs}


def parse_limits(text: str) -> dict[str, str]:
    return {line[:26].strip(): line[47:68].strip() for line in text.splitlines()[1:]}


def _against_engine(spec: ContainerSpec, inspect: Mapping[str, Any], items: list[str]) -> Iterator[str]:
    body = spec.create_body()
    found, asked = inspect.get("HostConfig") or {}, body["HostConfig"]
    for item in items:
        if _settled(found.get(item)) != _settled(asked.get(item)):
            yield f"{item} (asked {_brief(asked.get(item))}, the engine has {_brief(found.get(item))})"
    user = (inspect.get("Config") or {}).get("User")
    if user != spec.user:
        yield f"User (asked {spec.user}, the engine has {user})"


def _privileges(spec: ContainerSpec, facts: Facts) -> Iterator[str]:
    status = facts.status
    uid, gid = spec.user.split(":")
    if not spec.userns and set(status.get("Uid", "").split()) != {uid}:
        yield f"user id (asked {uid}, the kernel has {status.get('Uid')})"
    if "0" in status.get("Uid", "0").split():
        yield "a user id other than 0"
    if not spec.userns and not set((status.get("Gid", "") + " " + status.get("Groups", "")).split()) <= {gid}:
        yield f"group id (asked {gid}, the kernel has {status.get('Gid')} and {status.get('Groups')})"
    for name in CAPABILITY_SETS:
        if int(status.get(name, "1"), 16):
            yield f"no capabilities ({name} is {status.get(name)})"
    if status.get("NoNewPrivs") != "1":
        yield "no-new-privileges"
    if status.get("Seccomp") != "2":
        yield "the seccomp filter"


def _limits(spec: ContainerSpec, facts: Facts) -> Iterator[str]:
    for item in spec.create_body()["HostConfig"]["Ulimits"]:
        found = facts.limits.get(_LIMIT_NAMES[item["Name"]])
        if found is not None and (not found.isdigit() or int(found) > item["Hard"]):
            yield f"ulimit {item['Name']} (asked {item['Hard']}, the kernel has {found})"


def _cgroup(spec: ContainerSpec, facts: Facts) -> Iterator[str]:
    limits, values = spec.limits, facts.cgroup
    if not _at_most(values.get("memory"), limits.memory):
        yield f"memory limit (asked {limits.memory}, the kernel has {values['memory']})"
    swap_allowed = 0 if facts.unified else limits.memory
    if facts.host_swap and not _at_most(values.get("swap", "none"), swap_allowed):
        yield "no swap (the kernel does not account for it or allows it)"
    if not _at_most(values.get("pids"), limits.pids):
        yield f"process limit (asked {limits.pids}, the kernel has {values['pids']})"
    quota, period = values.get("quota"), values.get("period")
    if quota and period and not _at_most(quota, round(limits.cpus * int(period)) + 1):
        yield f"cpu limit (asked {limits.cpus} cores, the kernel has {quota}/{period})"


def _surroundings(spec: ContainerSpec, facts: Facts) -> Iterator[str]:
    numbers = facts.status.get("NSpid", "").split()
    if len(numbers) < 2 or numbers[-1] != "1":
        yield "a process namespace of its own"
    for name in facts.shared:
        yield f"a {name} namespace of its own"
    if spec.network == "none" and facts.routes:
        yield "no network (there are routes)"
    if facts.root_writable:
        yield "a read-only root file system"


def _at_most(value: str | None, bound: int) -> bool:
    """True for a value within the bound, and for one that could not be read (None)."""
    return value is None or (value.isdigit() and int(value) <= bound)


def _gather_cgroup(membership: str) -> tuple[dict[str, str], bool]:
    paths = {}
    for line in membership.splitlines():
        _, controllers, path = line.split(":", 2)
        paths.update(dict.fromkeys(controllers.split(","), path))
    mounts = _cgroup_mounts()
    unified = "memory" not in paths
    values = {}
    for name, (controller, first, second) in _CGROUP_FILES.items():
        key = "" if unified else controller
        if key in mounts and key in paths:
            text = _read(f"{mounts[key]}{paths[key]}/{second if unified else first}")
            if text is not None:
                values[name] = text.split()[-1 if name == "period" else 0]
    return values, unified


@cache
def _cgroup_mounts() -> dict[str, str]:
    """Controller ("" for version 2) → where its whole hierarchy is mounted."""
    found = {}
    for line in (_read("/proc/self/mountinfo") or "").splitlines():
        left, _, right = line.partition(" - ")
        kind, _, options = right.split(" ", 2)
        root, point = left.split()[3:5]
        if root == "/" and kind == "cgroup2":
            found[""] = point
        elif root == "/" and kind == "cgroup":
            found.update(dict.fromkeys(options.split(" ")[-1].split(","), point))
    return found


def _is_ours(pid: int, namespace: str) -> bool:
    try:
        return os.readlink(f"/proc/{pid}/ns/{namespace}") == os.readlink(f"/proc/self/ns/{namespace}")
    except OSError:
        return False


def _root_writable(pid: int) -> bool | None:
    try:
        return not os.statvfs(f"/proc/{pid}/root").f_flag & os.ST_RDONLY
    except OSError:
        return None


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text()
    except OSError:
        return None


def _settled(value: Any) -> Any:
    if isinstance(value, list):
        return sorted((_settled(item) for item in value), key=repr) or None
    return value or None


def _brief(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else text[:57] + "..."
