"""Root's collector: takes records from every user of the machine, and keeps them where no user can change them.

    connect, lines, end of input → "ok", once they are on disk, or why not

Who sends is what the kernel says of the connection (SO_PEERCRED), not what is in the line. Each user has a trail of his own
below one directory of root's, a hash chain like any other: a `collected` record names the sender and holds the
record as it was sent, if its hash fits.

A user can send whatever he likes under his own name, also what never happened, or nothing. He cannot change what was
sent, or send as somebody else. He can fill only his own trail: when that is full, his records are refused and nothing of
it is dropped. A slow or idle sender holds one of a few places of his user, and not for long.
"""

from __future__ import annotations

import errno
import logging
import os
import pwd
import socket
import stat
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from belljar import resources
from belljar.audit.elsewhere import BUSY, COLLECTED_BYTES, SECONDS, peer
from belljar.audit.writer import Audit, Head, Sealable, rotated_files, unseal
from belljar.errors import UsageError

PLACE = Path("/var/log/belljar/collected")
KIND = "collected"
AT_ONCE = 64
DEEPEST = 64
"""Levels of a record; ours have at most ten."""
AT_ONCE_OF_A_USER = 4
_FILES = 64
"""Of a user's trail, 16 MiB each: a gibibyte."""
_log = logging.getLogger("belljar.audit")


@dataclass(frozen=True)
class Collected:
    """A record to be written, as the writer knows it."""

    pid: int
    uid: int
    user: str
    record_sent: dict[str, Any]

    def record(self, seq: int, prev: str) -> dict[str, Any]:
        now = time.time()
        when = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now))
        return {
            "seq": seq,
            "time": f"{when}.{int(now % 1 * 1e6):06}+00:00",
            "kind": KIND,
            "pid": self.pid,
            "uid": self.uid,
            "user": self.user,
            "record": self.record_sent,
            "prev": prev,
        }

    def without_its_fields(self, reason: Exception) -> Collected:
        left = {"unwritable": type(reason).__name__}
        return Collected(self.pid, self.uid, self.user, left)


class UsersTrail(Audit):
    """What one user sent."""

    drop_after = 0.0
    """Seconds after which a rotated file is removed; 0: never."""

    def add(self, records: list[Sealable]) -> None:
        """OSError if they are not on disk: then the sender is told so."""
        with self._thread_lock:
            self._append(records)
            os.fdatasync(self._fd)

    def _rotate(self, head: Head) -> None:
        if len(self._kept(rotated_files(self.where))) >= self._keep:
            raise OSError(errno.EDQUOT, "this user's trail is full")
        super()._rotate(head)

    def _kept(self, files: list[Path]) -> list[Path]:
        """However much a user sends, only time makes room."""
        since = time.time() - self.drop_after if self.drop_after else 0
        young = (at for at, path in enumerate(files) if path.stat().st_mtime >= since)
        return files[next(young, len(files)) :]


