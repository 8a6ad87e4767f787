"""/tmp and home in checkpoints: packed by the init's tools, and unpacked at a rollback or in a fork.

A directory of more than `MOST` bytes is left out, and `left_out` says so. Home is also left out if something of the
host is mounted in it (a cache), and if commands run as root.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from anyio import to_thread

from belljar.errors import FileFailed
from belljar.network.client_settings import BUNDLE, SETTINGS
from belljar.options import SandboxOptions
from belljar.session.archive import CHUNK
from belljar.session.files import Files, up_to
from belljar.syscalls import closing, write_all

MOST = 32 << 20
OURS = {BUNDLE, *SETTINGS}


def roots(options: SandboxOptions) -> list[str]:
    mounted = bool(options.cache) or any(
        target.startswith(f"{options.home}/") for target, _ in options.mounts
    )
    return ["/tmp"] if mounted or options.root else ["/tmp", options.home]


async def keep(files: Files, options: SandboxOptions, place: Path) -> None:
    """Pack each directory into a file of its own; `place` is how the names of these files begin."""
    for root in roots(options):
        await keep_one(files, root, place, MOST)


async def keep_one(files: Files, root: str, place: Path, most: int) -> None:
    with suppress(FileFailed):  # too large or unreadable: then there is no copy
        await _pack(files, root, copy_of(place, root), most)


async def _pack(files: Files, root: str, target: Path, most: int = MOST) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with closing(await to_thread.run_sync(os.open, target, flags, 0o600)) as descriptor:
        try:
            await files.pack(
                root,
                up_to(
                    most,
                    f"{root} holds more than {most} bytes",
                    partial(write_all, descriptor),
                ),
            )
        except BaseException:
            os.unlink(target)
            raise


async def bring_back(files: Files, options: SandboxOptions, place: Path) -> None:
    """Restore the directories that have a copy; the others stay as they are."""
    for root in roots(options):
        if await to_thread.run_sync(copy_of(place, root).is_file):
            for info in await files.list(root):
                if f"{root}/{info.path}" not in OURS:
                    await files.remove(f"{root}/{info.path}")
            await unpack_one(files, root, place)


async def unpack_one(files: Files, root: str, place: Path) -> None:
    await files.unpack(_pieces(copy_of(place, root)), root)


def left_out(options: SandboxOptions, place: Path) -> list[str]:
    """The directories that a checkpoint does not hold."""
    return [
        root
        for root in ("/tmp", options.home)
        if root not in roots(options) or not copy_of(place, root).is_file()
    ]


def copy_of(place: Path, root: str) -> Path:
    """Where the copy of a directory is."""
    return place.with_name(f"{place.name}.{root.strip('/').replace('/', '-')}")


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while part := file.read(CHUNK):
            yield part
