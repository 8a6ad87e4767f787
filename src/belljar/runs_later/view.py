"""How a workspace is read here: below an open directory, never through a link."""

from __future__ import annotations

import os
from itertools import islice
from typing import NamedTuple, Protocol

from belljar.workspace.beneath import Folder, open_beneath

LISTED = 1 << 16  # entries of a directory that are looked at
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class Entry(NamedTuple):
    name: str
    kind: str
    """`directory`, `link`, `file`, or empty for anything else."""


class View(Protocol):
    """OSError where something is not there or cannot be read."""

    def entries(self, directory: str) -> list[Entry]: ...
    def kind(self, path: str) -> str: ...
    def readlink(self, path: str) -> str: ...
    def read(self, path: str, most: int) -> bytes: ...
    def is_program(self, path: str) -> bool: ...


class FolderView:
    """Of a directory of the host."""

    def __init__(self, root: int) -> None:
        """Of a duplicate of this descriptor."""
        self.folder = Folder.of(root)

    def __del__(self) -> None:
        if hasattr(self, "folder"):
            self.folder.close()

    @property
    def place(self) -> str:
        """The path of the directory, which absolute paths in settings begin with."""
        return os.readlink(f"/proc/self/fd/{self.folder.descriptor}")

    def entries(self, directory: str) -> list[Entry]:
        descriptor = open_beneath(self.folder.descriptor, directory, _DIRECTORY)
        try:
            with os.scandir(descriptor) as found:
                return [Entry(each.name, _kind(each)) for each in islice(found, LISTED)]
        finally:
            os.close(descriptor)

    def kind(self, path: str) -> str:
        return kind_of(self.folder.stat(path).st_mode)

    def readlink(self, path: str) -> str:
        return self.folder.readlink(path)

    def read(self, path: str, most: int) -> bytes:
        return self.folder.read(path, most)

    def is_program(self, path: str) -> bool:
        mode = self.folder.stat(path).st_mode
        return kind_of(mode) == "file" and mode & 0o111 != 0


def kind_of(mode: int) -> str:
    return {0o100000: "file", 0o040000: "directory", 0o120000: "link"}.get(
        mode & 0o170000, ""
    )


def _kind(entry: os.DirEntry[str]) -> str:
    if entry.is_file(follow_symlinks=False):  # most are
        return "file"
    if entry.is_dir(follow_symlinks=False):
        return "directory"
    return "link" if entry.is_symlink() else ""
