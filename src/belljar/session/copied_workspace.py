"""A staged workspace for an engine that shares no files with us (a remote Docker, a bridged link). It is copied in when
the session begins; changes are copied out when somebody asks for them and when the session ends.

Inside it is held in memory, so its size is limited. Changes are found by comparing kind, mode, size and time with a
list made after copying in. They go into the area's `upper` as an overlay would have written them, so reviewing,
applying and undoing work as usual. If the sandbox is lost, changes that were not copied out are lost with it.
"""

from __future__ import annotations

import json
import os
import stat
from contextlib import suppress
from functools import partial
from pathlib import Path

from anyio import to_thread

from belljar.errors import BelljarError, UsageError
from belljar.session.archive import packed, whole
from belljar.session.files import FileInfo, Files, up_to
from belljar.staged.area import COPIED, StagedArea
from belljar.staged.copying import is_users, make_whiteout, remove_tree
from belljar.syscalls import closing, write_all
from belljar.tasks import a_few_at_once
from belljar.workspace.beneath import Folder, parents

DEEPEST = 128  # levels; as far as the init's tools go
STATE_MAX = 1 << 30
SETTLED = 20_000_000  # ns: a file this much older than the newest gets a new time with its next change
ORIGIN = "user.overlay.origin"
Record = tuple[str, int, int, int, str]
Listing = dict[str, Record]


