"""The journal of an apply: its steps, written to the area before the first of them is done.

If we are killed before the journal is complete, nothing has happened; if later, the next process that takes the lock
does the rest (`recover`), since every step can be repeated. A step that is refused (no permission, no space) undoes
those before it. Files are written to a temporary name and renamed.
"""

from __future__ import annotations

import base64
import errno
import json
import os
import posixpath
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from types import MappingProxyType
from typing import Any, NoReturn

from belljar.errors import BelljarError, UsageError
from belljar.staged import git_index
from belljar.staged.area import StagedArea
from belljar.staged.change import Change
from belljar.staged.copying import (
    copy_attributes,
    copy_file,
    digest,
    flush,
    remove_tree,
    write_file,
)
from belljar.staged.layers import Layers
from belljar.staged.merge import (
    is_as_it_was,
    keep_applied,
    take_next_bases,
)
from belljar.staged.saved import (
    bring_back,
    every,
    make_writable,
    push,
    read_only_parents,
    restore_modes,
    save,
)
from belljar.staged.settled import DELETED, LARGEST, large, settled
from belljar.workspace.beneath import Folder, Owner

NAME = "journal.json"
BATCH = 20_000  # files that are beside their places at a time
BATCH_BYTES = 1 << 30  # and what they hold, unless a single one has more
FEW = 8  # files that are waited for one by one, whatever else the file system has to write
Step = Callable[[str], None]
"""Called before each step; tests kill the process there."""


def carry_out(
    area: StagedArea,
    layers: Layers,
    changes: Sequence[Change],
    steps: list[dict[str, Any]],
    merged: dict[str, str],
    step: Step,
) -> None:
    with Folder.at(area.path) as own, layers.keeping(), own.keeping():
        try:
            saved = _save_all(own, layers.lower, changes, step)
            facts = {
                "token": secrets.token_hex(6),
                "steps": steps,
                "saved": saved,
                "merged": merged,
                "newer_on_host": _newer(area, layers, saved),
                "read_only": read_only_parents(
                    layers.lower, [change.path for change in changes]
                ),
            }
            step("journal")
            own.write(NAME, json.dumps(facts).encode())
        except OSError as error:
            remove_tree(own, "undo.new")
            raise BelljarError(f"nothing was applied: {said(error)}") from error
        journal = Journal(area, own, layers, facts)
        try:
            journal.perform(step)
        except OSError as error:
            journal.take_back(error)


def recover(area: StagedArea, step: Step = lambda name: None) -> list[str]:
    """Finish an apply that was killed, and return its paths. The caller holds the lock."""
    with Folder.at(area.path) as own:
        if not own.exists(NAME):
            return []
        with area.layers() as layers, layers.keeping(), own.keeping():
            journal = Journal(area, own, layers, json.loads(own.read(NAME, 1 << 30)))
            try:
                journal.perform(step)
                return [one["path"] for one in journal._saved]
            except OSError as error:
                if error.errno == errno.ESTALE:
                    journal.take_back(error)
                raise BelljarError(
                    f"an apply that was cut off cannot be finished: {said(error)}; "
                    "fix that and apply again, or discard all"
                ) from error


def said(error: OSError) -> str:
    return f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}"


def _save_all(
    own: Folder, lower: Folder, changes: Sequence[Change], step: Step
) -> list[dict[str, Any]]:
    step("save")
    remove_tree(own, "undo.new")
    own.mkdir("undo.new", 0o700)
    found = [
        save(own, lower, change.path, str(number), step, whole=change.kind != "mode")
        for number, change in enumerate(changes)
    ]
    if any(one["kind"] in ("file", "directory") for one in found):
        flush(own)
    return found


def _newer(area: StagedArea, layers: Layers, saved: list[dict[str, Any]]) -> list[str]:
    """What the host changed since the session began."""
    since, applied = area.since, area.applied
    there = [(one["path"], one["ctime"]) for one in every(saved)]
    newer = [
        path for path, when in there if when >= since and applied.get(path) != when
    ]
    return [path for path in newer if not is_as_it_was(area, layers, path)]


