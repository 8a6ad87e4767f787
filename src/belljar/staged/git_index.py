"""Git's index: which files it names with which contents, without what it remembers of their inodes.

A `git add` or `git status` in a sandbox may write an index that says the same as the old one, with the numbers that
files and their owners have there. That is no change.
"""

from __future__ import annotations

import hashlib
import posixpath
import struct
from collections.abc import Iterator
from contextlib import suppress

from belljar.workspace.beneath import Folder

LARGEST = 64 << 20
MOST_KNOWN = 64
_known: dict[tuple[tuple[int, ...], tuple[int, ...]], bool] = {}
_HEAD = struct.Struct(">4sII")
_ENTRY = struct.Struct(">24x4s8x24sH")  # times, device, inode; mode; owner; size and digest; flags
_EXTENSION = struct.Struct(">4sI")
_CACHES = (b"TREE", b"UNTR", b"FSMN", b"EOIE", b"IEOT")  # what git can work out again
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
    if one == other:
        return True
    found = meaning(one)
    return found is not None and found == meaning(other)


def meaning(index: bytes) -> bytes | None:
    """A digest of what it says; not known of one that is compressed, damaged or without a checksum."""
    content, checksum = index[:-_CHECKSUM], index[-_CHECKSUM:]
    if hashlib.sha1(content, usedforsecurity=False).digest() != checksum:
        return None
    found = hashlib.sha256()
    try:
        for part in _said(content):
            found.update(part)
    except (struct.error, ValueError):
        return None
    return found.digest()


def meaning_of(folder: Folder, path: str) -> bytes | None:
    """Of the index at a path; None where there is none."""
    with suppress(OSError):
        return meaning(folder.read(path, LARGEST)) if is_index(path) else None
    return None


def _said(content: bytes) -> Iterator[bytes]:
    signature, version, count = _HEAD.unpack_from(content)
    if signature != b"DIRC" or version not in (2, 3):
        raise ValueError(version)
    at = _HEAD.size
    for _ in range(count):
        mode, file, flags = _ENTRY.unpack_from(content, at)
        end = content.index(b"\0", at + _ENTRY.size + (2 if flags & _EXTENDED else 0))
        yield mode + file + content[at + _ENTRY.size - 2 : end + 1]
        at += (end - at + 8) & ~7  # filled up with NULs, at least one
    while at < len(content):
        name, size = _EXTENSION.unpack_from(content, at)
        at += _EXTENSION.size + size
        if name not in _CACHES:
            yield name + content[at - size : at]
