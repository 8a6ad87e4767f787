"""The limits of one sandbox. Each field has its own documentation. A size is text such as "512m" or "1g", or bytes.

Defaults grow with the machine's memory and processors. A given value is used as it is or refused, never changed.

This is a record that checks itself, not a pydantic model: importing pydantic takes longer than starting a sandbox.
"""

from __future__ import annotations

import os
import re
from dataclasses import asdict, field, fields
from functools import cache
from math import inf, isfinite
from typing import TYPE_CHECKING, Any

from belljar.errors import UsageError, suggestion
from belljar.patterns import lazy_pattern
from belljar.records import record

Size = int | str
_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SIZE = lazy_pattern(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)


def parse_size(value: Any) -> int:
    """Bytes from `"512m"`, `"1.5 GiB"` or a plain number."""
    if isinstance(value, bool):
        raise ValueError("a size is a number of bytes or text such as '512m'")
    if isinstance(value, int):
        return value
    match = _SIZE.fullmatch(str(value).strip())
    if match is None:
        raise ValueError(f"{value!r} is not a size; write for example '512m' or '1g'")
    return int(float(match[1]) * _UNITS[match[2].lower()])


class LimitsError(UsageError, ValueError):
    code = "limits_invalid"


def _size(default: int | None, least: int = 0, most: float = inf) -> Any:
    return field(
        default=default, metadata={"read": parse_size, "least": least, "most": most}
    )


def _number(
    default: float | None, least: float, most: float = inf, read: type = int
) -> Any:
    return field(default=default, metadata={"read": read, "least": least, "most": most})


ENOUGH_MEMORY = 2 << 30
IN_MEMORY = ("tmp", "home", "shm")
IN_MEMORY_SHARE = (
    7 / 8
)  # of the memory limit that files in memory may take; commands need the rest
INODE_SIZE = 4 << 10  # estimated memory of an empty file, with its name


@cache
def machine_memory() -> int:
    """The memory of this machine, or less if our own control group has a limit."""
    bounds = [
        _number_in("/sys/fs/cgroup/memory.max"),
        _number_in("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
    ]
    return min(
        os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), *filter(None, bounds)
    )


def _number_in(path: str) -> int:
    try:
        with open(path) as file:
            return int(file.read())
    except (OSError, ValueError):
        return 1 << 62


def machine_cpus() -> int:
    return len(os.sched_getaffinity(0))