class CopiedWorkspace:
    def __init__(
        self, area: StagedArea, files: Files, most_bytes: int, most_files: int
    ) -> None:
        """The limits hold for what is copied in, and for what is copied out."""
        self._area = area
        self._files = files
        self._bytes = most_bytes
        self._count = most_files

    async def copy_in(self) -> None:
        with Folder.at(self._area.workspace) as folder:
            await to_thread.run_sync(self._check, folder)
            await self._files.unpack(packed(whole(folder)))
        await self._note(base=await self._listing(), fetched={})

    def _check(self, folder: Folder) -> None:
        sizes = []
        for path, status in folder.walk():
            if path.count("/") >= DEEPEST:
                raise UsageError(
                    f"{path[:60]}…: more than {DEEPEST} directories in each other cannot be copied to an engine that "
                    "shares no files; move them out of the workspace, or remove them"
                )
            sizes.append(status.st_size if stat.S_ISREG(status.st_mode) else 0)
        if sum(sizes) > self._bytes or len(sizes) > self._count:
            raise UsageError(
                f"the workspace holds {_mib(sum(sizes))} in {len(sizes)} files. This engine does not share files, so a "
                f"staged workspace is copied into the sandbox's memory, which has room for {_mib(self._bytes)} in "
                f"{self._count} files: give it more memory, or a smaller workspace"
            )

    async def copy_out(self) -> None:
        """Copy the current changes into the area."""
        now = await self._listing()
        state = await to_thread.run_sync(self._state)
        base, fetched = state["base"], state["fetched"]
        changed = {
            path: now.get(path)
            for path in {*base, *now}
            if _key(base.get(path)) != _key(now.get(path))
        }
        size = sum(
            record[2]
            for record in changed.values()
            if record is not None and record[0] == "file"
        )
        if (
            size > 2 * self._bytes or len(changed) > 3 * self._count
        ):  # everything deleted, and as much as fits added
            raise UsageError(
                f"{_mib(size)} in {len(changed)} files changed: more than the {_mib(2 * self._bytes)} in "
                f"{3 * self._count} files that are copied out of a sandbox"
            )
        kept = {
            path
            for path, record in changed.items()
            if record and fetched.get(path) == record
        }
        new_upper = self._area.path / "upper.new"
        try:
            files, modes = await to_thread.run_sync(
                self._lay_out, new_upper, changed, now, kept, base
            )
            await self._fetch(new_upper, files)
            await to_thread.run_sync(self._area.replace_upper, new_upper, modes)
        except (
            OSError
        ) as error:  # names that lead out or are too long here, a full disk
            raise BelljarError(
                f"what changed cannot be copied out of the sandbox: {error.strerror}"
            ) from error
        newest = max((record[3] for record in now.values()), default=0)
        settled = {
            path: r
            for path, r in changed.items()
            if r is not None and r[3] < newest - SETTLED
        }
        await self._note(base=base, fetched=settled)

    async def _listing(self) -> Listing:
        return {
            info.path: _record(info)
            for info in await self._files.list(".", depth=DEEPEST)
        }

    # The changes as an overlay's upper directory.

    def _lay_out(
        self,
        new_upper: Path,
        changed: dict[str, Record | None],
        now: Listing,
        kept: set[str],
        base: Listing,
    ) -> tuple[Listing, dict[str, int]]:
        """Make everything but the contents of changed files. Returns the files to fetch, and the modes that directories
        get at the end."""
        files: Listing = {}
        modes: dict[str, int] = {}
        with Folder.at(self._area.path) as own:
            remove_tree(own, new_upper.name)
            own.mkdir(new_upper.name, 0o700)
        with (
            Folder.at(new_upper) as new,
            Folder.at(self._area.path / "upper") as old,
            Folder.at(self._area.workspace) as host,
        ):
            for path in sorted(changed):
                record, parent = changed[path], path.rpartition("/")[0]
                if parent and (parent not in now or now[parent][0] != "directory"):
                    continue  # deleted with its directory
                _make_parents(new, host, path, modes)
                if record is None:
                    make_whiteout(new, path)
                elif record[0] == "directory":
                    new.mkdir(path, 0o700)
                    modes[path] = record[1]
                elif record[0] == "link":
                    new.symlink(record[4], path)
                elif record[0] == "file" and path in kept:
                    old.link(path, path, into=new)
                elif record[0] == "file":
                    os.close(new.create(path))
                    if base.get(path, ("",))[0] == "file":
                        _mark_as_changed(new, host, path)
                    files[path] = record
                else:
                    new.mknod(
                        path, stat.S_IFIFO | 0o600
                    )  # a socket or device, too: it cannot be applied either
        return files, modes

    async def _fetch(self, new_upper: Path, files: Listing) -> None:
        with Folder.at(new_upper) as new:

            async def fetch(path: str) -> None:
                _, mode, size, *_ = files[path]
                with closing(new.open(path, os.O_WRONLY)) as target:
                    grew = f"{path} grew while it was copied; look again"
                    await self._files.get(
                        path, up_to(size, grew, partial(write_all, target))
                    )
                    os.fchmod(target, mode | 0o400)

            await a_few_at_once(fetch, files)

    # What is remembered in the area.

    def _state(self) -> dict[str, Listing]:
        with Folder.at(self._area.path) as own:
            state = json.loads(own.read(COPIED, STATE_MAX))
        return {
            name: {path: (r[0], r[1], r[2], r[3], r[4]) for path, r in part.items()}
            for name, part in state.items()
        }

    async def _note(self, **listings: Listing) -> None:
        def write() -> None:
            with Folder.at(self._area.path) as own:
                own.write(COPIED, json.dumps(listings).encode())

        await to_thread.run_sync(write)


def _record(info: FileInfo) -> Record:
    return info.kind, info.mode & 0o777, info.size, info.mtime_ns, info.target or ""


def _key(record: Record | None) -> tuple[object, ...]:
    """The parts to compare: a directory's time and size depend on its contents."""
    if record is None:
        return ()
    kind, mode, size, mtime, target = record
    return (
        (kind, target)
        if kind == "link"
        else (kind, mode)
        if kind == "directory"
        else (kind, mode, size, mtime)
    )


def _make_parents(new: Folder, host: Folder, path: str, modes: dict[str, int]) -> None:
    """Make the directories above a change, with the modes they have on the host."""
    for above in parents(path):
        if not new.exists(above):
            new.mkdir(above, 0o700)
            with suppress(OSError):
                modes[above] = stat.S_IMODE(host.stat(above).st_mode)


def _mark_as_changed(new: Folder, host: Folder, path: str) -> None:
    """Give a changed file the attributes of the host's file, and an overlay's mark that it was copied from there."""
    with suppress(OSError):
        new.set_xattr(path, ORIGIN, b"\0")
        for name, value in host.xattrs(path).items():
            if is_users(name):
                new.set_xattr(path, name, value)


def _mib(size: int) -> str:
    return f"{size / (1 << 20):.0f} MiB"
