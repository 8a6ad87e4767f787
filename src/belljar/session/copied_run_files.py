"""Files that the host may run later, in a workspace that was copied into a sandbox.

They are the same as elsewhere (`runs_later/`), but listed by the init: after a command the lists of the directories
that matter are fetched, and contents where they matter and size or time have changed. The sandbox may lie here: its
answers only become names in a result.
"""

from __future__ import annotations

import errno
import os
import posixpath
import zlib
from collections.abc import Iterable
from contextlib import suppress

from anyio import to_thread

from belljar.errors import BelljarError, FileFailed
from belljar.runs_later.git import STORES
from belljar.runs_later.ground import LONGEST
from belljar.runs_later.table import table
from belljar.runs_later.view import Entry, FolderView
from belljar.runs_later.watch import FileState, Watch
from belljar.session.files import FileInfo, Files
from belljar.staged.change import KINDS
from belljar.tasks import a_few_at_once
from belljar.workspace.beneath import parents

ROUNDS = 6  # a new repository has settings, which name directories of hooks, which call scripts, …
BELOW = 64  # changed directories at the top that are listed at once
KEPT = 256 << 10  # bytes of contents that are kept in memory, of all files together
_TYPES = {kind: bits for bits, kind in KINDS.items()}
# EXDEV and ELOOP: also a link out of the workspace.
_NOT_THERE = (errno.ENOENT, errno.EXDEV, errno.ENOTDIR, errno.ELOOP)


class Listing:
    """What the sandbox listed, as a view."""

    def __init__(self) -> None:
        self.inside: dict[str, dict[str, FileInfo]] = {}
        """Directory → name → what is there."""
        self.contents: dict[str, bytes] = {}

    def info(self, path: str) -> FileInfo:
        above, name = posixpath.split(path)
        try:
            return self.inside[above][name]
        except KeyError:
            raise FileNotFoundError(
                errno.ENOENT, os.strerror(errno.ENOENT), path
            ) from None

    def entries(self, directory: str) -> list[Entry]:
        return [
            Entry(name, self._kind(info))
            for name, info in self.inside.get(directory, {}).items()
        ]

    def kind(self, path: str) -> str:
        return self._kind(self.info(path))

    def readlink(self, path: str) -> str:
        return self.info(path).target or ""

    def read(self, path: str, most: int) -> bytes:
        content, size = self.contents.get(path), self.info(path).size
        if content is None or len(content) > most:
            code = errno.EFBIG if size > most else errno.ENODATA  # it was not fetched
            raise OSError(code, os.strerror(code), path)
        return content

    def is_program(self, path: str) -> bool:
        info = self.info(path)
        return info.kind == "file" and info.mode & 0o111 != 0

    @staticmethod
    def _kind(info: FileInfo) -> str:
        return info.kind if info.kind in ("file", "directory", "link") else ""


