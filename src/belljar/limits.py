"""What one sandbox may use. Every field is documented under itself; sizes take "512m", "1g" or bytes.

A plain dataclass that checks itself: every command needs one, and a model of pydantic's takes longer to import than
a sandbox takes to start.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field, fields
from math import inf, isfinite
from typing import TYPE_CHECKING, Any

from belljar.errors import UsageError, meant

_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)


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


def _size(default: int, least: int = 0, most: float = inf) -> Any:
    return field(default=default, metadata={"read": parse_size, "least": least, "most": most})


def _number(default: float, least: float, most: float = inf, read: type = int) -> Any:
    return field(default=default, metadata={"read": read, "least": least, "most": most})


# Files that are held in memory count as memory. Even with all of them full there is room left for the next command:
# so much of the memory (one in …) at most; an inode with its name takes a good kilobyte.
_IN_MEMORY = {"tmp": 4, "home": 8, "shm": 8, "inodes": 8 << 10}


@dataclass(frozen=True, init=False)
class Limits:
    """What one sandbox may use: belljar.Limits(memory="1g", cpus=2, pids=512)."""

    memory: int = _size(512 << 20, 16 << 20)
    """Memory of all processes together; no swap on top."""
    cpus: float = _number(1.0, 0.01, 1024, float)
    """Processor time, in cores."""
    pids: int = _number(256, 16, 4_194_304)
    """Processes and threads alive at once."""
    shm: int = _size(64 << 20)
    """/dev/shm; at most an eighth of the memory."""
    tmp: int = _size(128 << 20, 1 << 20)
    """/tmp, held in memory: at most a quarter of it."""
    home: int = _size(64 << 20, 1 << 20)
    """The home directory, held in memory: at most an eighth of it."""
    inodes: int = _number(65536, 1024)
    """Files and directories in each of /tmp and the home directory; at most one for every 8 KiB of memory."""
    nofile: int = _number(4096, 64, 1_048_576)
    """Open descriptors per process."""
    fsize: int = _size(1 << 30, 1 << 20)
    """The largest file that can be written."""
    memlock: int = _size(64 << 10)
    """Memory that a process may lock."""
    output: int = _size(4 << 20, 4 << 10)
    """How much of each output stream a result keeps (head and tail)."""
    shell_output: int = _size(1 << 20, 4 << 10, 64 << 20)
    """How much of each output stream a background shell keeps (the newest)."""

    if TYPE_CHECKING:  # sizes may be given as text, and are always numbers afterwards

        def __init__(
            self, *, memory: int | str = ..., cpus: float = ..., pids: int = ..., shm: int | str = ...,
            tmp: int | str = ..., home: int | str = ..., inodes: int = ..., nofile: int = ..., fsize: int | str = ...,
            memlock: int | str = ..., output: int | str = ..., shell_output: int | str = ...,
        ) -> None: ...  # fmt: skip

    else:

        def __init__(self, **given: Any) -> None:
            self._read(given)

    def _read(self, given: dict[str, Any]) -> None:
        names = [each.name for each in fields(self)]
        for name in given:
            if name not in names:
                raise LimitsError(f"there is no limit {name!r}; {meant(name, names)}")
        for each in fields(self):
            value = given.get(each.name, each.default)
            object.__setattr__(self, each.name, _checked(each.name, value, **each.metadata))
        for name, share in _IN_MEMORY.items():
            object.__setattr__(self, name, min(getattr(self, name), self.memory // share))

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def _checked(name: str, given: Any, read: Any, least: float, most: float) -> Any:
    try:
        value = read(given)
        if isinstance(given, bool) or value != value or (isinstance(given, float) and value != given):
            raise ValueError(f"{given!r} is not a number that fits")
    except (ValueError, TypeError, OverflowError) as error:
        raise LimitsError(f"{name}: {error}") from None
    if not least <= value <= most or not isfinite(value):
        bounds = f"at least {least}" if value < least else f"at most {most}"
        raise LimitsError(f"{name}: {given} is out of bounds; {bounds}")
    return value
