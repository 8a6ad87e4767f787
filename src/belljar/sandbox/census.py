"""The sandboxes of all users of this machine, as its kernel shows them. For root.

Nothing is read that a user wrote: no run directory, no engine's records, no labels. A sandbox is the first process of a PID
namespace that has the directory of a session's sockets mounted beside its init; both only the kernel can tell. Whose
it is follows from who made its user namespace, unless it is in a group of root's, where only root puts anybody (`oci` has
the namespaces of root's sandboxes made by the sandbox's user). Where there is none (Docker's), whoever made it was as
good as root, and the owner of that directory is told.

A user can only make more of his *own* processes look like sandboxes, with ids of his choice. Ending one kills the first
process of a PID namespace, through a descriptor of it, and so nothing but what that user started there.

Not seen: sandboxes of a runtime with a kernel of its own, and those on other machines.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import stat
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from belljar import enforcement
from belljar.engines import kernel_facts
from belljar.engines.kernel_facts import cgroup_paths, number, parse_mounts
from belljar.errors import EngineError, SessionNotFound, UsageError
from belljar.layout import PRIVATE, WORKSPACE
from belljar.patience import stretched
from belljar.patterns import lazy_pattern
from belljar.records import record
from belljar.sandbox import cgroup
from belljar.syscalls import closing

END_SECONDS = 10.0
_MOST = 1 << 20
"""Bytes of a file in /proc that are read: a user can have very many mounts."""
_LINK = lazy_pattern(rf"{PRIVATE}-[0-9a-f]{{16}}/link")
_DIRECTORY = lazy_pattern(r".*/(bj-[0-9a-f]{12})/link(//deleted)?")
_ROOTS_GROUP = lazy_pattern(
    r"belljar-[0-9a-f]{8}-belljar-(bj-[0-9a-f]{12})(?:\.scope)?"
)
_GROUP = {"limit": ("pids", "pids.max", "pids.max")}
_FROZEN = {"state": ("freezer", "freezer.state", "cgroup.freeze")}
_NS_GET_USERNS, _NS_GET_PARENT, _NS_GET_OWNER_UID = 0xB701, 0xB702, 0xB704


@record
class Seen:
    id: str
    user: str
    uid: int
    pid: int
    """Of its first process, on this machine."""
    ticks: int
    """When that began, since boot: with the pid it is one process."""
    workspace: str
    """In its file system; empty: staged."""
    memory: int
    pids: int
    memory_limit: int
    pids_limit: int
    paused: bool

    @property
    def started(self) -> float:
        """Unix time."""
        since_boot = self.ticks / os.sysconf("SC_CLK_TCK")
        return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + since_boot

    def as_dict(self) -> dict[str, Any]:
        facts = asdict(self)
        del facts["ticks"]
        return {**facts, "started": round(self.started, 1)}


def everybody() -> list[Seen]:
    """Oldest first."""
    if os.geteuid() != 0:
        raise UsageError("only root sees the sandboxes of all users: use sudo")
    found = [each for pid in _processes() if (each := look(pid)) is not None]
    return sorted(found, key=lambda each: each.ticks)


def find(id: str, user: str = "") -> Seen:
    """The sandbox of that id, which a user may have chosen: it must be the only one."""
    found = [each for each in everybody() if each.id == id and user in ("", each.user)]
    if not found:
        whose = f" of {user}" if user else ""
        raise SessionNotFound(
            f"no sandbox {id}{whose} runs here; `belljar ps --all` lists them"
        )
    if len({each.uid for each in found}) > 1:
        names = ", ".join(sorted(each.user for each in found))
        raise UsageError(
            f"sandboxes of several users have the id {id} ({names}): name the user with --user"
        )
    return found[0]


def end(seen: Seen) -> None:
    """Kill it, and wait until it is gone."""
    with suppress(ProcessLookupError), closing(os.pidfd_open(seen.pid)) as process:
        now = look(seen.pid)
        if now is None or (now.id, now.uid, now.ticks) != (
            seen.id,
            seen.uid,
            seen.ticks,
        ):
            return  # it has ended, and the number may be another process's
        signal.pidfd_send_signal(process, signal.SIGKILL)
        if seen.paused:
            _thaw(seen.pid)
        poll = select.poll()
        poll.register(process, select.POLLIN)
        if not poll.poll(stretched(END_SECONDS) * 1000):
            raise EngineError(f"{seen.id} was killed, but does not end")


def look(pid: int) -> Seen | None:
    """The sandbox whose first process this is; None: it is no such process."""
    status = kernel_facts.parse_status(_read(f"/proc/{pid}/status"))
    if status.get("NSpid", "").split()[1:][-1:] != ["1"]:
        return None
    try:
        mounts = parse_mounts(_whole_lines(_read(f"/proc/{pid}/mountinfo")))
        links = [
            (point, found[1])
            for point, each in mounts.items()
            if _LINK.fullmatch(point) and (found := _DIRECTORY.fullmatch(each.root))
        ]
        if len(links) != 1:
            return None
        link, id = links[0]
        uid = 0 if _is_in_roots_group(pid, id) else _owner(pid, link)
        ticks = kernel_facts.start_time(pid)
    except (OSError, ValueError):
        return None  # it has just ended
    if ticks is None:
        return None
    used = cgroup.usage(pid)
    limits, _ = kernel_facts.gather_cgroup(_read(f"/proc/{pid}/cgroup"))
    place = mounts.get(WORKSPACE)
    return Seen(
        id=id,
        user=enforcement.user_name(uid),
        uid=uid,
        pid=pid,
        ticks=ticks,
        workspace=place.root if place and place.kind != "overlay" else "",
        memory=used.get("memory", 0),
        pids=used.get("pids", 0),
        memory_limit=number(limits.get("memory")) or 0,
        pids_limit=number(limits.get("pids")) or 0,
        paused=_is_frozen(pid),
    )


def _processes() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdecimal())


def _is_in_roots_group(pid: int, id: str) -> bool:
    """Whether root's engine made its control group, by name and owner. A login's may be root's too, by another name."""
    paths, _ = cgroup_paths(_read(f"/proc/{pid}/cgroup"), _GROUP)
    group = os.path.dirname(paths.get("limit", ""))
    match = _ROOTS_GROUP.fullmatch(os.path.basename(group))
    return match is not None and match[1] == id and os.lstat(group).st_uid == 0


