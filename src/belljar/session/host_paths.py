"""The host path of an `upload`, `download` or report.

Links are followed, except below the session's workspace: a command may have made them there, to redirect what is
written or read. So the path is followed here, link by link, and as soon as it enters the workspace the rest is opened
beneath the workspace's descriptor.
"""

from __future__ import annotations

import errno
import os
import posixpath
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

from belljar.errors import UsageError
from belljar.workspace.beneath import Folder, parents

_MOST_LINKS = 40  # as the kernel


class HostPath:
    def __init__(self, path: str | os.PathLike[str], workspace: int | None) -> None:
        """`workspace`: its descriptor, if there is one."""
        self._path = os.fspath(path)
        self._workspace = workspace
        self._below: str | None = None
        """The path beneath the workspace; None: it is outside."""
        if workspace is not None:
            self._path, self._below = _found(self._path, os.fstat(workspace))

    def is_directory(self) -> bool:
        if self._below is None:
            return os.path.isdir(self._path)
        with self._top() as top:
            return top.exists(self._below) and stat.S_ISDIR(
                top.stat(self._below).st_mode
            )

    @contextmanager
    def folder(self, *, make: bool = False) -> Iterator[Folder]:
        """Open the directory; with `make`, create it and its parents."""
        if self._below is None:
            if make:
                os.makedirs(self._path, exist_ok=True)
            with Folder.at(self._path) as folder:
                yield folder
            return
        with self._top() as top:
            for path in (
                (*parents(self._below), self._below) if make and self._below else ()
            ):
                with suppress(FileExistsError):
                    top.mkdir(path)
            with (
                top.folder(self._below)
                if self._below
                else Folder.of(top.descriptor) as folder
            ):
                yield folder

    def file(self) -> BinaryIO:
        """Open the file for reading."""
        if self._below is None:
            return open(self._path, "rb")
        with self._top() as top:
            return top.file(self._below)

    def above(self) -> tuple[HostPath, str]:
        """Its directory, and its name there."""
        above, name = os.path.split(self._path.rstrip("/"))
        return HostPath(
            above or ("/" if self._path.startswith("/") else "."), self._workspace
        ), name

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


def _found(path: str, workspace: os.stat_result) -> tuple[str, str | None]:
    """The path, and what of it is beneath the workspace, where no link is followed, so that `..` is what it says."""
    here, links = "/", 0
    rest = os.path.join(os.getcwd(), path).split("/")[::-1]
    while True:
        if _is(here, workspace):
            below = posixpath.normpath("/".join(rest[::-1]))
            if below != ".." and not below.startswith("../"):
                return path, "" if below == "." else below
            path, rest = os.path.join(here, below), below.split("/")[::-1]
        if not rest:
            return path, None
        name = rest.pop()
        here = (
            os.path.dirname(here)
            if name == ".."
            else os.path.normpath(os.path.join(here, name))
        )
        with suppress(OSError):  # it is no link, or nobody can say
            target, links = os.readlink(here), links + 1
            if links > _MOST_LINKS:
                raise UsageError(f"{path}: it leads through too many links")
            rest += target.split("/")[::-1]
            here = "/" if target.startswith("/") else os.path.dirname(here)


def _is(path: str, workspace: os.stat_result) -> bool:
    with suppress(OSError):
        return os.path.samestat(os.lstat(path), workspace)
    return False
