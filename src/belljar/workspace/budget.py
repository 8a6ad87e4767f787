"""How much a command may add to the workspace: a budget of bytes and entries.

No engine bounds what is written to a bind mount, so growth is measured while the command runs, against what was there
when it began. Bytes are those that the disk really holds: a sparse file counts what it allocates, a file with several
names once; links are never followed. Looking is paced by what it costs, so what is written between two looks can go
over; the last look comes after the end. A file that is deleted but still open is in no directory: where the disk has
lost more room than the directories explain, the sandbox's descriptors are looked through. A disk quota, where there
is one, is the hard wall.

The walk holds a descriptor per level. What it cannot see (deeper than DEPTH, or shut by its owner) cannot be bounded
either: a command that makes such a place is over its budget, and where there is one already none is begun.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

import anyio
from anyio import to_thread

from belljar.errors import BelljarError, ProtectionMissing
from belljar.limits import Limits
from belljar.sandbox.cgroup import processes

DEPTH = 128
PACE = 2  # a look is followed by a pause of so many times its length
SOONEST, LATEST = 0.03, 1.0
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Unseen(Exception):
    """A place in the workspace that cannot be measured."""


class _Enough(Exception):
    """More than the budget: no need to count the rest."""


@dataclass
class Usage:
    bytes: int = 0
    entries: int = 0
    most: Usage | None = field(default=None, compare=False)
    _linked: set[tuple[int, int]] = field(default_factory=set, compare=False)

    def add(self, status: os.stat_result) -> None:
        if status.st_nlink > 1 and not stat.S_ISDIR(status.st_mode):
            known = len(self._linked)
            self._linked.add((status.st_dev, status.st_ino))
            if len(self._linked) == known:
                self.entries += 1
                return
        self.entries += 1
        self.bytes += status.st_blocks * 512
        if self.most is not None and (self.bytes > self.most.bytes or self.entries > self.most.entries):
            raise _Enough


def measure(root: int, most: Usage | None = None) -> Usage:
    """What is below the directory `root` (a descriptor); counts no further than `most`."""
    usage = Usage(most=most)
    top = os.open(".", _DIRECTORY, dir_fd=root)
    try:
        _walk(top, usage, 1)
    except _Enough:
        pass
    finally:
        os.close(top)
    return usage


def _walk(directory: int, usage: Usage, depth: int) -> None:
    for name in _count(directory, usage):
        if depth == DEPTH:
            raise Unseen(f"directories are nested deeper than {DEPTH} levels")
        try:
            below = os.open(name, _DIRECTORY, dir_fd=directory)
        except OSError as error:
            _excuse(error, name, directory)
            continue
        try:
            _walk(below, usage, depth + 1)
        finally:
            os.close(below)


def _count(directory: int, usage: Usage) -> list[str]:
    """Counts what is in one directory; the names of those below it."""
    below = []
    with os.scandir(directory) as entries:
        for entry in entries:
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError:
                continue  # gone meanwhile
            usage.add(status)
            if stat.S_ISDIR(status.st_mode):
                below.append(entry.name)
    return below


def _excuse(error: OSError, name: str, directory: int) -> None:
    """Gone or replaced meanwhile is fine, and so is what belongs to others; what was shut against us is not."""
    try:
        owner = os.stat(name, dir_fd=directory, follow_symlinks=False).st_uid
    except OSError:
        return
    if isinstance(error, PermissionError) and owner == os.geteuid():
        raise Unseen(f"{name!r} cannot be read")


def deleted(pids: list[int], device: int) -> int:
    """Bytes in files that are deleted, but held open by these processes."""
    found = {}
    for pid in pids:
        try:
            names = os.listdir(f"/proc/{pid}/fd")
        except OSError:
            continue  # ended, or not ours to look into
        for name in names:
            with suppress(OSError):
                status = os.stat(f"/proc/{pid}/fd/{name}")
                if status.st_dev == device and status.st_nlink == 0:
                    found[status.st_ino] = status.st_blocks * 512
    return sum(found.values())


def _free(root: int) -> int:
    status = os.fstatvfs(root)
    return status.f_bfree * status.f_frsize


class Budget:
    """One command's."""

    def __init__(self, root: int, limits: Limits, init: int) -> None:
        """Blocking: looks at the whole workspace. `init` is the pid of the sandbox's PID 1 here."""
        self.exceeded = False
        self._root, self._init = root, init
        self._free = _free(root)
        try:
            start = measure(root)
        except Unseen as place:
            raise ProtectionMissing(f"workspace budget: {place}, so what happens there cannot be bounded") from None
        self._most = Usage(
            start.bytes + (1 << 62 if limits.workspace_bytes is None else limits.workspace_bytes),
            start.entries + (1 << 62 if limits.workspace_entries is None else limits.workspace_entries),
        )

    def look(self) -> Usage | None:
        """Blocking; None where it cannot be seen."""
        try:
            usage = measure(self._root, self._most)
        except Unseen:
            self.exceeded = True
            return None
        room = self._most.bytes - usage.bytes
        if self._free - _free(self._root) > room >= 0:
            room -= deleted(processes(self._init), os.fstat(self._root).st_dev)
        self.exceeded |= room < 0 or usage.entries > self._most.entries
        return usage

    async def overrun(self) -> bool:
        """The last look."""
        if not self.exceeded:
            await to_thread.run_sync(self.look)
        return self.exceeded

    async def watch(self, running: Callable[[], Awaitable[bool]], over: Callable[[], None]) -> None:
        """Look until the command has ended, or went over its budget: then call `over`."""
        last, pause = None, SOONEST
        try:
            while await running():
                began = time.monotonic()
                usage = await to_thread.run_sync(self.look)
                if self.exceeded:
                    return over()
                busy = (time.monotonic() - began) * PACE
                pause = max(busy, SOONEST if usage != last else min(LATEST, pause * 1.5))
                last = usage
                await anyio.sleep(pause)
        except (OSError, BelljarError):  # the session was closed
            return None
