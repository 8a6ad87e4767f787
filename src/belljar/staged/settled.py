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
from contextlib import suppress

from belljar.staged.copying import attributes_of, fingerprint_of
from belljar.workspace.beneath import Folder, read_up_to

DELETED, DIRECTORY, LARGE = "deleted", "directory", "large:"
LARGEST = 1 << 20  # bytes of a file that is compared by its contents


def state_of(folder: Folder, path: str, *, hashed: bool = True) -> str:
    """What is at this path, without its mode. OSError if nothing is."""
    return _state(folder, path, folder.stat(path), hashed=hashed)


def _state(
    folder: Folder, path: str, status: os.stat_result, *, hashed: bool = True
) -> str:
    if stat.S_ISDIR(status.st_mode):
        return DIRECTORY
    if stat.S_ISLNK(status.st_mode):
        return f"link:{hashlib.sha256(folder.readlink(path).encode('utf-8', 'surrogateescape')).hexdigest()}"
    if hashed and status.st_size <= LARGEST:
        return _fingerprint(folder, path)
    return large(status)


def _fingerprint(folder: Folder, path: str) -> str:
    """As `fingerprint`, with the contents and the attributes of one opened file."""
    file, status = folder.regular(path)
    try:
        content = read_up_to(file, LARGEST + 1)
        attributes: dict[str, bytes] = {}
        with suppress(OSError):
            attributes = attributes_of(file)
    finally:
        os.close(file)
    if len(content) > LARGEST:
        return large(status)
    return fingerprint_of(content, attributes)


def large(status: os.stat_result) -> str:
    return f"{LARGE}{status.st_size}:{status.st_mtime_ns}"


def settled(folder: Folder, path: str) -> str:
    """The same with its mode, to be noted."""
    status = folder.stat(path)
    if stat.S_ISLNK(status.st_mode):
        return _state(folder, path, status)
    mode = stat.S_IMODE(status.st_mode) & 0o1777
    return f"{_state(folder, path, status)} {mode:o}"
