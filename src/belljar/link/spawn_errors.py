"""The typed error for a command that the init could not start."""

from __future__ import annotations

import errno

from belljar.errors import (
    CommandError,
    CommandNotExecutable,
    CommandNotFound,
    WorkingDirectoryError,
)
from belljar.link.frames import Stage

NOT_EXECUTABLE = (errno.EACCES, errno.ENOEXEC, errno.EISDIR, errno.ENOTDIR, errno.ELOOP)


def spawn_error(
    program: str, cwd: str, code: int, stage: int, text: str
) -> CommandError:
    if stage == Stage.CWD:
        return WorkingDirectoryError(f"Invalid working directory: {cwd}: {text}")
    if code == errno.ENOENT:
        return CommandNotFound(f"Command not found: {program}")
    if code in NOT_EXECUTABLE:
        return CommandNotExecutable(
            f"Permission denied: {program} is not something that can be executed ({text})"
        )
    if code == errno.E2BIG:
        return CommandError(
            f"{program} could not be started: its arguments and environment are too large together"
        )
    return CommandError(f"{program} could not be started: {text}")
