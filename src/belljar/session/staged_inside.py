"""Discards or restores changes in a running sandbox, through the init's tools: works for every caller and engine."""

from __future__ import annotations

import errno
import stat
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path

from anyio import to_thread

from belljar.errors import FileFailed
from belljar.session.archive import Entries, Entry, opened, packed
from belljar.session.files import Files
from belljar.staged.change import PLAIN, Change
from belljar.staged.copying import level_attributes
from belljar.staged.layers import Layers, flattened
from belljar.workspace.beneath import Folder


async def reset(
    files: Files, layers: Layers, changes: Sequence[Change], upper: Path
) -> None:
    """Make these paths as they are on the host. `upper`: the directory that the sandbox's changes go to."""
    flat = sorted(flattened(changes), key=lambda change: change.path)
    read_only = await _opened(
        files, flat, lambda path: layers.holder(path) or layers.lower
    )
    await _remove(
        files,
        [
            c.path
            for c in flat
            if c.after is not None and (c.before is None or c.kind == "type")
        ],
    )
    await _write(files, lambda: chain(read_only, _of_host(layers, flat)), upper)


async def put(
    files: Files, layers: Layers, changes: Sequence[Change], upper: Path
) -> None:
    """Make these changes in a sandbox whose files are as on the host."""
    flat = sorted(flattened(changes), key=lambda change: change.path)
    read_only = await _opened(files, flat, lambda path: layers.lower)
    await _remove(files, [c.path for c in flat if c.kind in ("deleted", "type")])
    await _write(files, lambda: chain(read_only, _of_layers(layers, flat)), upper)


async def _opened(
    files: Files, changes: Sequence[Change], view: Callable[[str], Folder]
) -> list[Entry]:
    """Make read-only directories writable; returns those to be made read-only again. `view`: the folder that a path is
    in, as the sandbox sees it."""
    read_only: list[Entry] = []
    for parent in sorted({change.path.rpartition("/")[0] for change in changes} - {""}):
        with suppress(OSError):
            status = view(parent).stat(parent)
            if stat.S_ISDIR(status.st_mode) and status.st_mode & 0o300 != 0o300:
                read_only.append((view(parent), parent, status))
    if read_only:
        await files.unpack(opened(read_only))
    decided = {change.path for change in changes}
    return [entry for entry in read_only if entry[1] not in decided]


async def _write(files: Files, entries: Callable[[], Entries], upper: Path) -> None:
    """The init's archive has no extended attributes, so these are set on the host."""
    await files.unpack(packed(entries()))

    def set_attributes() -> None:
        with Folder.at(upper) as target:
            for folder, path, status in entries():
                if stat.S_ISREG(status.st_mode):
                    level_attributes(folder, target, path)

    await to_thread.run_sync(set_attributes)


async def _remove(files: Files, paths: Iterable[str]) -> None:
    for path in tops(paths):
        try:
            await files.remove(path)
        except FileFailed as error:
            if error.errno != errno.ENOENT:
                raise


def tops(paths: Iterable[str]) -> list[str]:
    """The paths without those that are below others."""
    result: list[str] = []
    for path in sorted(paths, key=lambda path: path.split("/")):
        if not result or not path.startswith(f"{result[-1]}/"):
            result.append(path)
    return result


def _of_host(layers: Layers, changes: Iterable[Change]) -> Entries:
    """The host's side; of a deleted or replaced directory with its contents."""
    for change in changes:
        if change.before is not None:
            with suppress(OSError):  # deleted on the host since
                yield layers.lower, change.path, layers.lower.stat(change.path)
            if change.before.kind == "directory" and change.kind != "mode":
                yield from (
                    (layers.lower, path, status)
                    for path, status in layers.lower.walk(change.path)
                )


def _of_layers(layers: Layers, changes: Iterable[Change]) -> Entries:
    for change in changes:
        holder = layers.holder(change.path)
        if (
            holder is not None
            and change.after is not None
            and change.after.kind in PLAIN
        ):
            yield holder, change.path, holder.stat(change.path)
