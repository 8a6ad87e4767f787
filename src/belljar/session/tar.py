"""The init's archive format as a tar, and back: what crosses HTTP is a tar.

A tar that comes in is hostile. `check` refuses it as a whole before anything of it is unpacked.
"""

from __future__ import annotations

import os
import posixpath
import tarfile
from collections.abc import AsyncIterator, Iterator
from typing import IO

from belljar.errors import UsageError
from belljar.session.archive import CHUNK, HEAD


async def as_tar(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The init's archive as a tar, member by member."""
    buffer, left, pad = bytearray(), 0, 0
    async for part in parts:
        buffer += part
        while True:
            if left:
                if not buffer:
                    break
                data = bytes(buffer[:left])
                del buffer[: len(data)]
                left -= len(data)
                yield data if left else data + bytes(pad)
                continue
            member = _member(buffer)
            if member is None:
                break
            yield member.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape") if member.name else bytes(2 * 512)
            left, pad = member.size, -member.size % 512


def _member(buffer: bytearray) -> tarfile.TarInfo | None:
    """The next member, taken out of the buffer; None: it is not whole yet."""
    if len(buffer) < HEAD.size:
        return None
    kind, mode, size, length = HEAD.unpack_from(buffer)
    link = size if kind == b"l" else 0
    if len(buffer) < HEAD.size + length + link:
        return None
    name = os.fsdecode(bytes(buffer[HEAD.size : HEAD.size + length]))
    member = tarfile.TarInfo(name if kind != b"e" else "")
    member.mode = mode
    if kind == b"d":
        member.type = tarfile.DIRTYPE
    elif kind == b"l":
        member.type = tarfile.SYMTYPE
        member.linkname = os.fsdecode(bytes(buffer[HEAD.size + length : HEAD.size + length + link]))
    elif kind == b"f":
        member.size = size
    del buffer[: HEAD.size + length + link]
    return member


def check(file: IO[bytes]) -> None:
    """UsageError unless every member may be unpacked."""
    file.seek(0)
    links: set[str] = set()
    try:
        with tarfile.open(fileobj=file, mode="r:") as tar:
            for member in tar:
                if wrong := _wrong(member, links):
                    raise UsageError(f"{member.name[:200]}: {wrong}; nothing was unpacked")
    except (tarfile.TarError, EOFError, ValueError, OSError) as error:
        raise UsageError(f"this is no tar: {error}") from None


def _wrong(member: tarfile.TarInfo, links: set[str]) -> str:
    """Why a member may not be unpacked. `links`: the links before it, which it must not be below."""
    parts = posixpath.normpath(member.name).split("/")
    if any("/".join(parts[:count]) in links for count in range(1, len(parts))):
        return "a member must not be below a link"
    if member.issym():
        links.add("/".join(parts))
    if member.name.startswith("/") or ".." in member.name.split("/") or "\0" in member.name:
        return "a member must be below the directory"
    if member.islnk() and (member.linkname.startswith("/") or ".." in member.linkname.split("/")):
        return "a hard link must be to a member"
    if not (member.isreg() or member.isdir() or member.issym() or member.islnk()):
        return "only files, directories and links can be unpacked"
    return ""


def from_tar(file: IO[bytes]) -> Iterator[bytes]:
    """A checked tar as the init's archive."""
    made: set[bytes] = set()
    with tarfile.open(fileobj=file, mode="r:") as tar:
        for member in tar:
            name = os.fsencode(os.path.normpath(member.name))
            if name == b".":
                continue
            yield from _parents(name, made)
            if member.isdir():
                made.add(name)
                yield HEAD.pack(b"d", member.mode & 0o777 | 0o700, 0, len(name)) + name
            elif member.issym():
                target = os.fsencode(member.linkname)
                yield HEAD.pack(b"l", 0o777, len(target), len(name)) + name + target
            else:
                yield from _content(tar, member, name)
    yield HEAD.pack(b"e", 0, 0, 0)


def _parents(name: bytes, made: set[bytes]) -> Iterator[bytes]:
    """The directories above a member that the tar does not hold itself."""
    parts = name.split(b"/")
    for count in range(1, len(parts)):
        above = b"/".join(parts[:count])
        if above not in made:
            made.add(above)
            yield HEAD.pack(b"d", 0o755, 0, len(above)) + above


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo, name: bytes) -> Iterator[bytes]:
    content = tar.extractfile(member)
    if content is None:
        return
    size = tar.getmember(member.linkname).size if member.islnk() else member.size
    yield HEAD.pack(b"f", member.mode & 0o777, size, len(name)) + name
    while part := content.read(CHUNK):
        yield part
