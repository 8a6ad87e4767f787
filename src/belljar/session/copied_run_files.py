"""Files that the host may run later, in a workspace that was copied into a sandbox.

They are the same as on the host (`workspace/host_run_files.py`), but listed by the init: `look` fetches the lists when
a command has ended, and contents where they matter and size or time have changed. The sandbox may lie here: its answers
only become names in a result.
"""

from __future__ import annotations

import errno
import posixpath
import stat
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress

from belljar.errors import BelljarError, FileFailed
from belljar.session.files import FileInfo, Files
from belljar.staged.change import KINDS
from belljar.tasks import a_few_at_once
from belljar.workspace.host_run_files import KEPT, MARKS_BELOW, FileState, HostRunFiles, may_be_hook

ROUNDS = 4  # a new repository has settings, which name directories of hooks, …
BELOW = 64  # changed directories at the top that are checked at once for new repositories
_TYPES = {kind: bits for bits, kind in KINDS.items()}
_NOT_THERE = (errno.ENOENT, errno.EXDEV, errno.ENOTDIR, errno.ELOOP)  # also a link out of the workspace


class CopiedRunFiles(HostRunFiles):
    def __init__(self, root: int, git_directories: Iterable[str], files: Files) -> None:
        """`root`: the workspace on the host; absolute paths in settings begin with its path."""
        super().__init__(root, git_directories)
        self._files = files
        self._there: dict[str, dict[str, FileState]] = {}
        self._fetched: dict[str, tuple[FileState, bytes | None]] = {}
        self.has_looked = False

    async def look(self, *, again: bool = True) -> None:
        """Ask the sandbox for the current state. If it is lost, the last state stays."""
        if self.has_looked and not again:
            return
        self.has_looked = True
        for _ in range(ROUNDS):
            known = len(self._places)
            try:
                await self._list_places()
                await self._fetch_contents()
            except BelljarError:
                return
            self._look()
            if len(self._places) == known:
                return

    def _entries(self, place: str) -> Iterator[tuple[str, FileState]]:
        names = self._places[place]
        for name, seen in self._there.get(place, {}).items():
            matters = may_be_hook(name) if isinstance(names, str) else name in names or "/" in name
            if matters or name == ".":
                yield name, seen

    def _content(self, name: str) -> bytes | None:
        return self._fetched[name][1] if name in self._fetched else None

    # Questions to the sandbox.

    async def _list_places(self) -> None:
        before = self._there.get("")
        inside = {"": await self._list("")}

        async def listed(place: str) -> None:
            inside[place] = await self._list(place)

        top = inside[""]
        await a_few_at_once(listed, [place for place in self._places if place.partition("/")[0] in top])
        if before is not None:
            await self._find_repositories(top, before)
        self._there = inside

    async def _find_repositories(self, top: dict[str, FileState], before: dict[str, FileState]) -> None:
        """A new repository one level down shows in the time of its directory."""

        async def ask(mark: str) -> None:
            try:
                top[mark] = _state_of(await self._files.stat(mark))
            except FileFailed as error:
                top.pop(mark, None)
                if error.errno not in _NOT_THERE:
                    top[mark] = self._unknown()

        inner = [name for name, seen in top.items() if stat.S_ISDIR(seen.mode) and name != ".git"]
        changed = [name for name in inner if top[name] != before.get(name)]
        top.update((name, seen) for name, seen in before.items() if "/" in name and posixpath.dirname(name) in top)
        await a_few_at_once(ask, [f"{name}/{mark}" for name in changed[:BELOW] for mark in MARKS_BELOW])
        for name in changed[BELOW:]:  # checked the next time
            top[name] = self._unknown(stat.S_IFDIR)
            top["."] = self._unknown()

    async def _list(self, place: str) -> dict[str, FileState]:
        try:
            entries = await self._files.list(place or ".")
        except FileFailed as error:
            return {} if error.errno in _NOT_THERE else {".": self._unknown()}
        return {info.path: _state_of(info) for info in entries if "/" not in info.path and info.path not in (".", "..")}

    async def _fetch_contents(self) -> None:
        async def fetch(path: str) -> None:
            with suppress(FileFailed):
                seen, _ = self._fetched[path]
                content = await self._files.read(path, length=seen.size + 1)
                self._fetched[path] = seen, content if len(content) <= seen.size else None

        paths = {posixpath.join(place, name): seen for place in self._there for name, seen in self._entries(place)}
        changed = {
            path: (seen, None)
            for path, seen in paths.items()
            if self._reader(path) and self._fetched.get(path, (None,))[0] != seen
        }
        self._fetched = {path: known for path, known in self._fetched.items() if path in paths} | changed
        room, wanted = KEPT - sum(len(content or b"") for _, content in self._fetched.values()), []
        for path, (seen, _) in changed.items():
            if stat.S_ISREG(seen.mode) and seen.size <= room:
                room -= seen.size
                wanted.append(path)
        await a_few_at_once(fetch, wanted)


def _state_of(info: FileInfo) -> FileState:
    target = zlib.crc32((info.target or "").encode("utf-8", "surrogateescape"))
    return FileState(0, _TYPES[info.kind] | info.mode, info.size, info.mtime_ns, target)
