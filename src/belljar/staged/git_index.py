"""The meaning of git's index: which files with which contents, without the inode data that git caches.

`git add` or `git status` in a sandbox may rewrite the index with the inodes and owners that files have there. If the
rest is the same, that is no change.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import struct
from collections.abc import Iterator
from contextlib import suppress

from belljar.workspace.beneath import Folder

LARGEST = 64 << 20
MOST_KNOWN = 64
_known: dict[tuple[tuple[int, ...], tuple[int, ...]], bool] = {}
_HEAD = struct.Struct(">4sII")
_ENTRY = struct.Struct(
    ">24x4s8x24sH"
)  # times, device, inode; mode; owner; size and digest; flags
_EXTENSION = struct.Struct(">4sI")
_CACHES = (
    b"TREE",
    b"UNTR",
    b"FSMN",
    b"EOIE",
    b"IEOT",
)  # extensions that git can rebuild
_EXTENDED = 0x4000
_CHECKSUM = 20


def is_index(path: str) -> bool:
    return posixpath.basename(path) == "index" and ".git" in path.split("/")


def say_the_same(one: Folder, other: Folder, path: str) -> bool:
    """Whether two indexes have the same meaning. Cached until either changes: a large one takes a tenth of a second."""
    sides = _inode(one, path), _inode(other, path)
    if sides not in _known:
        if len(_known) >= MOST_KNOWN:
            _known.clear()
        _known[sides] = same_contents(
            one.read(path, LARGEST), other.read(path, LARGEST)
        )
    return _known[sides]


def _inode(folder: Folder, path: str) -> tuple[int, ...]:
    status = folder.stat(path)
    return (
        status.st_dev,
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )


def same_contents(one: bytes, other: bytes) -> bool:
    if one == other:
        return True
    first = meaning(one)
    return first is not None and first == meaning(other)


def meaning(index: bytes) -> bytes | None:
    """A digest of the meaning; None if the index is compressed, damaged or has no checksum."""
    content, checksum = index[:-_CHECKSUM], index[-_CHECKSUM:]
    if hashlib.sha1(content, usedforsecurity=False).digest() != checksum:
        return None
    sha = hashlib.sha256()
    try:
        for part in _parts(content):
            sha.update(part)
    except (struct.error, ValueError):
        return None
    return sha.digest()


def meaning_of(folder: Folder, path: str) -> bytes | None:
    """The meaning of the index at a path; None if there is none."""
    with suppress(OSError):
        return meaning(folder.read(path, LARGEST)) if is_index(path) else None
    return None


def names(index: bytes) -> list[str]:
    """The paths of all entries; empty if the index is compressed or damaged."""
    found: list[str] = []
    try:
        signature, version, count = _HEAD.unpack_from(index)
        if signature != b"DIRC" or version not in (2, 3):
            return []
        at = _HEAD.size
        for _ in range(count):
            _, _, flags = _ENTRY.unpack_from(index, at)
            start = at + _ENTRY.size + (2 if flags & _EXTENDED else 0)
            end = index.index(b"\0", start)
            found.append(os.fsdecode(index[start:end]))
            at += (end - at + 8) & ~7
    except (struct.error, ValueError):
        return []
    return found


def _parts(content: bytes) -> Iterator[bytes]:
    signature, version, count = _HEAD.unpack_from(content)
    if signature != b"DIRC" or version not in (2, 3):
        raise ValueError(version)
    at = _HEAD.size
    for _ in range(count):
        mode, file, flags = _ENTRY.unpack_from(content, at)
        end = content.index(b"\0", at + _ENTRY.size + (2 if flags & _EXTENDED else 0))
        yield mode + file + content[at + _ENTRY.size - 2 : end + 1]
        at += (end - at + 8) & ~7  # padded with at least one NUL
    while at < len(content):
        name, size = _EXTENSION.unpack_from(content, at)
        at += _EXTENSION.size + size
        if name not in _CACHES:
            yield name + content[at - size : at]
