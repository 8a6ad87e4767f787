"""Writes the audit trail: one JSON line per verdict, approval, start, end and session event, in a hash chain.

A line is a JSON object whose last member, `hash`, is the SHA-256 of the line without that member;
`prev` is the hash of the line before, also across rotated files; `seq` counts without a gap. So an
edited, missing or moved line shows (`belljar audit verify`, see reader.py).

    audit.jsonl                the current file
    audit.000001.jsonl, …      rotated files, oldest first
    audit.head                 the end of the chain: seq, hash, size of audit.jsonl, number of the last
                               rotated file, first seq kept

`audit.head` is never renamed. Writers lock it (flock), and it tells them where the chain ends without reading the
trail. It exists before the first record. After a writer was killed, audit.jsonl may be longer than the head says: whole
lines that continue the chain are accepted, and a `torn` record follows a torn one. If the trail is *shorter* than the
head says, somebody cut it: writing goes on from the head, so that the gap stays visible. If the head is missing but the
trail is not, a `head_lost` record says so: nobody can tell how much was cut off.

The current file is rotated by size and, where that is set, by age. The records also go to other places (elsewhere.py),
after they are in the file. If those are required, nothing goes on until they have them.

A session only queues its records. A thread writes them a moment later, many at once, so that no command waits for the
lock and the disk. With BELLJAR_AUDIT=required every record is written before anything goes on.
"""

from __future__ import annotations

import atexit
import fcntl
import hashlib
import json
import logging
import os
import time
import weakref
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, NamedTuple, Protocol

from belljar import resources
from belljar.audit import log, masking
from belljar.audit.elsewhere import Elsewhere, Unreachable
from belljar.errors import AuditError, UsageError

NAME = "audit.jsonl"
HEAD = "audit.head"
HEAD_LOST = "head_lost"
GENESIS = "0" * 64
_ROTATE_AT = 16 << 20
_KEEP = 64
"""Rotated files that are kept: a gibibyte in all."""
_MOMENT = 0.005
"""Seconds until queued records are written: by then most commands have ended, and all their records go together."""
_OPEN = os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
_log = logging.getLogger("belljar.audit")


def rotated(where: Path, number: int) -> Path:
    return where / f"audit.{number:06}.jsonl"


def rotated_files(where: Path) -> list[Path]:
    return sorted(where.glob("audit.[0-9]*.jsonl"))


@dataclass(repr=False, eq=False)
class Head:
    seq: int = 0
    hash: str = GENESIS
    size: int = 0
    file: int = 0
    first: int = 1

    @classmethod
    def parse(cls, data: bytes) -> Head | None:
        """None if there is none yet, or it is damaged (a power cut); then it is rebuilt from the trail."""
        with suppress(ValueError, IndexError, UnicodeDecodeError):
            seq, digest, size, file, first = data.decode("ascii").split()
            if len(digest) == len(GENESIS):
                return cls(int(seq), digest, int(size), int(file), int(first))
        return None

    def line(self) -> bytes:
        return (
            f"{self.seq} {self.hash} {self.size} {self.file} {self.first}".ljust(
                159
            ).encode()
            + b"\n"
        )


_encode = json.JSONEncoder(separators=(",", ":"), default=str).encode


def seal(record: dict[str, Any]) -> tuple[bytes, str]:
    """The line of `record`, and its hash."""
    body = _encode(record)
    digest = hashlib.sha256(body.encode("ascii")).hexdigest()
    return f'{body[:-1]},"hash":"{digest}"}}\n'.encode("ascii"), digest


_TAIL = len(',"hash":"') + len(GENESIS) + len('"}')


def unseal(line: bytes) -> dict[str, Any] | None:
    """The record of a line; None if its hash does not match, or it is no record."""
    body = line[:-_TAIL] + b"}"
    if line[-_TAIL:] != f',"hash":"{hashlib.sha256(body).hexdigest()}"}}'.encode(
        "ascii"
    ):
        return None
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) and _is_record(record) else None


def _is_record(found: dict[str, Any]) -> bool:
    """Whoever may write to a trail can give any line a hash that fits."""
    texts = ("time", "kind", "prev")
    return type(found.get("seq")) is int and all(
        isinstance(found.get(name), str) for name in texts
    )


class Sealable(Protocol):
    """What can be written: it makes its record once its place in the chain is known."""

    def record(self, seq: int, prev: str) -> dict[str, Any]: ...
    def without_its_fields(self, reason: Exception) -> Sealable:
        """The record for one that cannot be encoded."""