class Collector:
    def __init__(
        self,
        place: Path = PLACE,
        *,
        drop_after: float = 0,
        rotate_at: int = 16 << 20,
        files: int = _FILES,
    ) -> None:
        self.place = resources.own_directory(place)
        self._rotate_at, self._files, self._drop_after = rotate_at, files, drop_after
        self._trails: dict[int, UsersTrail] = {}
        self._here: Counter[int] = Counter()
        self._lock = threading.Lock()

    def serve(self, listener: socket.socket) -> None:
        """Until the listener is closed."""
        with ThreadPoolExecutor(AT_ONCE, "belljar-collector") as threads:
            while True:
                try:
                    caller, _ = listener.accept()
                except OSError as error:
                    if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
                        time.sleep(0.1)
                        continue
                    return
                pid, uid = peer(caller)
                with self._lock:
                    is_one_too_many = self._here[uid] >= AT_ONCE_OF_A_USER
                    self._here[uid] += 0 if is_one_too_many else 1
                if is_one_too_many:
                    _answer(caller, BUSY)
                    caller.close()
                else:
                    threads.submit(self._serve, caller, pid, uid)

    def _serve(self, caller: socket.socket, pid: int, uid: int) -> None:
        try:
            with caller:
                _answer(caller, self._take(caller, pid, uid))
        except Exception as error:  # of one sender: the others go on
            _log.warning("a sender of uid %d: %r", uid, error)
        finally:
            with self._lock:
                self._here[uid] -= 1

    def _take(self, caller: socket.socket, pid: int, uid: int) -> str:
        """The answer."""
        try:
            user = pwd.getpwuid(uid).pw_name
        except KeyError:  # such as the subordinate ids of a user, who has thousands
            return f"the user id {uid} has no account"
        try:
            sent = list(_records(_received(caller)))
            if sent:
                self._trail(uid).add([Collected(pid, uid, user, one) for one in sent])
        except ValueError as error:
            return f"refused: {error}"
        except OSError as error:
            return f"not written: {error.strerror or error}"
        return "ok"

    def _trail(self, uid: int) -> UsersTrail:
        with self._lock:
            if uid not in self._trails:
                where = self.place / str(uid)
                trail = UsersTrail(where, rotate_at=self._rotate_at, keep=self._files)
                trail.drop_after = self._drop_after
                self._trails[uid] = trail
            return self._trails[uid]


def listening(path: Path) -> socket.socket:
    """A socket that everybody may connect to, in a directory where only root makes files."""
    path.parent.mkdir(mode=0o755, exist_ok=True)
    status = path.parent.lstat()
    if (
        status.st_uid != os.geteuid()
        or status.st_mode & 0o022
        or not stat.S_ISDIR(status.st_mode)
    ):
        raise UsageError(
            f"{path.parent} must be a directory that only you may write to"
        )
    resources.check_ancestry(path.parent, "--socket")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    made = path.with_name(f".{path.name}.{os.getpid()}")
    with suppress(FileNotFoundError):
        made.unlink()
    listener.bind(str(made))
    made.chmod(0o666)
    listener.listen(512)
    made.rename(path)
    return listener


def users(place: Path = PLACE) -> dict[int, Path]:
    """The trails there are, by user id."""
    try:
        found = [path for path in place.iterdir() if path.name.isdecimal()]
    except FileNotFoundError:
        return {}
    return {int(path.name): path for path in sorted(found)}


def _received(caller: socket.socket) -> bytes:
    """All that it sends, within one time limit for all of it."""
    data, end = bytearray(), time.monotonic() + SECONDS
    while True:
        caller.settimeout(max(0.001, end - time.monotonic()))
        piece = caller.recv(64 << 10)
        if not piece:
            return bytes(data)
        data += piece
        if len(data) > 2 * COLLECTED_BYTES:
            raise ValueError("that is too much at once")
        if time.monotonic() > end:
            raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))


def _records(data: bytes) -> Iterator[dict[str, Any]]:
    if data and not data.endswith(b"\n"):
        raise ValueError("the last line is not whole")
    for line in data.splitlines():
        record = unseal(line)
        if record is None:
            raise ValueError("a line is no record, or its hash does not fit")
        if not _is_shallow(record):
            raise ValueError("a record is nested too deeply")
        yield record


def _is_shallow(value: Any) -> bool:
    """Else the collector could read it, and a reader that has called more functions could not."""
    level = [value]
    for _ in range(DEEPEST):
        level = [below for each in level for below in _parts(each)]
        if not level:
            return True
    return False


def _parts(value: Any) -> Iterable[Any]:
    return (
        value.values()
        if isinstance(value, dict)
        else value
        if isinstance(value, list)
        else ()
    )


def _answer(caller: socket.socket, text: str) -> None:
    with suppress(OSError):
        caller.settimeout(SECONDS)
        caller.sendall(f"{text}\n".encode())
