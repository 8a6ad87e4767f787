"""The routes for a sandbox's files. Contents stream both ways; nothing is held in memory as a whole.

A file is read piece by piece, as fast as its client takes it. A tar is kept in a temporary file: one that goes out
because the tool in the sandbox must not wait for a slow client, one that comes in until all of its members are checked,
so that a bad one unpacks nothing.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import asdict
from typing import IO, Any

from anyio import to_thread

from belljar.errors import FileFailed
from belljar.session import tar
from belljar.session.archive import CHUNK
from belljar.session.files import FileInfo
from belljar.session.session import Session
from belljar.surfaces.http import models as m
from belljar.surfaces.http.calls import Call, Route
from belljar.surfaces.http.problems import body_of
from belljar.surfaces.http.routes import CONTENTS_HEADERS
from belljar.surfaces.http.streams import Open, Placed

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
    first = await _piece(
        box, query, query.offset, query.length
    )  # so that a refusal is an answer, not a cut
    place = Open(call.service, call.key).take()
    window = _window(box, query, first)
    return Placed(window, place, media_type=_BINARY, headers=CONTENTS_HEADERS)


async def _piece(box: Session, query: m.ReadQuery, at: int, left: int | None) -> bytes:
    return await box.files.read(
        query.path, offset=at, length=PIECE if left is None else min(PIECE, left)
    )


async def _window(
    box: Session, query: m.ReadQuery, data: bytes
) -> AsyncGenerator[bytes]:
    at, left = query.offset, query.length
    while data:
        yield data
        at, left = at + len(data), None if left is None else left - len(data)
        data = await _piece(box, query, at, left)


async def write_file(call: Call) -> Any:
    """Write a whole file."""
    box, query = await call.session.usable(), call.query
    await box.files.put(query.path, body_of(call.request), mode=int(query.mode, 8))
    return _shown(await box.files.stat(query.path), query.path)


async def append_to_file(call: Call) -> Any:
    """Append to a file."""
    data, box = await call.content(), await call.session.usable()
    await box.files.append(call.query.path, data)
    return _shown(await box.files.stat(call.query.path), call.query.path)


async def search(call: Call) -> Any:
    """Lines that match an extended regular expression."""
    box, query = await call.session.usable(), call.query
    found = await box.files.search(query.expression, query.path, most=query.limit)
    return {"items": [asdict(match) for match in found], "next": None}


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
        return {
            "items": [_shown(await box.files.stat(query.path), query.path)],
            "next": None,
        }
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
    content = tar.as_tar(_spooled(file))
    return Placed(content, place, media_type=TAR, headers=CONTENTS_HEADERS)


async def _spooled(file: IO[bytes]) -> AsyncIterator[bytes]:
    with file:
        file.seek(0)
        while part := await to_thread.run_sync(file.read, CHUNK):
            yield part


async def upload_tar(call: Call) -> Any:
    """Unpack a tar into a directory."""
    box, path = await call.session.usable(), call.query.path
    with tempfile.SpooledTemporaryFile(IN_MEMORY) as file:
        async for part in body_of(call.request):
            await to_thread.run_sync(file.write, part)
        await to_thread.run_sync(tar.check, file)
        file.seek(0)
        await box.files.mkdir(path)
        await box.files.unpack(tar.from_tar(file), path)


_SESSION = "/v1/sessions/{sid}"
_FILES, _ENTRIES, _TAR = (
    f"/v1/sessions/{{sid}}/{name}" for name in ("files", "entries", "tar")
)
ROUTES = [
    Route("GET", _FILES, read_file, "read", m.ReadQuery, media=_BINARY),
    Route(
        "PUT", _FILES, write_file, "run", m.WriteQuery, raw="*/*", answer=m.FileAnswer
    ),
    Route("DELETE", _FILES, remove_file, "run", m.PathQuery, status=204),
    Route(
        "POST",
        f"{_SESSION}/append",
        append_to_file,
        "run",
        m.PathQuery,
        raw="*/*",
        answer=m.FileAnswer,
    ),
    Route("GET", f"{_SESSION}/search", search, "read", m.SearchQuery, answer=m.Items),
    Route("GET", _ENTRIES, list_entries, "read", m.EntriesQuery, answer=m.Items),
    Route(
        "PUT",
        _ENTRIES,
        make_directory,
        "run",
        m.PathQuery,
        raw="*/*",
        answer=m.FileAnswer,
    ),
    Route("GET", _TAR, download_tar, "read", m.DirectoryQuery, media=TAR),
    Route("PUT", _TAR, upload_tar, "run", m.DirectoryQuery, raw="*/*", status=204),
]
