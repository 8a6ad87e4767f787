"""`Change`: one path that a staged session changed."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Sequence
from dataclasses import asdict, field, replace
from typing import Any, Literal

from belljar.errors import UsageError
from belljar.records import record
from belljar.workspace.beneath import parents as directories_above

Kind = Literal["added", "modified", "deleted", "mode", "type"]
EntryKind = Literal["file", "directory", "link", "fifo", "socket", "device", "too_deep"]
"""`too_deep`: a directory that is nested too deeply to be read."""

KINDS: dict[int, EntryKind] = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "directory",
    stat.S_IFLNK: "link",
    stat.S_IFIFO: "fifo",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
}
PLAIN = ("file", "directory", "link")
"""The kinds that can be applied."""


@record
class Entry:
    """A file, directory or link, on the host or staged."""

    kind: EntryKind
    mode: int
    """Permission bits, without set-id bits."""
    size: int = 0
    target: str | None = None
    """Of a link."""

    @classmethod
    def of(cls, status: os.stat_result, target: str | None = None) -> Entry:
        kind = KINDS.get(stat.S_IFMT(status.st_mode), "device")
        return cls(
            kind,
            stat.S_IMODE(status.st_mode) & 0o1777,
            status.st_size if kind == "file" else 0,
            target,
        )


@record
class Change:
    """One path that differs from the host. All changes in `.git` are one change.

    for change in await box.changes():
        print(change.kind, change.path)
    """

    path: str
    kind: Kind
    before: Entry | None = None
    """On the host."""
    after: Entry | None = None
    """In the staged session."""
    binary: bool = False
    runs_later: bool = False
    """The host would run it by itself (a hook, an editor's task, a CI job). Applying it needs a separate yes."""
    ignored: bool = False
    """The project's own `.gitignore` ignores it: it is not shown or applied unless somebody asks for it."""
    conflict: str = ""
    """What happened on the host's side, if that changed as well; only in lists for a person."""
    added: int | None = None
    """Lines, of a text file; only in lists for a person."""
    removed: int | None = None
    seal: str = field(default="", repr=False)
    """Changes with the contents, on either side."""
    members: tuple[Change, ...] = field(default=(), repr=False)
    """The single changes in `.git`."""

    @property
    def mark(self) -> str:
        return {
            "added": "+",
            "deleted": "-",
            "modified": "~",
            "mode": "~",
            "type": "~",
        }[self.kind]

    @property
    def is_directory(self) -> bool:
        """Whether it is a directory after the change, or was one before it was deleted."""
        side = self.after or self.before
        return side is not None and side.kind == "directory"

    @property
    def kinds(self) -> tuple[EntryKind, ...]:
        """What it was and what it is."""
        return tuple(
            side.kind for side in (self.before, self.after) if side is not None
        )

    @property
    def can_be_applied(self) -> bool:
        """False for a FIFO, a socket, a device, or a directory that is nested too deeply."""
        return self.after is None or self.after.kind in PLAIN

    @property
    def size(self) -> int:
        """Bytes, of a file as it is now, or as it was before it was deleted."""
        side = self.after or self.before
        return side.size if side is not None else 0

    @property
    def plain(self) -> Change:
        """Without what only lists for a person have."""
        return replace(self, conflict="", added=None, removed=None, seal="")

    def as_dict(self) -> dict[str, Any]:
        facts = asdict(replace(self, members=()))
        del facts["members"], facts["seal"]
        return facts | {"size": self.size}


def etag(changes: Iterable[Change]) -> str:
    """Of a list of changes and all their contents, on both sides."""
    sha = hashlib.sha256()
    for change in changes:
        for one in (change, *change.members):
            facts = f"{one.path}\0{one.kind}\0{one.before}\0{one.after}\0{one.runs_later}\0{one.seal}\n"
            sha.update(facts.encode("utf-8", "surrogateescape"))
    return sha.hexdigest()[:32]


def without_ignored(changes: Iterable[Change]) -> list[Change]:
    return [change for change in changes if not change.ignored]


def ignored_in_words(changes: Iterable[Change]) -> str:
    """`71 ignored files, 3.2 MiB`; empty if there are none."""
    files = [change for change in changes if change.ignored and not change.is_directory]
    if not files:
        return ""
    return f"{len(files)} ignored file{'s' if len(files) > 1 else ''}, {in_bytes(sum(one.size for one in files))}"


def in_bytes(size: int) -> str:
    """`3.2 MiB`."""
    amount, unit = float(size), "bytes"
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if amount < 1024 or unit == "GiB":
            break
        amount /= 1024
    return f"{amount:.1f} {unit}" if unit != "bytes" else f"{size} bytes"


def counted(changes: Iterable[Change]) -> str:
    """`+12 −3 ~40`, as `belljar session list` shows it."""
    marks = [change.mark for change in changes]
    parts = [
        f"{sign}{marks.count(mark)}"
        for mark, sign in (("+", "+"), ("-", "−"), ("~", "~"))
        if mark in marks
    ]
    return " ".join(parts) or "no changes"


def select(
    changes: Sequence[Change], paths: Iterable[str] | None, *, parents: bool = True
) -> list[Change]:
    """The changes at or below these paths, and (`parents`) the new directories they need."""
    if paths is None:
        return list(changes)
    tops = dict.fromkeys(cleaned(path) for path in paths)
    around = {
        change.path: {"", change.path, *directories_above(change.path)}
        for change in changes
    }
    reached = {path for places in around.values() for path in places}
    for path in tops:
        if path not in reached:
            raise UsageError(f"{path}: nothing changed there")
    chosen = [change for change in changes if not around[change.path].isdisjoint(tops)]
    if not parents:
        return chosen
    known = {change.path for change in chosen}
    needed = {
        above for change in chosen for above in directories_above(change.path)
    } - known
    extra = [c for c in changes if c.path in needed and c.kind in ("added", "type")]
    return [*extra, *chosen]


def has_changes(changes: Sequence[Change], path: str) -> bool:
    return any(covers(cleaned(path), change.path) for change in changes)


def cleaned(path: str) -> str:
    cleaned = os.path.normpath(path)
    if cleaned == ".." or cleaned.startswith(("/", "../")) or "\0" in path:
        raise UsageError(f"{path!r} is not a path below the workspace")
    return "" if cleaned == "." else cleaned


def covers(path: str, changed: str) -> bool:
    return not path or changed == path or changed.startswith(f"{path}/")