def default_memory() -> int:
    """2 GiB, or an eighth of a larger machine; never more than half of it."""
    memory = min(max(ENOUGH_MEMORY, machine_memory() // 8), machine_memory() // 2)
    return max(64 << 20, memory >> 20 << 20)


@record
class Limits:
    """The limits of one sandbox: `belljar.Limits(memory="4g", cpus=2, tmp="1g")`."""

    memory: int = _size(None, 16 << 20)
    """Memory of all processes together, without swap. Default: 2 GiB, or an eighth of a larger machine."""
    cpus: float = _number(None, 0.01, 1024, float)
    """Processor time, in cores. Default: all cores of the machine."""
    pids: int = _number(1024, 16, 4_194_304)
    """Processes and threads alive at once."""
    shm: int = _size(None)
    """Size of /dev/shm, which is in memory. Default: an eighth of the memory."""
    tmp: int = _size(None, 1 << 20)
    """Size of /tmp. Default: on the volume, as large as `disk`; without a volume in memory, a quarter of it."""
    home: int = _size(None, 1 << 20)
    """Size of the home directory. Default: as for `tmp`."""
    disk: int | None = _size(None)
    """Size of a volume on disk for /tmp, home and a writable root. 0: no volume, they are in memory; the default if
    `tmp`, `home` or `inodes` is given. None: 4 GiB where a volume is possible."""
    inodes: int = _number(None, 1024)
    """Files and directories in each of /tmp and the home directory. Default: one for every 16 KiB of memory."""
    nofile: int = _number(4096, 64, 1_048_576)
    """Open descriptors per process."""
    fsize: int = _size(16 << 30, 1 << 20)
    """The largest file that can be written."""
    memlock: int = _size(64 << 10)
    """Memory that a process may lock."""
    output: int = _size(4 << 20, 4 << 10)
    """How much of each output stream a result keeps (head and tail)."""
    shell_output: int = _size(1 << 20, 4 << 10, 64 << 20)
    """How much of each output stream a background shell keeps (the newest)."""

    if (
        TYPE_CHECKING
    ):  # what the constructor takes; the fields have the types after checking

        def __init__(
            self,
            *,
            memory: Size | None = None,
            cpus: float | str | None = None,
            pids: int | str = 1024,
            shm: Size | None = None,
            tmp: Size | None = None,
            home: Size | None = None,
            disk: Size | None = None,
            inodes: int | str | None = None,
            nofile: int | str = 4096,
            fsize: Size = 16 << 30,
            memlock: Size = 64 << 10,
            output: Size = 4 << 20,
            shell_output: Size = 1 << 20,
        ) -> None: ...

    else:

        def __init__(self, **options: Any) -> None:
            self._read(options)

    def _read(self, options: dict[str, Any]) -> None:
        names = [limit.name for limit in fields(self)]
        for name in options:
            if name not in names:
                raise LimitsError(
                    f"there is no limit {name!r}; {suggestion(name, names)}"
                )
        explicit = {name for name, value in options.items() if value is not None}
        for limit in fields(self):
            value = options[limit.name] if limit.name in explicit else limit.default
            object.__setattr__(
                self, limit.name, value if value is None else checked(limit.name, value)
            )
        if "disk" not in options and explicit & {"tmp", "home", "inodes"}:
            object.__setattr__(self, "disk", 0)
        self._set_defaults(explicit)
        self._refuse_too_much_in_memory()

    def _set_defaults(self, explicit: set[str]) -> None:
        """Limits that were not given depend on the machine, and on those that were."""

        def default(name: str, value: float) -> None:
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)

        default("memory", default_memory())
        default("cpus", float(machine_cpus()))
        default("inodes", max(1024, self.memory // (4 * INODE_SIZE)))
        left = max(
            0,
            self.memory
            - sum(getattr(self, name) for name in IN_MEMORY if name in explicit),
        )
        default("tmp", self.disk or left // 4)
        default("home", self.disk or left // 4)
        default("shm", left // 8)

    def on_volume(self, name: str) -> bool:
        """Whether "tmp" or "home" is on the volume, if there is one."""
        return self.disk is None or bool(getattr(self, name) == self.disk)

    def _refuse_too_much_in_memory(self) -> None:
        in_memory = [
            name for name in IN_MEMORY if not self.disk or not self.on_volume(name)
        ]
        total, room = (
            sum(getattr(self, name) for name in in_memory),
            int(self.memory * IN_MEMORY_SHARE),
        )
        if total > room:
            raise LimitsError(
                f"memory: /tmp, the home directory and /dev/shm are held in memory: together {size_text(total)}, which "
                f"leaves too little of {size_text(self.memory)}; give more memory (at least "
                f"{size_text(int(total / IN_MEMORY_SHARE) + 1)}) or less tmp, home and shm"
            )
        if self.inodes > self.memory // INODE_SIZE:
            raise LimitsError(
                f"inodes: {self.inodes} files would not fit into {size_text(self.memory)} of memory; at most "
                f"{self.memory // INODE_SIZE}"
            )

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def size_text(size: int) -> str:
    return (
        f"{size / (1 << 20):.4g} MiB"
        if size < 1 << 30
        else f"{size / (1 << 30):.4g} GiB"
    )


def amount_text(name: str, amount: float) -> str:
    """For people: of a size, or of what is counted."""
    return size_text(int(amount)) if name in ("memory", "disk") else f"{amount:g}"


def checked(name: str, given: Any) -> int | float:
    """The value of one limit as a number, within its bounds."""
    metadata = next(limit.metadata for limit in fields(Limits) if limit.name == name)
    read, least, most = metadata["read"], metadata["least"], metadata["most"]
    try:
        value: int | float = read(given)
        if (
            isinstance(given, bool)
            or value != value
            or (isinstance(given, float) and value != given)
        ):
            raise ValueError(f"{given!r} is not a valid number")
    except (ValueError, TypeError, OverflowError) as error:
        raise LimitsError(f"{name}: {error}") from None
    if not least <= value <= most or not isfinite(value):
        bound = least if value < least else most
        shown = (
            size_text(int(bound)) if read is parse_size and isfinite(bound) else bound
        )
        bounds = f"at least {shown}" if value < least else f"at most {shown}"
        raise LimitsError(f"{name}: {given} is out of bounds; {bounds}")
    return value
