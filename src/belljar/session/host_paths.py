"""A path of the host that the caller gives for `upload` or `download`.

His own links are followed, but none below the session's workspace: a command may have put it there, to have a file
written elsewhere or one from elsewhere brought in. By whatever name the path reaches the workspace, from there on it is
opened beneath the workspace's descriptor.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import PurePath
from typing import BinaryIO

from belljar.errors import UsageError
from belljar.workspace.beneath import Folder, parents


class HostPath:
    def __init__(self, path: str | os.PathLike[str], workspace: int | None) -> None:
        """`workspace`: its descriptor; None: there is none to look out for."""
        self._path = os.fspath(path)
        self._workspace = workspace
        self._below = _below(self._path, workspace) if workspace is not None else None
        """The path beneath the workspace; None: it is elsewhere."""

    def is_directory(self) -> bool:
        if self._below is None:
            return os.path.isdir(self._path)
        with self._top() as top:
            return top.exists(self._below) and stat.S_ISDIR(top.stat(self._below).st_mode)

    @contextmanager
    def folder(self, *, make: bool = False) -> Iterator[Folder]:
        """The directory itself; with `make` it is made, and what is above it."""
        if self._below is None:
            if make:
                os.makedirs(self._path, exist_ok=True)
            with Folder.at(self._path) as found:
                yield found
            return
        with self._top() as top:
            for each in (*parents(self._below), self._below) if make and self._below else ():
                with suppress(FileExistsError):
                    top.mkdir(each)
            with top.folder(self._below) if self._below else Folder.of(top.descriptor) as found:
                yield found

    def file(self) -> BinaryIO:
        """To be read."""
        if self._below is None:
            return open(self._path, "rb")
        with self._top() as top:
            return top.file(self._below)

    def above(self) -> tuple[HostPath, str]:
        """The directory that it is in, and its name there."""
        full = os.path.abspath(self._path)
        return HostPath(os.path.dirname(full), self._workspace), os.path.basename(full)

    @contextmanager
    def _top(self) -> Iterator[Folder]:
        assert self._workspace is not None
        with Folder.of(self._workspace) as top:
            try:
                yield top
            except OSError as error:
                if error.errno not in (errno.ELOOP, errno.EXDEV, errno.ENOTDIR):
                    raise
                raise UsageError(
                    f"{self._path}: a link in the workspace is not followed, since a command may have put it there; "
                    "name what it leads to"
                ) from error


def _below(path: str, workspace: int) -> str | None:
    """From the top down: the first directory that is the workspace counts."""
    full, root = PurePath(os.path.abspath(path)), os.fstat(workspace)
    for above in (*reversed(full.parents), full):
        with suppress(OSError):
            if os.path.samestat(os.stat(above), root):
                found = full.relative_to(above).as_posix()
                return "" if found == "." else found
    return None