class Note(NamedTuple):
    """A queued record."""

    pid: int
    time: float
    kind: str
    fields: dict[str, Any]

    def record(self, seq: int, prev: str) -> dict[str, Any]:
        seconds, micros = divmod(round(self.time * 1e6), 1_000_000)
        when = time.strftime(
            f"%Y-%m-%dT%H:%M:%S.{micros:06}+00:00", time.gmtime(seconds)
        )
        kept = {
            name: _kept(name, value)
            for name, value in self.fields.items()
            if value is not None
        }
        return {
            "seq": seq,
            "time": when,
            "kind": self.kind,
            "pid": self.pid,
            **_who(),
            **kept,
            "prev": prev,
        }

    def without_its_fields(self, reason: Exception) -> Note:
        """The record for a field that cannot be encoded, so that this and other records are not lost."""
        known = {
            name: value
            for name in ("session", "digest")
            if isinstance(value := self.fields.get(name), str)
        }
        return Note(
            self.pid,
            self.time,
            self.kind,
            {**known, "unwritable": type(reason).__name__},
        )


client: int | None = None
"""The process for which a worker of the local server acts."""


def _who() -> dict[str, Any]:
    """Who runs Belljar. The name is looked up once."""
    uid = os.getuid()
    found = {"uid": uid, "user": _name_of(uid)}
    return found if client is None else {**found, "client": client}