def _owner(pid: int, link: str) -> int:
    """The user who made the outermost user namespace that its PID namespace is in."""
    top = os.stat("/proc/self/ns/user").st_ino
    with closing(os.open(f"/proc/{pid}/ns/pid", os.O_RDONLY | os.O_CLOEXEC)) as pids:
        space, uid = fcntl.ioctl(pids, _NS_GET_USERNS), None
    while True:
        with closing(space):
            if os.fstat(space).st_ino == top:
                break
            packed = fcntl.ioctl(space, _NS_GET_OWNER_UID, bytes(4))
            uid = struct.unpack("I", packed)[0]
            space = fcntl.ioctl(space, _NS_GET_PARENT)
    if uid is not None:
        return int(uid)
    # Without a user namespace of its own only root's power has put that mount there.
    status = os.lstat(f"/proc/{pid}/root{link}")
    if not stat.S_ISDIR(status.st_mode):
        raise ValueError("that is no directory of sockets")
    return status.st_uid


def _is_frozen(pid: int) -> bool:
    paths, _ = cgroup_paths(_read(f"/proc/{pid}/cgroup"), _FROZEN)
    state = (kernel_facts.read(paths.get("state", "")) or "").strip()
    return state in ("FROZEN", "FREEZING", "1")


def _thaw(pid: int) -> None:
    paths, unified = cgroup_paths(_read(f"/proc/{pid}/cgroup"), _FROZEN)
    for path in paths.values():
        with suppress(OSError), open(path, "w") as file:
            file.write("0" if unified else "THAWED")


def _read(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file.read(_MOST).decode(errors="replace")
    except OSError:
        return ""


def _whole_lines(text: str) -> str:
    return text if len(text) < _MOST else text.rpartition("\n")[0]
