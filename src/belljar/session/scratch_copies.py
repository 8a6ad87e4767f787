"""/tmp and home in checkpoints: packed by the init's tools, and unpacked again at a rollback or in a fork.

Bounded: more than `MOST` bytes are left out, and whoever made the checkpoint is told. Home is left out as well where
something of the host is mounted in it (a cache), and of a sandbox whose commands are root.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from anyio import to_thread

from belljar.errors import FileFailed
from belljar.layout import HOME
from belljar.network.client_settings import BUNDLE, SETTINGS
from belljar.sandbox.launch import Plan
from belljar.session.archive import CHUNK
from belljar.session.files import Files, up_to
from belljar.syscalls import write_all

MOST = 32 << 20
OURS = {BUNDLE, *SETTINGS}


def roots(plan: Plan) -> list[str]:
    mounted = bool(plan.cache) or any(target.startswith(f"{HOME}/") for target, _ in plan.mounts)
    return ["/tmp"] if mounted or plan.root else ["/tmp", HOME]


async def keep(files: Files, plan: Plan, place: Path) -> None:
    """`place` is a file name's beginning; each directory gets a file of its own, or none."""
    for root in roots(plan):
        with suppress(FileFailed):  # too much, or it cannot be read: then there is no copy
            await _pack(files, root, _copy(place, root))


async def _pack(files: Files, root: str, target: Path) -> None:
    descriptor = await to_thread.run_sync(os.open, target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        await files.pack(root, up_to(MOST, f"{root} holds more than {MOST} bytes", partial(write_all, descriptor)))
    except BaseException:
        os.unlink(target)
        raise
    finally:
        os.close(descriptor)


async def bring_back(files: Files, plan: Plan, place: Path) -> None:
    """What has no copy stays as it is."""
    for root in roots(plan):
        copy = _copy(place, root)
        if await to_thread.run_sync(copy.is_file):
            for each in await files.list(root):
                if f"{root}/{each.path}" not in OURS:
                    await files.remove(f"{root}/{each.path}")
            await files.unpack(_pieces(copy), root)


def left_out(plan: Plan, place: Path) -> list[str]:
    """The directories that a checkpoint does not hold."""
    return [root for root in ("/tmp", HOME) if root not in roots(plan) or not _copy(place, root).is_file()]


def _copy(place: Path, root: str) -> Path:
    return place.with_name(f"{place.name}.{root.strip('/').replace('/', '-')}")


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while part := file.read(CHUNK):
            yield part