@cache
def _name_of(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return ""


class Audit:
    """Appends to the trail in `where`, opened at the first record. Safe for threads and other processes."""

    def __init__(
        self,
        where: Path | None = None,
        *,
        required: bool = False,
        rotate_at: int = _ROTATE_AT,
        rotate_after: float = 0,
        keep: int = _KEEP,
        to: Sequence[Elsewhere] = (),
    ) -> None:
        """`rotate_after`: seconds from a file's first record; 0: at no age. `to`: where records go besides."""
        self.where = where or resources.state_dir()
        self.required = required
        self.to = tuple(to)
        self._rotate_at, self._rotate_after, self._keep = rotate_at, rotate_after, keep
        self._began = 0.0
        """Unix time of the first record in the open file; 0: it has none, or that was not looked for."""
        self._thread_lock = Lock()
        self._head_fd = self._fd = self._file = -1
        self._pid = 0
        """The process that opened these descriptors."""
        self._notes: list[Note] = []
        self._wake_queue: SimpleQueue[bool] | None = None
        """True wakes the thread that writes the notes, False ends it."""
        self._wake_sent = False
        self._warned = False
        _live.add(self)

    @property
    def mode(self) -> str:
        """As BELLJAR_AUDIT says it."""
        return "required" if self.required else "on"

    def record(self, kind: str, **fields: Any) -> None:
        """Write one line. If that fails: AuditError if a trail is required, else one warning."""
        log.log_record(kind, fields)
        self._put(Note(os.getpid(), time.time(), kind, fields))

    def note(self, kind: str, **fields: Any) -> None:
        """Queue a record; it is written in a moment, or by the next `flush` or `record`."""
        log.log_record(kind, fields)
        self._notes.append(Note(os.getpid(), time.time(), kind, fields))
        if not self._wake_sent:
            self._wake_sent = True
            if self._wake_queue is None:
                self._wake_queue = SimpleQueue()
                Thread(
                    target=self._write_notes,
                    args=(self._wake_queue,),
                    name="belljar-audit",
                    daemon=True,
                ).start()
            self._wake_queue.put(True)

    def flush(self) -> None:
        """Write all queued records, and wait for those that the thread is writing."""
        self._put()

    def _write_notes(self, wake_queue: SimpleQueue[bool]) -> None:
        while wake_queue.get():
            time.sleep(_MOMENT)
            self._wake_sent = False  # first: a note from now on may miss this flush, and must wake us again
            try:
                self.flush()
            except Exception as error:  # later records must still be written
                self._warn(
                    f"the audit trail in {self.where} could not be written: {error!r}"
                )

    def _after_fork(self) -> None:
        """The child has no writer thread, and the parent's may have held the lock."""
        self._thread_lock = Lock()
        self._wake_queue = None
        self._wake_sent = False

    def _put(self, *last: Note) -> None:
        """Write the queued records and `last`, which is never queued, so that its caller gets the error."""
        try:
            with self._thread_lock:
                notes = self._notes[:]
                del self._notes[
                    : len(notes)
                ]  # in place: other threads append without the lock
                # After a fork, the parent writes what was queued before.
                own = [note for note in (*notes, *last) if note.pid == os.getpid()]
                if own:
                    self._append(own)
        except OSError as error:
            self._unwritable(error)

    def close(self) -> None:
        self.flush()
        if self._wake_queue is not None:
            self._wake_queue.put(False)
        with self._thread_lock:
            self._wake_queue, self._wake_sent = None, False
            self._close()

    def _unwritable(self, error: OSError) -> None:
        message = f"the audit trail in {self.where} cannot be written: {error.strerror or error}"
        if isinstance(error, Unreachable):
            message = str(error)
        if self.required:
            raise AuditError(
                f"{message}; nothing runs without it while the trail is required"
            ) from error
        self._warn(
            f"{message}; going on without it (BELLJAR_STATE names another place)"
        )

    def _warn(self, message: str) -> None:
        if not self._warned:
            _log.warning("%s", message)
        self._warned = True

    def _append(self, notes: Sequence[Sealable]) -> None:
        self._lock()
        try:
            head = self._current()
            if head.size >= self._rotate_at or self._is_old(head):
                self._rotate(head)
            self._write(head, notes)
        finally:
            with suppress(OSError):
                fcntl.flock(self._head_fd, fcntl.LOCK_UN)

    def _lock(self) -> None:
        while True:
            if self._pid != os.getpid():  # after a fork the parent shares the lock
                self._open()
            fcntl.flock(self._head_fd, fcntl.LOCK_EX)
            if os.fstat(self._head_fd).st_nlink:
                return
            self._close()  # the directory was removed

    def _write(self, head: Head, notes: Sequence[Sealable]) -> None:
        lines = []
        seq = head.seq
        digest = head.hash
        for note in notes:
            seq += 1
            try:
                line, digest = seal(note.record(seq, digest))
            except Exception as error:
                line, digest = seal(note.without_its_fields(error).record(seq, digest))
            lines.append(line)
        data = b"".join(lines)
        written = os.write(self._fd, data)
        if written != len(data):
            raise OSError(f"only {written} of {len(data)} bytes could be written")
        head.seq, head.hash, head.size = seq, digest, head.size + len(data)
        os.pwrite(self._head_fd, head.line(), 0)
        self._send(lines)

    def _send(self, lines: Sequence[bytes]) -> None:
        """To every other place, also if one of them fails."""
        failures = []
        for place in self.to:
            try:
                place.send(lines)
            except OSError as error:
                failures.append(error)
        if failures:
            raise failures[0]

    def _is_old(self, head: Head) -> bool:
        if not self._rotate_after or not head.size:
            return False
        if not self._began:
            from datetime import datetime  # a plain command does without

            with open(self._path, "rb") as trail:
                first = unseal(trail.readline().removesuffix(b"\n")) or {}
            with suppress(ValueError, TypeError):
                self._began = datetime.fromisoformat(first["time"]).timestamp()
        return bool(self._began) and time.time() - self._began > self._rotate_after

    def _current(self) -> Head:
        """The end of the chain; also opens the trail. The caller holds the lock."""
        stored = Head.parse(os.pread(self._head_fd, 160, 0))
        head = stored or self._rebuilt()
        lost = stored is None and head.seq > 0
        if stored is None and not lost:
            os.pwrite(
                self._head_fd, head.line(), 0
            )  # before the first record: a trail without a head counts as cut
        if rotated(
            self.where, head.file + 1
        ).exists():  # a writer was killed between the rename and the head
            head.file, head.size = head.file + 1, 0
        if head.file != self._file or os.fstat(self._fd).st_nlink == 0:
            self._open_trail(head.file)
        size = os.fstat(self._fd).st_size
        if size != head.size:
            self._recover(head, size)
        if lost:
            self._write(head, [Note(self._pid, time.time(), HEAD_LOST, {})])
        return head

    def _recover(self, head: Head, size: int) -> None:
        """The trail and the head differ: a writer was killed between writing the two, or somebody cut the trail."""
        with open(self._path, "rb") as trail:
            trail.seek(min(head.size, size) - (size < head.size and size > 0))
            rest = trail.read()
        for line in rest.splitlines(keepends=True) if size > head.size else ():
            record = unseal(line.removesuffix(b"\n"))
            if (
                not line.endswith(b"\n")
                or record is None
                or record["prev"] != head.hash
            ):
                break
            head.seq, head.hash, head.size = (
                record["seq"],
                record["hash"],
                head.size + len(line),
            )
        torn, head.size = size - head.size, size
        if rest and not rest.endswith(b"\n"):
            head.size += os.write(self._fd, b"\n")
        if torn > 0:
            self._write(head, [Note(self._pid, time.time(), "torn", {"bytes": torn})])

    def _rebuilt(self) -> Head:
        """A head for a new trail, or one whose head was lost: continue after the last valid line."""
        files = rotated_files(self.where)
        head = Head(file=int(files[-1].name.split(".")[1]) if files else 0)
        for path in [*files[-1:], self.where / NAME]:
            head.size = at = 0
            for line in (
                path.read_bytes().splitlines(keepends=True) if path.exists() else ()
            ):
                at += len(line)
                if line.endswith(b"\n") and (record := unseal(line[:-1])):
                    head.seq = record["seq"]
                    head.hash = record["hash"]
                    head.size = at
        return head

    def _rotate(self, head: Head) -> None:
        head.file, head.size = head.file + 1, 0
        os.rename(self._path, rotated(self.where, head.file))
        self._open_trail(head.file)
        files = rotated_files(self.where)
        kept = self._kept(files)
        with open((kept or [self._path])[0], "rb") as oldest:
            head.first = (unseal(oldest.readline().removesuffix(b"\n")) or {}).get(
                "seq", head.first
            )
        # Before the deletion: if we are killed in between, they must not count as missing.
        os.pwrite(self._head_fd, head.line(), 0)
        for old in files[: len(files) - len(kept)]:
            old.unlink()

    def _kept(self, files: list[Path]) -> list[Path]:
        """Of the rotated files, oldest first: the last ones, which stay."""
        return files[-self._keep :]

    def _open(self) -> None:
        self._close()
        self.where.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._head_fd = os.open(self.where / HEAD, os.O_RDWR | _OPEN, 0o600)
        self._pid = os.getpid()

    def _open_trail(self, file: int) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._file, self._began = -1, file, 0.0
        self._fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | _OPEN, 0o600)

    def _close(self) -> None:
        for fd in (self._head_fd, self._fd):
            if fd >= 0:
                os.close(fd)
        self._head_fd = self._fd = self._file = -1
        self._pid = 0

    @property
    def _path(self) -> Path:
        return self.where / NAME