def steps_for(
    changes: Sequence[Change],
    contents: Mapping[str, bytes],
    digests: Mapping[str, str],
    seals: Mapping[str, str] = MappingProxyType({}),
) -> list[dict[str, Any]]:
    """Removals, new directories, files and links; modes come last, since a read-only directory must be filled first."""
    removals, directories, files, modes = [], [], [], []
    for change in sorted(changes, key=lambda change: change.path):
        path, after = change.path, change.after
        if after is None or (
            change.kind == "type" and "directory" in change.kinds
        ):  # a rename cannot replace that
            removals.append({"do": "remove", "path": path})
        if after is None:
            continue
        if after.kind == "directory" and change.kind != "mode":
            directories.append({"do": "mkdir", "path": path})
        if after.kind == "directory" or change.kind == "mode":
            modes.append({"do": "chmod", "path": path, "mode": after.mode})
            continue
        file: dict[str, Any] = {
            "do": after.kind,
            "path": path,
            "mode": after.mode,
            "size": after.size,
            "target": after.target,
        }
        if path in contents:
            file["text"] = base64.b64encode(contents[path]).decode()
        elif path in digests:
            file["digest"] = digests[path]
        elif path in seals:
            file["seal"] = seals[path].rpartition("/")[2]
        files.append(file)
    return [*reversed(removals), *directories, *files, *reversed(modes)]


def _batches(
    steps: Iterable[tuple[int, dict[str, Any]]],
) -> Iterator[list[tuple[int, dict[str, Any]]]]:
    """As many as may be beside their places at a time. Few batches: ext4 makes files slowly where it has just removed
    many, and each rename removes the old file."""
    batch: list[tuple[int, dict[str, Any]]] = []
    room = BATCH_BYTES
    for numbered in steps:
        size = numbered[1].get("size", 0)
        if batch and (len(batch) == BATCH or size > room):
            yield batch
            batch, room = [], BATCH_BYTES
        batch.append(numbered)
        room -= size
    if batch:
        yield batch


