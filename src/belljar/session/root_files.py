"""What a sandbox with root inside has changed of its root file system, for snapshots.

It is found by comparing with a sandbox of the same options in which nothing has run. What is kept belongs to root when
it is put back, and has no set-id bits.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anyio import to_thread

from belljar.errors import FileFailed, UsageError
from belljar.sandbox.sandbox import Sandbox
from belljar.session.archive import CHUNK, HEAD
from belljar.session.files import FileInfo, Files, up_to
from belljar.session.init_tools import InitTools
from belljar.session.staged_inside import tops
from belljar.syscalls import closing, write_all
from belljar.tasks import a_few_at_once

if TYPE_CHECKING:
    from belljar.host import Host
    from belljar.session.inside import Inside

NOT_OF_IT = frozenset({"proc", "sys", "dev", "tmp", "workspace", "run"})
"""The kernel's, or kept otherwise, or of the moment."""
DEEPEST = 128
LIST = "root.json"
Found = dict[str, FileInfo]


async def keep(inside: Inside, host: Host, made: Path, left: int) -> None:
    """Into the directory `made`: a list, and a numbered file for each file."""
    before, now = await _pristine(inside, host), await _listing(inside.files)
    changed = {
        path: info for path, info in now.items() if _key(info) != _key(before.get(path))
    }
    size = sum(info.size for info in changed.values() if info.kind == "file")
    if size > left:
        raise UsageError(
            f"no snapshot: {size >> 20} MiB of the root file system changed, and there is room for {left >> 20} MiB: "
            "`belljar snapshots remove NAME` makes some"
        )
    gone = tops(
        [
            path
            for path in before
            if path not in now or now[path].kind != before[path].kind
        ]
    )
    numbers = {
        path: number
        for number, path in enumerate(sorted(changed))
        if changed[path].kind == "file"
    }
    await to_thread.run_sync(made.mkdir)

    async def fetch(path: str) -> None:
        target = await to_thread.run_sync(_create, made / str(numbers[path]))
        with closing(target):
            grew = f"{path} grew while it was kept; try again"
            await inside.files.get(
                path, up_to(changed[path].size, grew, partial(write_all, target))
            )

    await a_few_at_once(fetch, numbers)
    entries = [
        {
            "path": path,
            "kind": info.kind,
            "mode": info.mode & 0o777,
            "target": info.target or "",
            "number": numbers.get(path),
        }
        for path, info in sorted(changed.items())
        if info.kind in ("file", "directory", "link")
    ]
    await to_thread.run_sync(
        (made / LIST).write_text, json.dumps({"gone": gone, "entries": entries})
    )


async def _pristine(inside: Inside, host: Host) -> Found:
    own: dict[str, Any] = {
        "changes": "direct",
        "id": None,
        "keep": False,
        "keepable": False,
        "name": None,
        "snapshot": None,
        "base": "",
        "continues": "",
        "on_close": None,
    }
    sandbox = await Sandbox.launch(replace(inside.options, **own), host)
    try:
        return await _listing(Files(InitTools(lambda: sandbox).run))
    finally:
        await sandbox.destroy()


async def _listing(files: Files) -> Found:
    found: Found = {}
    for top in await files.list("/"):
        if top.path in NOT_OF_IT or top.path.startswith(".belljar"):
            continue
        found[f"/{top.path}"] = top
        if top.kind == "directory":
            below = await files.list(f"/{top.path}", depth=DEEPEST)
            found |= {f"/{top.path}/{info.path}": info for info in below}
    return found


def _key(info: FileInfo | None) -> tuple[Any, ...]:
    """The parts to compare: a directory's time and size depend on its contents."""
    if info is None:
        return ()
    if info.kind == "directory":
        return info.kind, info.mode
    return info.kind, info.mode, info.size, info.mtime_ns, info.target


def _create(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)


async def bring_back(files: Files, made: Path) -> None:
    """Put what was kept into a new sandbox."""
    saved = json.loads(await to_thread.run_sync((made / LIST).read_text))
    for path in saved["gone"]:
        try:
            await files.remove(path)
        except FileFailed as error:
            if error.errno != errno.ENOENT:
                raise
    await files.unpack(_packed(saved["entries"], made), "/")


def _packed(entries: list[dict[str, Any]], made: Path) -> Iterator[bytes]:
    """As the init unpacks it; a directory comes before what is in it, and gets a mode without write at the end."""
    locked: list[bytes] = []
    for entry in entries:
        name, mode = os.fsencode(entry["path"].lstrip("/")), int(entry["mode"])
        if entry["kind"] == "directory":
            yield HEAD.pack(b"d", mode | 0o700, 0, len(name)) + name
            if mode & 0o700 != 0o700:
                locked.append(HEAD.pack(b"d", mode, 0, len(name)) + name)
        elif entry["kind"] == "link":
            target = os.fsencode(entry["target"])
            yield HEAD.pack(b"l", mode, len(target), len(name)) + name + target
        else:
            yield from _file(made / str(entry["number"]), name, mode)
    yield from reversed(locked)
    yield HEAD.pack(b"e", 0, 0, 0)


def _file(path: Path, name: bytes, mode: int) -> Iterator[bytes]:
    with path.open("rb") as file:
        yield HEAD.pack(b"f", mode, os.fstat(file.fileno()).st_size, len(name)) + name
        while part := file.read(CHUNK):
            yield part


def is_kept(made: Path) -> bool:
    with suppress(OSError):
        return (made / LIST).is_file()
    return False