_PLAIN = frozenset(
    (
        "session",
        "run",
        "digest",
        "decision",
        "risk",
        "rules",
        "cause",
        "image",
        "policy",
        "cwd",
    )
)
"""Fields that never contain text of a command."""


_JUDGED = ("decision", "risk", "digest", "policy")
"""Parts of a verdict that never contain text of a command."""


def _kept(name: str, value: Any) -> Any:
    """A field as it is written: shortened, then masked."""
    if isinstance(value, int | float):
        return value
    if hasattr(value, "as_dict"):  # a verdict
        shown = {
            part: masking.value(masking.bounded(text))
            for part, text in value.as_dict().items()
        }
        return {**shown, **{part: getattr(value, part) for part in _JUDGED}}
    short = masking.bounded(value)
    if name in _PLAIN:
        return short
    return masking.environment(short) if name == "env" else masking.value(short)


_live: weakref.WeakSet[Audit] = weakref.WeakSet()


@atexit.register
def _write_all() -> None:
    for audit in list(_live):
        audit.flush()


def _after_fork() -> None:
    for audit in list(_live):
        audit._after_fork()


os.register_at_fork(after_in_child=_after_fork)


MODES = ("on", "off", "required")


class NoAudit(Audit):
    """For BELLJAR_AUDIT=off: writes nothing."""

    mode = "off"

    def note(self, kind: str, **fields: Any) -> None:
        log.log_record(kind, fields)

    record = note


def open_trail(where: Path, mode: str, **kept: Any) -> Audit:
    """The trail in `where`; BELLJAR_AUDIT=off writes none, =required lets nothing run without it. `kept`: as for `Audit`."""
    if mode not in MODES:  # a misspelt `required` must not be ignored
        raise UsageError(f"BELLJAR_AUDIT is {mode!r}; choose from {', '.join(MODES)}")
    return (
        NoAudit(where)
        if mode == "off"
        else Audit(where, required=mode == "required", **kept)
    )