class Journal:
    """An apply whose journal is written."""

    def __init__(
        self, area: StagedArea, own: Folder, layers: Layers, facts: dict[str, Any]
    ) -> None:
        self._area, self._own, self._layers, self._lower = (
            area,
            own,
            layers,
            layers.lower,
        )
        self._facts, self._steps, self._saved = facts, facts["steps"], facts["saved"]
        self._large: dict[str, str] = {}
        """Path → the state of a large file when it was copied."""

    def perform(self, step: Step) -> None:
        """Do the steps; each may have been done already."""
        times: dict[str, int] = {}
        make_writable(self._lower, [one["path"] for one in self._steps])
        for is_put, group in groupby(
            enumerate(self._steps),
            lambda numbered: numbered[1]["do"] in ("file", "link"),
        ):
            for some in _batches(group):
                if is_put:
                    self._replace(dict(some), step)
                else:
                    for _, one in some:
                        step(f"{one['do']} {one['path']}")
                        self._do(one)
                for _, one in some:
                    with suppress(OSError):
                        times[one["path"]] = self._lower.stat(one["path"]).st_ctime_ns
        changed = {one["path"] for one in self._steps if one["do"] == "chmod"}
        unchanged = {
            path: mode
            for path, mode in self._facts["read_only"].items()
            if path not in changed
        }
        restore_modes(self._lower, unchanged)
        whole = [
            one["path"]
            for one in self._steps
            if one["do"] == "file" and "text" not in one
        ]
        step("note")
        self._note_applied(times, whole)
        step("undo")
        if self._own.exists(
            "undo.new"
        ):  # else we were killed after the rename in `push`
            indexes = {
                path: found.hex()
                for path in whole
                if (found := git_index.meaning_of(self._lower, path))
            }
            kept = {
                "saved": self._saved,
                "newer_on_host": self._facts["newer_on_host"],
                "times": times,
                "indexes": indexes,
            }
            self._own.write("undo.new/saved.json", json.dumps(kept).encode())
            push(self._own)
        step("forget")
        self._own.unlink(NAME)

    def _note_applied(self, times: dict[str, int], whole: list[str]) -> None:
        merged = self._facts["merged"]
        times = {path: when for path, when in times.items() if path not in merged}
        take_next_bases(self._own, merged)
        keep_applied(
            self._own,
            self._lower,
            times,
            [path for path in whole if path not in merged],
        )
        self._area.note_applied(times, {**self._settled(), **merged})

    def _settled(self) -> dict[str, str]:
        """What was applied, path by path. A sandbox may have changed its files since, so ours are looked at."""
        found: dict[str, str] = {}
        for one in self._steps:
            path = one["path"]
            if one["do"] == "remove":
                found[path] = DELETED
            elif path in self._large:
                found[path] = f"{self._large[path]} {one['mode'] & 0o1777:o}"
            else:
                with suppress(OSError):
                    found[path] = settled(self._lower, path)
        return found

    def take_back(self, error: OSError) -> NoReturn:
        """Undo the steps before one that was refused. Where even that is refused the journal stays: each file is whole,
        and the next apply does the rest."""
        try:
            make_writable(self._lower, [one["path"] for one in self._saved])
            for one in reversed(self._saved):
                bring_back(self._own, self._lower, one, "undo.new")
            flush(self._lower)
            restore_modes(self._lower, self._facts["read_only"])
            note_restored(self._area, self._lower, self._facts)
            self._own.unlink(NAME)
        except OSError:
            message = f"applied in part ({said(error)}); `belljar apply` does the rest once that is fixed"
            raise BelljarError(message) from error
        raise BelljarError(f"nothing was applied: {said(error)}") from error

    def _replace(self, steps: dict[int, dict[str, Any]], step: Step) -> None:
        """Write files beside their places, wait until all are on disk, then rename them."""
        lower, token = self._lower, self._facts["token"]
        wait = len(steps) <= FEW
        beside = {
            n: posixpath.join(posixpath.dirname(one["path"]), f".{token}.{n}.belljar")
            for n, one in steps.items()
        }
        try:
            for number, one in steps.items():
                step(f"{one['do']} {one['path']}")
                try:
                    self._put(one, beside[number], wait=wait)
                except FileExistsError:  # we were killed when it was there
                    remove_tree(lower, beside[number])
                    self._put(one, beside[number], wait=wait)
            if not wait:
                flush(lower)
            for number, one in steps.items():
                step(f"rename {one['path']}")
                lower.rename(beside[number], one["path"])
        except BaseException:
            for name in beside.values():
                with suppress(OSError):
                    remove_tree(lower, name)
            raise

    def _do(self, one: dict[str, Any]) -> None:
        lower, path = self._lower, one["path"]
        if one["do"] == "remove":
            remove_tree(lower, path)
        elif one["do"] == "mkdir":
            with suppress(FileExistsError):
                lower.mkdir(path, 0o700, self._owner_of(path.rpartition("/")[0]))
        else:
            lower.chmod(path, one["mode"] & 0o777)

    def _put(self, one: dict[str, Any], beside: str, *, wait: bool) -> None:
        lower, path, mode = self._lower, one["path"], one["mode"] & 0o777
        owner = self._owner_of(path, path.rpartition("/")[0])
        holder = self._layers.holder(path)
        if one["do"] == "link":
            lower.symlink(one["target"], beside, owner)
        elif "text" in one:
            write_file(
                lower,
                beside,
                base64.b64decode(one["text"]),
                mode,
                owner=owner,
                wait=wait,
            )
            if holder is not None:
                copy_attributes(holder, path, lower, beside)
        elif holder is None:
            raise UsageError(f"{path} is no longer among the staged changes")
        else:
            copied = copy_file(
                holder, path, lower, beside, mode, owner=owner, wait=wait
            )
            if copied.st_size > LARGEST:
                self._large[path] = large(copied)
            if "seal" in one and not self._layers.is_still(holder, path, one["seal"]):
                raise OSError(
                    errno.ESTALE, "changed in the sandbox since it was shown", path
                )
            if "digest" in one and digest(lower, beside) != one["digest"]:
                raise OSError(
                    errno.ESTALE, "changed in the sandbox since it was shown", path
                )

    def _owner_of(self, *models: str) -> Owner | None:
        """A replaced file keeps its owner; a new one gets that of its directory. None: we are not root."""
        if os.geteuid() != 0:
            return None
        for model in models[:-1]:
            with suppress(OSError):
                status = self._lower.stat(model)
                return status.st_uid, status.st_gid
        status = self._lower.stat(models[-1])
        return status.st_uid, status.st_gid


def note_restored(area: StagedArea, lower: Folder, kept: dict[str, Any]) -> None:
    """Restored files are not changes of the host; but those that the host had changed before the apply still are."""
    back = [
        one["path"]
        for one in every(kept["saved"])
        if one["path"] not in kept["newer_on_host"]
    ]
    times = {path: lower.stat(path).st_ctime_ns for path in back if lower.exists(path)}
    area.note_applied(times, forget=[one["path"] for one in kept["saved"]])
