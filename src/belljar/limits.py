"""What one sandbox may use. Every field is documented under itself; sizes take "512m", "1g" or bytes."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

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


Size = Annotated[int, BeforeValidator(parse_size)]


class Limits(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    memory: Size = Field(default=512 << 20, ge=16 << 20, validate_default=True)
    """Memory of all processes together; no swap on top."""
    cpus: float = Field(default=1.0, gt=0, le=1024, allow_inf_nan=False)
    """Processor time, in cores."""
    pids: int = Field(default=256, ge=16, le=4_194_304)
    """Processes and threads alive at once."""
    shm: Size = Field(default=64 << 20, ge=0)
    """/dev/shm"""
    tmp: Size = Field(default=128 << 20, ge=1 << 20)
    """/tmp, held in memory."""
    home: Size = Field(default=64 << 20, ge=1 << 20)
    """The home directory, held in memory."""
    inodes: int = Field(default=65536, ge=1024)
    """Files and directories in each of /tmp and the home directory."""
    nofile: int = Field(default=4096, ge=64, le=1_048_576)
    """Open descriptors per process."""
    fsize: Size = Field(default=1 << 30, ge=1 << 20)
    """The largest file that can be written."""
    memlock: Size = Field(default=64 << 10, ge=0)
    """Memory that a process may lock."""
    output: Size = Field(default=4 << 20, ge=4 << 10)
    """How much of each output stream a result keeps (head and tail)."""
    shell_output: Size = Field(default=1 << 20, ge=4 << 10, le=64 << 20)
    """How much of each output stream a background shell keeps (the newest)."""
    workspace_bytes: Size | None = Field(default=None, ge=0)
    """How much a command may add to the workspace before it is stopped; None: no budget."""
    workspace_entries: int | None = Field(default=None, ge=0)
    """How many files and directories a command may add to the workspace; None: no budget."""
