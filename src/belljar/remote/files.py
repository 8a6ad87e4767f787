"""`box.files` of a remote session: the same methods over the routes for files. Trees travel as tars."""

from __future__ import annotations

import builtins
import errno
import json
import os
import posixpath
import tarfile
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from typing import IO, Any

from anyio import to_thread

from belljar import codec
from belljar.errors import FileFailed, UsageError
from belljar.remote.wire import Wire
from belljar.session import tar
from belljar.session.archive import CHUNK
from belljar.session.files import (
    READ_MAX,
    File,
    FileInfo,
    Files,
    Match,
    Sink,
    Source,
    up_to,
)
from belljar.syscalls import write_all

_BYTES = "application/octet-stream"


class RemoteFiles(Files):
    def __init__(self, wire: Wire, session: str) -> None:
        super().__init__(_no_tool)
        self._wire = wire
        self._at = f"/v1/sessions/{session}"

    async def read(
        self, path: str, *, offset: int = 0, length: int | None = None
    ) -> bytes:
        content = bytearray()
        take = up_to(
            READ_MAX, f"{path}: over {READ_MAX} bytes; use download()", content.extend
        )
        await self._get(path, take, offset=offset, length=length)
        return bytes(content)

    async def get(self, path: str, sink: Sink) -> None:
        await self._get(path, sink)

    async def _get(
        self, path: str, sink: Sink, offset: int = 0, length: int | None = None
    ) -> None:
        query = {"path": _checked(path), "offset": offset or None, "length": length}
        async with self._wire.reading(
            f"{self._at}/files", query=query, accept=_BYTES
        ) as pieces:
            async for piece in pieces:
                await _put_into(sink, piece)

    async def _put(self, path: str, mode: int, source: Source) -> None:
        query = {"path": _checked(path), "mode": f"{mode & 0o777:04o}"}
        pieces = _of_file(source) if isinstance(source, File) else source
        await self._wire.ask(
            "PUT",
            f"{self._at}/files",
            query=query,
            content=pieces,
            headers={"Content-Type": _BYTES},
        )

    async def append(self, path: str, data: bytes | str) -> None:
        content = data.encode() if isinstance(data, str) else bytes(data)
        await self._wire.ask(
            "POST",
            f"{self._at}/append",
            query={"path": _checked(path)},
            content=content,
            headers={"Content-Type": _BYTES},
        )

    async def list(self, path: str = ".", *, depth: int = 1) -> list[FileInfo]:
        if depth < 1:
            raise UsageError("depth must be at least 1")
        return await self._entries(path, depth)

    async def stat(self, path: str, *, follow: bool = True) -> FileInfo:
        if follow:
            (info,) = await self._entries(path, 0)
            return info
        place, name = posixpath.split(path.rstrip("/") or path)
        found = [
            info for info in await self._entries(place or ".", 1) if info.path == name
        ]
        if not found:
            raise FileFailed(f"{path}: no such file or directory", errno=errno.ENOENT)
        return replace(found[0], path=path)

    async def _entries(self, path: str, depth: int) -> builtins.list[FileInfo]:
        query = {"path": _checked(path), "depth": min(depth, 100)}
        answer = await self._wire.ask("GET", f"{self._at}/entries", query=query)

        def infos() -> builtins.list[FileInfo]:
            return [
                codec.decode(FileInfo, item)
                for item in json.loads(answer.content)["items"]
            ]

        return await to_thread.run_sync(infos)

    async def remove(self, path: str) -> None:
        await self._wire.ask(
            "DELETE", f"{self._at}/files", query={"path": _checked(path)}
        )

    async def mkdir(self, path: str) -> None:
        await self._wire.ask(
            "PUT", f"{self._at}/entries", query={"path": _checked(path)}
        )

    async def search(
        self, expression: str, path: str = ".", *, most: int = 1000
    ) -> Sequence[Match]:
        query = {"path": _checked(path), "expression": expression, "limit": most}
        found = await self._wire.get(f"{self._at}/search", query)
        return [codec.decode(Match, item) for item in found["items"]]

    async def pack(self, path: str, sink: Sink) -> None:
        with tempfile.TemporaryFile() as file:
            query = {"path": _checked(path)}
            async with self._wire.reading(
                f"{self._at}/tar", query=query, accept="application/x-tar"
            ) as pieces:
                async for piece in pieces:
                    await to_thread.run_sync(file.write, piece)
            file.seek(0)
            await to_thread.run_sync(_unpack, file, sink)

    async def unpack(self, archive: Iterator[bytes], path: str = ".") -> None:
        await self._wire.ask(
            "PUT",
            f"{self._at}/tar",
            query={"path": _checked(path)},
            content=tar.as_tar(_off_the_loop(archive)),
            headers={"Content-Type": "application/x-tar"},
        )

    async def _do(
        self,
        tool: str,
        path: str,
        more: Sequence[str] = (),
        *,
        source: Source | None = None,
        sink: Sink = lambda data: None,
    ) -> None:
        """For `download`, which fetches files and trees this way."""
        await {"get": self.get, "pack": self.pack}[tool](path, sink)


async def _no_tool(*_: Any) -> tuple[int, bytes]:
    raise AssertionError("a remote session has no tools of its own")


def _checked(path: str) -> str:
    if not isinstance(path, str) or "\0" in path:
        raise UsageError(f"{path!r} is not a path")
    return path or "."


async def _put_into(sink: Sink, piece: bytes) -> None:
    if isinstance(sink, File):
        await to_thread.run_sync(write_all, sink.fileno(), piece)
    else:
        sink(piece)


async def _of_file(file: File) -> AsyncIterator[bytes]:
    while piece := await to_thread.run_sync(os.read, file.fileno(), CHUNK):
        yield piece


async def _off_the_loop(parts: Iterator[bytes]) -> AsyncIterator[bytes]:
    while part := await to_thread.run_sync(next, parts, b""):
        yield part


def _unpack(file: IO[bytes], sink: Sink) -> None:
    """A tar of the sandbox as the init's archive, whose names the receiver checks."""
    assert callable(sink)
    try:
        for part in tar.from_tar(file):
            sink(part)
    except (tarfile.TarError, EOFError, KeyError, ValueError) as error:
        raise FileFailed(
            f"the service sent a tar that cannot be read: {error}"
        ) from error
