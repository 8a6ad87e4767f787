"""A sandbox's files, blocking."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from belljar.session import files
from belljar.session.files import FileInfo, Match
from belljar.sync.loop import Loop

if TYPE_CHECKING:
    from os import PathLike


class Files:
    """`box.files` of a blocking session: `box.files.read("src/app.py")`."""

    def __init__(self, loop: Loop, of: files.Files) -> None:
        self._loop, self._files = loop, of

    def read(self, path: str, *, offset: int = 0, length: int | None = None) -> bytes:
        return self._loop.call(self._files.read, path, offset=offset, length=length)

    def write(self, path: str, data: bytes | str, *, mode: int = 0o644) -> None:
        self._loop.call(self._files.write, path, data, mode=mode)

    def append(self, path: str, data: bytes | str) -> None:
        self._loop.call(self._files.append, path, data)

    def list(self, path: str = ".", *, depth: int = 1) -> Sequence[FileInfo]:
        return self._loop.call(self._files.list, path, depth=depth)

    def stat(self, path: str) -> FileInfo:
        return self._loop.call(self._files.stat, path)

    def exists(self, path: str) -> bool:
        return self._loop.call(self._files.exists, path)

    def remove(self, path: str) -> None:
        self._loop.call(self._files.remove, path)

    def mkdir(self, path: str) -> None:
        self._loop.call(self._files.mkdir, path)

    def search(self, expression: str, path: str = ".", *, most: int = 1000) -> Sequence[Match]:
        return self._loop.call(self._files.search, expression, path, most=most)

    def upload(self, source: str | PathLike[str], path: str) -> None:
        self._loop.call(self._files.upload, source, path)

    def download(self, path: str, target: str | PathLike[str]) -> None:
        self._loop.call(self._files.download, path, target)
