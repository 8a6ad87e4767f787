"""What was applied, as the sandbox has it: until the sandbox changes it again, it is no change.

The sandbox keeps its copy of a file that was applied. If the host then changes or deletes its own, the two differ, but
nobody has to decide about that a second time. So the area notes for each applied path what the sandbox has there:

    <digest> 644       a file, and its mode; without a mode if it was merged with the host's own changes
    large:<…> 644      a large file, by its size and time
    link:<digest>      a link
    directory 755
    deleted
"""

from __future__ import annotations

import hashlib
import os
import stat

from belljar.staged.copying import fingerprint
from belljar.workspace.beneath import Folder

DELETED, DIRECTORY, LARGE = "deleted", "directory", "large:"
LARGEST = 1 << 20  # bytes of a file that is compared by its contents


def state_of(folder: Folder, path: str, *, hashed: bool = True) -> str:
    """What is at this path, without its mode. OSError if nothing is."""
    status = folder.stat(path)
    if stat.S_ISDIR(status.st_mode):
        return DIRECTORY
    if stat.S_ISLNK(status.st_mode):
        return f"link:{hashlib.sha256(folder.readlink(path).encode('utf-8', 'surrogateescape')).hexdigest()}"
    if hashed and status.st_size <= LARGEST:
        return fingerprint(folder, path, folder.read(path, LARGEST))
    return large(status)


def large(status: os.stat_result) -> str:
    return f"{LARGE}{status.st_size}:{status.st_mtime_ns}"


def settled(folder: Folder, path: str) -> str:
    """The same with its mode, to be noted."""
    status = folder.stat(path)
    mode = (
        ""
        if stat.S_ISLNK(status.st_mode)
        else f" {stat.S_IMODE(status.st_mode) & 0o1777:o}"
    )
    return f"{state_of(folder, path)}{mode}"
