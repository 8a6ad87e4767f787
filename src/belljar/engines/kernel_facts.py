"""What the kernel reports about a sandbox's PID 1, whichever engine made it, from /proc and its cgroups.

This machine's kernel is asked (`gather`); where it does not run the sandbox, the init inside reads the same files and
reports them (`testified`), and what it sends is parsed as hostile text. A file that cannot be read (a remote engine, a
caller who is not root) leaves its fact empty.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import field, replace
from functools import cache
from typing import TypeVar

from belljar.engines.spec import Protections
from belljar.records import record

N = TypeVar("N", int, float)
NAMESPACES = ("net", "mnt", "pid", "ipc", "uts", "cgroup", "user")
# Our name → (cgroup v1 controller, its v1 file, its v2 file).
_CGROUP_FILES = {
    "memory": ("memory", "memory.limit_in_bytes", "memory.max"),
    "swap": ("memory", "memory.memsw.limit_in_bytes", "memory.swap.max"),
    "pids": ("pids", "pids.max", "pids.max"),
    "quota": ("cpu", "cpu.cfs_quota_us", "cpu.max"),
    "period": ("cpu", "cpu.cfs_period_us", "cpu.max"),
}


@record
class MountFact:
    """One line of mountinfo."""

    device: str
    """major:minor."""
    root: str
    """The part of the file system that is mounted."""
    read_only: bool
    kind: str
    options: str = ""
    """Of the file system."""


@record
class KernelFacts:
    """An item that could not be read is absent, empty or None."""

    status: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, str] = field(default_factory=dict)
    """Hard limits by their name in /proc/PID/limits."""
    cgroup: Mapping[str, str] = field(default_factory=dict)
    unified: bool = False
    """Whether the cgroup values come from version 2."""
    routes: int | None = None
    shared: frozenset[str] | None = None
    """Namespaces that it shares with the host."""
    mounts: Mapping[str, MountFact] = field(default_factory=dict)
    """The topmost mount at each mount point."""
    executable: tuple[int, int] | None = None
    """Device and inode of the program."""
    host_swap: bool = True
    inside: bool = False
    """Reported by the init: ids and paths are the sandbox's, and nothing is said of this machine."""
    own_kernel: bool = False
    """Reported by the init in a kernel of its runtime's: limits and masked paths there are not this machine's."""
    uid_map: str = ""
    """Reported by the init: its user namespace."""
    present: Mapping[str, bool] | None = None
    """Reported by the init: whether something is at a path. None: ask this machine."""


def testified(files: Mapping[str, str], present: Mapping[str, bool]) -> KernelFacts:
    """What an init has read. ValueError if a file has not the kernel's form."""
    try:
        return _testified(files, present)
    except IndexError as error:
        raise ValueError(str(error)) from error


def _testified(files: Mapping[str, str], present: Mapping[str, bool]) -> KernelFacts:
    cgroup, unified = _inner_cgroup(files)
    routes = None
    if "/proc/net/route" in files:
        beyond = [
            line
            for line in files.get("/proc/net/ipv6_route", "").splitlines()
            if line.split()[-1] != "lo"
        ]
        routes = max(0, len(files["/proc/net/route"].splitlines()) - 1) + len(beyond)
    swaps = files.get("/proc/swaps", "")
    return KernelFacts(
        status=parse_status(files.get("/proc/self/status", "")),
        limits=parse_limits(files.get("/proc/self/limits", "")),
        cgroup=cgroup,
        unified=unified,
        routes=routes,
        mounts=parse_mounts(files.get("/proc/self/mountinfo", "")),
        host_swap=len(swaps.splitlines())
        != 1,  # a head without rows; empty: it is masked
        inside=True,
        uid_map=files.get("/proc/self/uid_map", ""),
        present=present,
    )


def _inner_cgroup(files: Mapping[str, str]) -> tuple[dict[str, str], bool]:
    """As the sandbox sees its own group: at the top of each hierarchy."""
    unified = "/sys/fs/cgroup/memory.max" in files
    found = {}
    for name, (controller, first, second) in _CGROUP_FILES.items():
        text = files.get(
            f"/sys/fs/cgroup/{second}"
            if unified
            else f"/sys/fs/cgroup/{controller}/{first}",
            "",
        ).split()
        if text:
            found[name] = text[-1 if name == "period" else 0]
    return found, unified


def gather(pid: int) -> KernelFacts | None:
    """None: the process is not visible."""
    status = read(f"/proc/{pid}/status")
    if status is None:
        return None
    cgroup, unified = gather_cgroup(read(f"/proc/{pid}/cgroup") or "")
    routes = read(f"/proc/{pid}/net/route")
    return KernelFacts(
        status=parse_status(status),
        limits=parse_limits(read(f"/proc/{pid}/limits") or ""),
        cgroup=cgroup,
        unified=unified,
        routes=None if routes is None else max(0, len(routes.splitlines()) - 1),
        shared=_shared(pid),
        mounts=parse_mounts(read(f"/proc/{pid}/mountinfo") or ""),
        executable=executable(pid),
        host_swap=len((read("/proc/swaps") or "\n\n").splitlines()) > 1,
    )


