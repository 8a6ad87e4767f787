"""Git's index: which files it names with which contents, without what it remembers of their inodes.

A `git add` or `git status` in a sandbox may write an index that says the same as the old one, with the numbers that
files and their owners have there. That is no change.
"""

from __future__ import annotations

import hashlib
import posixpath
import struct

from belljar.workspace.beneath import Folder

LARGEST = 64 << 20
MOST_KNOWN = 64
_known: dict[tuple[tuple[int, ...], tuple[int, ...]], bool] = {}
_HEAD = struct.Struct(">4sII")
_ENTRY = struct.Struct(">24x4s8x24sH")  # times, device, inode; mode; owner; size and digest; flags
_EXTENDED = 0x4000
_CHECKSUM = 20


def is_index(path: str) -> bool:
    return posixpath.basename(path) == "index" and ".git" in path.split("/")


def say_the_same(one: Folder, other: Folder, path: str) -> bool:
    """Of a large repository that takes a tenth of a second, so what was found is remembered until either changes."""
    sides = _inode(one, path), _inode(other, path)
    if sides not in _known:
        if len(_known) >= MOST_KNOWN:
            _known.clear()
        _known[sides] = same_contents(one.read(path, LARGEST), other.read(path, LARGEST))
    return _known[sides]


def _inode(folder: Folder, path: str) -> tuple[int, ...]:
    found = folder.stat(path)
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def same_contents(one: bytes, other: bytes) -> bool:
    """Not known of an index that is compressed, damaged or without a checksum: then it is said to differ."""
    if one == other:
        return True
    found = _said(one)
    return found is not None and found == _said(other)


def _said(index: bytes) -> list[object] | None:
    content, checksum = index[:-_CHECKSUM], index[-_CHECKSUM:]
    if hashlib.sha1(content, usedforsecurity=False).digest() != checksum:
        return None
    try:
        return _entries(content)
    except (struct.error, ValueError):
        return None


def _entries(content: bytes) -> list[object]:
    signature, version, count = _HEAD.unpack_from(content)
    if signature != b"DIRC" or version not in (2, 3):
        raise ValueError(version)
    found: list[object] = []
    at = _HEAD.size
    for _ in range(count):
        mode, file, flags = _ENTRY.unpack_from(content, at)
        end = content.index(b"\0", at + _ENTRY.size + (2 if flags & _EXTENDED else 0))
        found.append((mode, file, content[at + _ENTRY.size - 2 : end]))
        at += (end - at + 8) & ~7  # filled up with NULs, at least one
    return [*found, content[at:]]
