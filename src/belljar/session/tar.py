"""The init's archive format as a tar, and back: what crosses HTTP is a tar.

A tar that comes in is hostile. `check` refuses it as a whole before anything of it is unpacked.
"""

from __future__ import annotations

import os
import posixpath
import tarfile
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from typing import IO

from belljar.errors import UsageError
from belljar.session.archive import CHUNK, HEAD, taken

_TYPES = {b"d": tarfile.DIRTYPE, b"l": tarfile.SYMTYPE}


async def as_tar(parts: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
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
            yield (
                member.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
                if member.name
                else bytes(2 * 512)
            )
            left, pad = member.size, -member.size % 512


def _member(buffer: bytearray) -> tarfile.TarInfo | None:
    """The next member, taken out of the buffer; None: it is not whole yet."""
    if (head := taken(buffer)) is None:
        return None
    member = tarfile.TarInfo(head.name if head.kind != b"e" else "")
    member.mode = head.mode & 0o777
    member.type = _TYPES.get(head.kind, tarfile.REGTYPE)
    member.linkname = head.target
    member.size = head.size if head.kind == b"f" else 0
    return member


def check(file: IO[bytes]) -> None:
    """UsageError unless every member may be unpacked."""
    file.seek(0)
    links: set[str] = set()
    files: set[str] = set()
    try:
        with tarfile.open(fileobj=file, mode="r:") as tar:
            for member in tar:
                if wrong := _wrong(member, links, files):
                    raise UsageError(
                        f"{member.name[:200]}: {wrong}; nothing was unpacked"
                    )
    except (tarfile.TarError, EOFError, ValueError, OSError) as error:
        raise UsageError(f"this is no tar: {error}") from None


def _wrong(member: tarfile.TarInfo, links: set[str], files: set[str]) -> str:
    """Why a member may not be unpacked. `links`: those before it, which it must not be below; `files`: those before it,
    to which it may be a hard link."""
    parts = posixpath.normpath(member.name).split("/")
    if any("/".join(parts[:count]) in links for count in range(1, len(parts))):
        return "a member must not be below a link"
    if member.issym():
        links.add("/".join(parts))
    if (
        member.name.startswith("/")
        or ".." in member.name.split("/")
        or "\0" in member.name
    ):
        return "a member must be below the directory"
    if member.islnk() and member.linkname not in files:
        return "a hard link must be to a file before it"
    if member.isreg() or member.islnk():
        files.add(member.name)
    else:
        files.discard(member.name)  # replaced
    if not (member.isreg() or member.isdir() or member.issym() or member.islnk()):
        return "only files, directories and links can be unpacked"
    return ""


def from_tar(file: IO[bytes]) -> Iterator[bytes]:
    """A checked tar as the init's archive."""
    made: set[bytes] = set()
    files: dict[str, tarfile.TarInfo] = {}
    """By name, hard links too: tarfile follows one to another, in circles if they are made so."""
    file.seek(0)
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
                files[member.name] = (
                    files[member.linkname] if member.islnk() else member
                )
                yield from _content(tar, files[member.name], member.mode, name)
    yield HEAD.pack(b"e", 0, 0, 0)


def _parents(name: bytes, made: set[bytes]) -> Iterator[bytes]:
    """The directories above a member that the tar does not hold itself."""
    parts = name.split(b"/")
    for count in range(1, len(parts)):
        above = b"/".join(parts[:count])
        if above not in made:
            made.add(above)
            yield HEAD.pack(b"d", 0o755, 0, len(above)) + above


def _content(
    tar: tarfile.TarFile, file: tarfile.TarInfo, mode: int, name: bytes
) -> Iterator[bytes]:
    content = tar.extractfile(file)
    if content is None:
        return
    size = content.seek(0, os.SEEK_END)
    content.seek(0)
    yield HEAD.pack(b"f", mode & 0o777, size, len(name)) + name
    while part := content.read(CHUNK):
        yield part
