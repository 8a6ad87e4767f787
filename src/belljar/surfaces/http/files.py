"""The routes for a sandbox's files. Contents stream both ways; nothing is held in memory as a whole.

A file is read piece by piece, as fast as its client takes it. A tar is kept in a temporary file: one that goes out
because the tool in the sandbox must not wait for a slow client, one that comes in until all of its members are checked,
so that a bad one unpacks nothing.
"""

from __future__ import annotations

import os
import posixpath
import tarfile
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict
from typing import IO, Any

from anyio import to_thread
from starlette.responses import StreamingResponse

from belljar.errors import FileFailed
from belljar.session.archive import CHUNK, HEAD
from belljar.session.files import FileInfo
from belljar.session.session import Session
from belljar.surfaces.http import models as m
from belljar.surfaces.http.calls import Call, Route, body_of
from belljar.surfaces.http.problems import Problem
from belljar.surfaces.http.routes import CONTENTS_HEADERS
from belljar.surfaces.http.streams import Open

IN_MEMORY = 8 << 20  # of an incoming tar; the rest is on disk
PIECE = 4 << 20
TAR = "application/x-tar"
_BINARY = "application/octet-stream"

# Files.


async def read_file(call: Call) -> Any:
    """Read a file."""
    box, query = await call.session.usable(), call.query
    info = await box.files.stat(query.path)
    if info.kind == "directory":
        raise FileFailed(f"{query.path}: is a directory", errno=21)
    place = Open(call.service, call.key).take()
    return StreamingResponse(_window(box, query, place), media_type=_BINARY, headers=CONTENTS_HEADERS)


async def _window(box: Session, query: m.ReadQuery, place: Open) -> AsyncIterator[bytes]:
    at, left = query.offset, query.length
    try:
        while left is None or left > 0:
            data = await box.files.read(query.path, offset=at, length=min(PIECE, left or PIECE))
            if not data:
                return
            yield data
            at, left = at + len(data), None if left is None else left - len(data)
    finally:
        place.close()


async def write_file(call: Call) -> Any:
    """Write a whole file."""
    box, query = await call.session.usable(), call.query
    await box.files.put(query.path, body_of(call.request), mode=int(query.mode, 8))
    return _shown(await box.files.stat(query.path), query.path)


async def remove_file(call: Call) -> Any:
    """Remove a file, or a directory with its contents."""
    box = await call.session.usable()
    await box.files.remove(call.query.path)


def _shown(info: FileInfo, path: str) -> dict[str, Any]:
    return {**asdict(info), "path": path}


async def list_entries(call: Call) -> Any:
    """List a directory."""
    box, query = await call.session.usable(), call.query
    if query.depth == 0:
        return {"items": [_shown(await box.files.stat(query.path), query.path)], "next": None}
    found = await box.files.list(query.path, depth=query.depth)
    return {"items": [asdict(info) for info in found], "next": None}


async def make_directory(call: Call) -> Any:
    """Make a directory and its parents."""
    box = await call.session.usable()
    async for _ in body_of(call.request):
        pass
    await box.files.mkdir(call.query.path)
    return _shown(await box.files.stat(call.query.path), call.query.path)


# Tar.


async def download_tar(call: Call) -> Any:
    """A directory as a tar."""
    box, path = await call.session.usable(), call.query.path
    if (await box.files.stat(path)).kind != "directory":
        raise FileFailed(f"{path}: is not a directory", errno=20)
    place = Open(call.service, call.key).take()
    file = await to_thread.run_sync(tempfile.TemporaryFile)
    try:
        await box.files.pack(path, file)
    except BaseException:
        file.close()
        place.close()
        raise
    return StreamingResponse(_as_tar(_spooled(file, place)), media_type=TAR, headers=CONTENTS_HEADERS)


async def _spooled(file: IO[bytes], place: Open) -> AsyncIterator[bytes]:
    with file:
        try:
            file.seek(0)
            while part := await to_thread.run_sync(file.read, CHUNK):
                yield part
        finally:
            place.close()


async def _as_tar(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
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


async def upload_tar(call: Call) -> Any:
    """Unpack a tar into a directory."""
    box, path = await call.session.usable(), call.query.path
    with tempfile.SpooledTemporaryFile(IN_MEMORY) as file:
        async for part in body_of(call.request):
            await to_thread.run_sync(file.write, part)
        await to_thread.run_sync(_check, file)
        file.seek(0)
        await box.files.mkdir(path)
        await box.files.unpack(_from_tar(file), path)


def _check(file: IO[bytes]) -> None:
    """400 unless every member may be unpacked."""
    file.seek(0)
    links: set[str] = set()
    try:
        with tarfile.open(fileobj=file, mode="r:") as tar:
            for member in tar:
                if wrong := _wrong(member, links):
                    raise Problem("usage", f"{member.name[:200]}: {wrong}; nothing was unpacked")
    except (tarfile.TarError, EOFError, ValueError, OSError) as error:
        raise Problem("usage", f"this is no tar: {error}") from None


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


def _from_tar(file: IO[bytes]) -> Iterator[bytes]:
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


_FILES, _ENTRIES, _TAR = (f"/v1/sessions/{{sid}}/{name}" for name in ("files", "entries", "tar"))
ROUTES = [
    Route("GET", _FILES, read_file, "read", m.ReadQuery, media=_BINARY),
    Route("PUT", _FILES, write_file, "run", m.WriteQuery, raw="*/*", answer=m.FileAnswer),
    Route("DELETE", _FILES, remove_file, "run", m.PathQuery, status=204),
    Route("GET", _ENTRIES, list_entries, "read", m.EntriesQuery, answer=m.Items),
    Route("PUT", _ENTRIES, make_directory, "run", m.PathQuery, raw="*/*", answer=m.FileAnswer),
    Route("GET", _TAR, download_tar, "read", m.DirectoryQuery, media=TAR),
    Route("PUT", _TAR, upload_tar, "run", m.DirectoryQuery, raw="*/*", status=204),
]
