"""Reads the audit trail, and verifies its chain.

The chain shows an edited, missing or moved line; the head file (see writer.py) shows that the end was cut off.
Somebody who may write to the directory can rewrite both: if that matters, keep `seq` and `hash` of the last record
elsewhere (`belljar audit verify --json` prints them).

Root reads the trails of users, too: only regular files are opened, no links are followed, and no line is read for ever.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Literal

from belljar.audit.writer import (
    GENESIS,
    HEAD,
    HEAD_LOST,
    NAME,
    Head,
    rotated_files,
    unseal,
)
from belljar.errors import AuditError

_LONGEST = 16 << 20  # bytes of a line; the longest records are far shorter
_USUAL = 1024  # bytes of a record
_ALTERED = "the line is not as it was written: its hash does not fit"
Fault = Literal["edited", "missing", "reordered", "truncated"]


@dataclass(frozen=True)
class Line:
    path: Path
    number: int
    raw: bytes
    record: dict[str, Any] | None
    """None: the line was altered."""

    def __str__(self) -> str:
        return f"{self.path}:{self.number}"


@dataclass
class Report:
    records: int = 0
    seq: int = 0
    hash: str = GENESIS
    torn: list[str] = field(default_factory=list)
    """Lines that a killed writer left unfinished; the chain goes on after them."""
    fault: Fault | None = None
    at: str | None = None
    reason: str | None = None

    @property
    def ok(self) -> bool:
        return self.fault is None

    def as_dict(self) -> dict[str, Any]:
        return {"ok": self.ok, **asdict(self)}

    def _blame(self, fault: Fault, at: Line | str, reason: str) -> Report:
        self.fault, self.at, self.reason = fault, str(at), reason
        return self


def _opened(path: Path) -> BinaryIO:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        file = os.fdopen(os.open(path, flags), "rb")
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _no_file(path) from None
        raise
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise _no_file(path)
    return file


def _no_file(path: Path) -> AuditError:
    return AuditError(f"{path} is no file of a trail: a link, or no regular file")


def files(where: Path) -> list[Path]:
    return [*rotated_files(where), *(p for p in [where / NAME] if p.exists())]


def lines(where: Path) -> Iterator[Line]:
    return lines_of(*files(where))


def lines_of(*paths: Path) -> Iterator[Line]:
    for path in paths:
        with _opened(path) as trail:
            for number, raw in enumerate(
                iter(partial(trail.readline, _LONGEST), b""), 1
            ):
                whole = raw.endswith(b"\n")
                yield Line(path, number, raw, unseal(raw[:-1]) if whole else None)


def records(where: Path) -> Iterator[dict[str, Any]]:
    return (line.record for line in lines(where) if line.record is not None)


def newest(where: Path, most: int) -> list[dict[str, Any]]:
    """The last records, oldest first, read from the end of the current file."""
    path = where / NAME
    if not path.exists():
        return []
    with _opened(path) as trail:
        size = trail.seek(0, 2)
        trail.seek(max(0, size - most * _USUAL))
        raw = trail.read().split(b"\n")
    found = (unseal(line) for line in raw[:-1])
    return [record for record in found if record is not None][-most:]


def unfinished(records: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The `start` records without an `end`: of commands that still run, or whose host died."""
    running: dict[tuple[Any, Any], list[dict[str, Any]]] = {}
    for record in records:
        key = record.get("session"), record.get("digest")
        if record["kind"] == "start":
            running.setdefault(key, []).append(record)
        elif record["kind"] == "end" and running.get(key):
            running[key].pop(0)
    return sorted(
        (start for starts in running.values() for start in starts),
        key=lambda record: record["seq"],
    )


def verify(where: Path) -> Report:
    """Check the chain; the report names the first line that breaks it."""
    head = _head(where)
    report = Report(seq=head.first - 1 if head else 0)
    previous: Line | None = None
    unread: list[Line] = []
    for line in lines(where):
        if line.record is None:
            unread.append(line)
            continue
        if unread and not _torn(unread, line.record, report.seq + 1):
            return report._blame("edited", unread[0], _ALTERED)
        report.torn += [
            f"{each}: a writer was stopped in the middle of this line"
            for each in unread
        ]
        unread.clear()
        if not _follows(report, previous, line, where):
            return report
        if line.record["kind"] == HEAD_LOST:
            return report._blame(
                "missing",
                line,
                "the head of the chain was gone: records before this may be, too",
            )
        report.records += 1
        report.seq = line.record["seq"]
        report.hash = line.record["hash"]
        previous = line
    return _end(report, head, unread, where)


def _torn(unread: list[Line], record: dict[str, Any], seq: int) -> bool:
    """Whether a writer was killed in the middle of this line: then the next writer recorded that."""
    closed = record["kind"] == "torn" and record["seq"] == seq
    return (
        closed
        and len(unread) == 1
        and record.get("bytes") == len(unread[0].raw) - len(b"\n")
    )


def _follows(report: Report, previous: Line | None, line: Line, where: Path) -> bool:
    assert line.record is not None
    expected, seq = report.seq + 1, line.record["seq"]
    if seq == expected and (
        line.record["prev"] == report.hash or (report.records == 0 and expected > 1)
    ):
        return True
    if seq == expected:
        report._blame(
            "edited",
            previous or line,
            "the next line is not chained to what stands here",
        )
    elif seq < expected or any(r["seq"] == expected for r in records(where)):
        report._blame(
            "reordered", line, f"record {seq} stands where record {expected} belongs"
        )
    else:
        report._blame(
            "missing", line, f"{seq - expected} records before this line are gone"
        )
    return False


def _end(report: Report, head: Head | None, unread: list[Line], where: Path) -> Report:
    last = f"{where / NAME}:{sum(1 for line in lines(where) if line.path.name == NAME)}"
    if unread and (
        len(unread) > 1
        or unread[0].raw.endswith(b"\n")
        or head is None
        or report.seq < head.seq
    ):
        return report._blame("edited", unread[0], _ALTERED)
    report.torn += [
        f"{each}: a writer was stopped in the middle of this line" for each in unread
    ]
    if head is None and report.seq > 0:
        return report._blame(
            "missing", str(where / HEAD), "the head of the chain is gone"
        )
    if head is None:
        return report
    if report.seq < head.seq:
        return report._blame(
            "truncated", last, f"it ends at record {report.seq} of {head.seq}"
        )
    if report.seq == head.seq and report.hash != head.hash:
        return report._blame(
            "edited", last, "the last record is not the one that was written last"
        )
    return report


def _head(where: Path) -> Head | None:
    try:
        with _opened(where / HEAD) as head:
            return Head.parse(head.read(_USUAL))
    except OSError:
        return None