def executable(pid: int) -> tuple[int, int] | None:
    try:
        status = os.stat(f"/proc/{pid}/exe")
    except OSError:
        return None
    return status.st_dev, status.st_ino


def parse_status(text: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in text.splitlines())
    return {name: value.strip() for name, _, value in pairs}


def parse_limits(text: str) -> dict[str, str]:
    return {line[:26].strip(): line[47:68].strip() for line in text.splitlines()[1:]}


def parse_mounts(text: str) -> dict[str, MountFact]:
    mounts = {}
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        _, _, device, root, point, options = left.split(" ")[:6]
        kind, _, super_options = right.split(" ", 2)
        read_only = "ro" in options.split(",") or "ro" in super_options.split(",")
        mounts[_unescaped(point)] = MountFact(
            device, _unescaped(root), read_only, kind, super_options
        )
    return mounts


def place_of(path: str) -> tuple[str, str] | None:
    """The device of a path of ours and its place in that file system, as mountinfo shows them for a bind mount."""
    mounts = parse_mounts(read("/proc/self/mountinfo") or "")
    above = [
        point
        for point in mounts
        if point == "/" or path == point or path.startswith(point + "/")
    ]
    if not above:
        return None
    point = max(above, key=len)
    rest = path[len(point) :].strip("/") if point != "/" else path.strip("/")
    return mounts[point].device, "/".join(
        [mounts[point].root.rstrip("/"), *([rest] if rest else [])]
    ) or "/"


def _unescaped(path: str) -> str:
    for code, character in (
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ):
        path = path.replace(code, character)
    return path


def gather_cgroup(membership: str) -> tuple[dict[str, str], bool]:
    texts, unified = cgroup_files(membership, _CGROUP_FILES)
    return {
        name: text.split()[-1 if name == "period" else 0]
        for name, text in texts.items()
    }, unified


def cgroup_files(
    membership: str, files: Mapping[str, tuple[str, str, str]]
) -> tuple[dict[str, str], bool]:
    """The contents of these files in a process's cgroups, and whether they come from version 2."""
    paths, unified = cgroup_paths(membership, files)
    texts = {name: read(path) for name, path in paths.items()}
    return {name: text for name, text in texts.items() if text is not None}, unified


def cgroup_paths(
    membership: str, files: Mapping[str, tuple[str, str, str]]
) -> tuple[dict[str, str], bool]:
    """Where they are; a file that a version does not have is not there."""
    paths = {}
    for line in membership.splitlines():
        _, controllers, path = line.split(":", 2)
        paths.update(dict.fromkeys(controllers.split(","), path))
    mounts = _cgroup_mounts()
    unified = "memory" not in paths
    found = {}
    for name, (controller, first, second) in files.items():
        key, file = ("", second) if unified else (controller, first)
        if file and key in mounts and key in paths:
            found[name] = f"{mounts[key]}{paths[key]}/{file}"
    return found, unified


def limited_by_its_group(claimed: Protections, pid: int) -> Protections:
    """An engine's claims, but memory, pids and cpus as the control group of `pid` limits them; None if it does not.

    For a sandbox with a kernel of its own: nothing else that is in force there can be seen from the host.
    """
    found = gather_cgroup(read(f"/proc/{pid}/cgroup") or "")[0]
    quota, period = number(found.get("quota")), number(found.get("period"))
    return replace(
        claimed,
        memory=_at_most(number(found.get("memory")), claimed.memory),
        pids=_at_most(number(found.get("pids")), claimed.pids),
        cpus=_at_most(quota / period if quota and period else None, claimed.cpus),
    )


def number(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() else None


def _at_most(found: N | None, claimed: N | None) -> N | None:
    """The claim if the kernel has that or less, since it rounds down; else what the kernel has."""
    return claimed if found and claimed and found <= claimed else found


@cache
def _cgroup_mounts() -> dict[str, str]:
    """Controller ("" for version 2) → the mount point of its whole hierarchy."""
    points = {}
    for point, mount in parse_mounts(read("/proc/self/mountinfo") or "").items():
        if mount.root == "/" and mount.kind in ("cgroup", "cgroup2"):
            points.update(
                dict.fromkeys(
                    [""] if mount.kind == "cgroup2" else mount.options.split(","), point
                )
            )
    return points


def _shared(pid: int) -> frozenset[str] | None:
    try:
        return frozenset(
            name
            for name in NAMESPACES
            if _namespace(pid, name) == _namespace("self", name)
        )
    except OSError:
        return None


def _namespace(pid: int | str, name: str) -> str:
    return os.readlink(f"/proc/{pid}/ns/{name}")


def read(path: str) -> str | None:
    """Users choose the names of processes and control groups in it: any bytes."""
    try:
        with open(path, errors="surrogateescape") as file:
            return file.read()
    except OSError:
        return None


def boot_id() -> str:
    return (read("/proc/sys/kernel/random/boot_id") or "").strip()


def start_time(pid: int) -> int | None:
    """When a living process started, in ticks since boot. Pid and start time together identify one process."""
    fields = (read(f"/proc/{pid}/stat") or "").rpartition(")")[2].split()
    return int(fields[19]) if fields and fields[0] not in "ZX" else None