class CopiedRunFiles(Watch):
    def __init__(self, root: int, git_directories: Iterable[str], files: Files) -> None:
        """`root`: the workspace on the host, which the copy began with."""
        self._listing = Listing()
        host = FolderView(root)
        self._prepare([host, self._listing], host.place, tuple(git_directories))
        self.view = self._listing
        self._files = files
        self._fetched: dict[str, FileState] = {}
        self._asked: dict[str, FileState] = {}
        """Directories at the top, as they were when they were listed."""
        self._unreadable: set[str] = set()

    async def refresh(self) -> None:
        """Ask the sandbox for the current state. If it is lost, the last state stays."""
        try:
            await self._list_all()
        except BelljarError:
            self._begun = True
            return
        await to_thread.run_sync(self.look)

    # Looking at what was listed.

    def _look(self) -> None:
        self._begun = True
        self.ground.survey()
        self._take()

    def _states(self) -> dict[str, FileState]:
        found = {
            f"{place}/." if place else ".": self._unknown()
            for place in self._unreadable
        }
        for path in self.ground.candidates:
            with suppress(OSError):
                if self._listing.kind(path) in ("file", "link"):
                    found[path] = _state_of(self._listing.info(path))
        return found

    # Questions to the sandbox.

    async def _list_all(self) -> None:
        listing = self._listing
        listing.inside = {}
        self._unreadable = set()
        await self._list("")
        await self._list_changed_tops()
        for _ in range(ROUNDS):
            await to_thread.run_sync(self.ground.survey)
            wanted = [
                place
                for place in self._wanted()
                if place not in listing.inside and self._may_be(place)
            ]
            await a_few_at_once(self._list, wanted)
            if not await self._fetch_contents() and not wanted:
                return

    def _wanted(self) -> set[str]:
        """The directories where files may be that are run."""
        found = {
            posixpath.dirname(path) for path in self.ground.candidates
        } | self.ground.gits
        for place, names in self._listing.inside.items():
            inner = [name for name, info in names.items() if info.kind == "directory"]
            found |= {
                posixpath.join(place, name)
                for name in inner
                if self._is_worth_it(place, name)
            }
        return found - {"", "."}

    def _is_worth_it(self, place: str, name: str) -> bool:
        if self.ground.is_in_git(place):
            return name not in STORES
        return (
            name == ".git"
            or any(map(table().matters, (posixpath.basename(place), name)))
            or self.ground.leads_to(place)
        )

    def _may_be(self, place: str) -> bool:
        """Whether it may exist: its top is listed as a directory, and so is what is between if it was listed."""
        for above in [*parents(place), place]:
            holder, name = posixpath.split(above)
            names = self._listing.inside.get(holder)
            if names is not None and (
                name not in names or names[name].kind != "directory"
            ):
                return False
        return True

    async def _list_changed_tops(self) -> None:
        """A new repository one level down shows in the time of its directory."""
        tops = {
            name: _state_of(i)
            for name, i in self._listing.inside.get("", {}).items()
            if i.kind == "directory"
        }
        changed = [
            name for name, state in tops.items() if self._asked.get(name) != state
        ]
        if not self._begun:  # as on the host, which was searched
            self._asked, changed = tops, []
        await a_few_at_once(self._list, changed[:BELOW])
        self._asked = {
            name: state for name, state in tops.items() if name not in changed[BELOW:]
        }
        if changed[BELOW:]:  # listed the next time
            self._unreadable.add("")

    async def _list(self, place: str) -> None:
        try:
            entries = await self._files.list(place or ".")
        except FileFailed as error:
            self._listing.inside[place] = {}
            if error.errno not in _NOT_THERE:
                self._unreadable.add(place)
            return
        self._listing.inside[place] = {
            info.path: info
            for info in entries
            if "/" not in info.path and info.path not in (".", "..")
        }

    async def _fetch_contents(self) -> bool:
        """Of files whose contents matter, or may lead further; whether there were any."""
        room = KEPT - sum(len(content) for content in self._listing.contents.values())
        wanted: list[str] = []
        for path in list(self.ground.candidates):
            with suppress(OSError):
                info = self._listing.info(path)
                if info.kind != "file" or self._fetched.get(path) == _state_of(info):
                    continue
                room += len(self._listing.contents.pop(path, b""))
                self._fetched[path] = _state_of(info)
                if info.size <= min(room, LONGEST):
                    room -= info.size
                    wanted.append(path)

        async def fetch(path: str) -> None:
            size = self._fetched[path].size
            with suppress(FileFailed):
                content = await self._files.read(path, length=size + 1)
                if len(content) <= size:
                    self._listing.contents[path] = content

        await a_few_at_once(fetch, wanted)
        for path in wanted:
            self.ground.learn(path)
        return bool(wanted)


def _state_of(info: FileInfo) -> FileState:
    target = zlib.crc32((info.target or "").encode("utf-8", "surrogateescape"))
    return FileState(0, _TYPES[info.kind] | info.mode, info.size, info.mtime_ns, target)
