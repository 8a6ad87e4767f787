"""What a build from a Dockerfile gets to see: the files of a directory, as a tar. Blocking.

The directory may be a workspace, so nothing in it is trusted: each file is reached without following a link, and the
sum of all is limited. The tar has no owners and one date, so the same files give the same digest in every checkout.
"""

from __future__ import annotations

import hashlib
import os
import re
import reprlib
import tarfile
from contextlib import suppress
from pathlib import Path
from typing import IO

from pathspec import GitIgnoreSpec

from belljar.errors import UsageError
from belljar.images.archive import Directory
from belljar.images.pack import Packer
from belljar.patterns import is_affordable_glob
from belljar.records import record

LARGEST = 4 << 30
"""Bytes of all files of a context together."""
DATE = 946_684_800
"""The beginning of the year 2000: some programs refuse older files."""
_DOCUMENT_MAX = 1 << 20


@record
class Context:
    tar: Path
    dockerfile: str
    """Its path in the tar."""
    text: str
    """What it says in the tar: in the directory it may have changed since."""
    files: int
    size: int
    digest: str


def write(directory: Path, dockerfile: Path, tar: Path) -> Context:
    """Put `directory` into `tar`, without what its .dockerignore names."""
    try:
        name = str(
            Path(os.path.abspath(dockerfile)).relative_to(os.path.abspath(directory))
        )
    except ValueError:
        raise UsageError(
            f"{dockerfile} is not in {directory}; --context names the directory that holds all that the build needs"
        ) from None
    _read(directory, name)  # else a missing one would show late
    with tarfile.open(tar, "w", format=tarfile.PAX_FORMAT) as archive:
        packer = _ContextPacker(archive, _ignored(directory), name)
        try:
            root = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                packer.directory(root, "")
            finally:
                os.close(root)
        except RecursionError:
            raise UsageError(
                f"{directory} is nested too deeply to build from"
            ) from None
        except OSError as error:
            raise UsageError(
                f"{error.filename or directory} cannot be read for the build: {error.strerror}"
            ) from error
    with open(tar, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return Context(tar, name, _packed(tar, name), packer.files, packer.size, digest)


class _ContextPacker(Packer):
    def __init__(
        self, archive: tarfile.TarFile, ignored: GitIgnoreSpec, dockerfile: str
    ) -> None:
        super().__init__(archive)
        self._ignored = ignored
        self._always = (dockerfile, ".dockerignore")
        self.files = 0
        self.size = 0

    def takes(self, path: str, *, is_directory: bool) -> bool:
        """A directory is always looked through: an exception (`!`) may name a file in it."""
        return (
            is_directory or path in self._always or not self._ignored.match_file(path)
        )

    def time(self, found: os.stat_result) -> int:
        return DATE

    def owner(self, found: os.stat_result) -> tuple[int, int]:
        return 0, 0

    def add(self, entry: tarfile.TarInfo, content: IO[bytes] | None = None) -> None:
        self.files += entry.isfile()
        self.size += entry.size
        if self.size > LARGEST:
            raise UsageError(
                f"the files for the build have more than {LARGEST >> 30} GiB; name what it does not need in .dockerignore"
            )
        super().add(entry, content)


def _packed(tar: Path, name: str) -> str:
    with tarfile.open(tar) as archive, suppress(KeyError):
        member = archive.getmember(f"./{name}")
        content = None if member.issym() else archive.extractfile(member)
        if content is not None:
            return _text(content, name)
    raise UsageError(f"{name} was changed while the files were read")


def _ignored(directory: Path) -> GitIgnoreSpec:
    """Docker's patterns begin at the top; git's, which are read here, do so with a slash."""
    if not (directory / ".dockerignore").is_file():
        return GitIgnoreSpec.from_lines([])
    lines = [line.strip() for line in _read(directory, ".dockerignore").splitlines()]
    patterns = [
        f"!/{line[1:].strip('/ ')}" if line.startswith("!") else f"/{line.strip('/')}"
        for line in lines
        if line and not line.startswith("#")
    ]
    for each in patterns:
        if not is_affordable_glob(each):
            raise UsageError(
                f".dockerignore: {reprlib.repr(each)} has too many stars to be looked for in all names"
            )
    try:
        return GitIgnoreSpec.from_lines(patterns)
    except (ValueError, re.error) as error:
        raise UsageError(f".dockerignore: {str(error)[:200]}") from None


def _read(directory: Path, name: str) -> str:
    with Directory(directory).open(name) as stream:
        return _text(stream, name)


def _text(stream: IO[bytes], name: str) -> str:
    data = stream.read(_DOCUMENT_MAX + 1)
    if len(data) > _DOCUMENT_MAX:
        raise UsageError(f"{name} is too long to be read")
    return data.decode("utf-8", "replace")
