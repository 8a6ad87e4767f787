"""Where records go besides the trail's own file: journald, syslog, or root's collector (collector.py).

What arrives there, whoever wrote the file cannot change any more. journald and the collector get the sender's user from
the kernel; syslog believes what is in the line.

Each opens its socket anew: nothing is shared after a fork, and a daemon that was restarted is found again.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import struct
import time
from collections.abc import Sequence
from typing import Any, Protocol

JOURNAL = "/run/systemd/journal/socket"
SYSLOG = "/dev/log"
COLLECTOR = "/run/belljar-trail/socket"
SECONDS = 5.0
"""A daemon that takes nothing for so long is not there."""
_AUTHPRIV_NOTICE = 10 << 3 | 5
_SYSLOG_BYTES = 7000
"""rsyslog cuts a message at 8 KiB, which would leave no JSON."""
_KEPT = ("seq", "time", "kind", "pid", "uid", "user", "client", "session", "digest")
_SEALS = (
    fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
)
BUSY = "busy"
_TRANSIENT = (errno.EAGAIN, errno.ECONNRESET, errno.EPIPE)
COLLECTED_BYTES = 1 << 20
"""Of records at once. More go in several calls."""


class Unreachable(OSError):
    """The text says which place takes no records, and why."""


class Elsewhere(Protocol):
    name: str

    def send(self, lines: Sequence[bytes]) -> None:
        """Unreachable if one of these sealed lines has not arrived."""


class Journald:
    name = "journald"

    def send(self, lines: Sequence[bytes]) -> None:
        with _connected(self.name, JOURNAL, socket.SOCK_DGRAM) as to:
            for line in lines:
                _to_journal(to, _journal_fields(line.rstrip(b"\n")))


class Syslog:
    name = "syslog"

    def send(self, lines: Sequence[bytes]) -> None:
        with _connected(self.name, SYSLOG, socket.SOCK_DGRAM) as to:
            for line in lines:
                when = time.strftime("%b %e %H:%M:%S")
                tag = f"<{_AUTHPRIV_NOTICE}>{when} belljar[{os.getpid()}]: "
                to.sendall(tag.encode() + _short(line.rstrip(b"\n")))


class Collector:
    name = "collector"

    def __init__(self, path: str = COLLECTOR) -> None:
        self._path = path

    def send(self, lines: Sequence[bytes]) -> None:
        for data in _batches(lines):
            end = time.monotonic() + SECONDS
            while not self._is_taken(data, last=time.monotonic() > end):
                time.sleep(0.02)

    def _is_taken(self, data: bytes, *, last: bool) -> bool:
        """False: it has too much to do just now, perhaps because another user floods it."""
        try:
            with _connected(self.name, self._path, socket.SOCK_STREAM) as to:
                if peer(to)[1] != 0:
                    raise OSError("the process at its socket is not root's")
                to.sendall(data)
                to.shutdown(socket.SHUT_WR)
                answer = to.recv(1 << 10).decode(errors="replace").strip()
                if answer != "ok":
                    raise OSError(errno.EAGAIN if answer == BUSY else 0, answer)
                return True
        except Unreachable as error:
            if error.errno not in _TRANSIENT or last:
                raise
            return False


def opened(names: Sequence[str], collector: str = COLLECTOR) -> tuple[Elsewhere, ...]:
    known: dict[str, Elsewhere] = {
        each.name: each for each in (Journald(), Syslog(), Collector(collector))
    }
    return tuple(known[name] for name in names)


NAMES = (Journald.name, Syslog.name, Collector.name)


def peer(of: socket.socket) -> tuple[int, int]:
    """The process and the user at the other end, from the kernel."""
    packed = of.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid, uid, _ = struct.unpack("3i", packed)
    return pid, uid


class _connected:
    """A socket to a daemon here; whatever fails is told with its name."""

    def __init__(self, name: str, path: str, kind: int) -> None:
        self._name, self._path = name, path
        self._socket = socket.socket(socket.AF_UNIX, kind | socket.SOCK_CLOEXEC)
        self._socket.settimeout(SECONDS)

    def __enter__(self) -> socket.socket:
        try:
            self._socket.connect(self._path)
        except OSError as error:
            self.__exit__(OSError, error, None)
        return self._socket

    def __exit__(self, kind: Any, error: BaseException | None, _: object) -> None:
        self._socket.close()
        if isinstance(error, OSError):
            reason = error.strerror or str(error)
            failed = Unreachable(
                f"{self._name} ({self._path}) takes no audit records: {reason or 'it hung up'}"
            )
            failed.errno = error.errno
            raise failed from error


def _journal_fields(line: bytes) -> bytes:
    """In journald's native form. A record is ASCII without newlines."""
    record = json.loads(line)
    fields = {
        "MESSAGE": line.decode(),
        "PRIORITY": "5",
        "SYSLOG_IDENTIFIER": "belljar",
        "SYSLOG_FACILITY": "10",
        "BELLJAR_SEQ": str(record["seq"]),
        "BELLJAR_KIND": str(record["kind"]),
        "BELLJAR_SESSION": str(record.get("session", "")),
    }
    plain = {name: value.replace("\n", " ") for name, value in fields.items()}
    return "".join(f"{name}={value}\n" for name, value in plain.items()).encode()


def _to_journal(to: socket.socket, data: bytes) -> None:
    try:
        to.sendall(data)
    except OSError as error:
        if error.errno not in (errno.EMSGSIZE, errno.ENOBUFS):
            raise
        _through_a_file(to, data)


def _through_a_file(to: socket.socket, data: bytes) -> None:
    """As journald wants large entries: a sealed file without a name, passed through the socket."""
    file = os.memfd_create("belljar-record", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.write(file, data)
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, _SEALS)
        socket.send_fds(to, [b""], [file])
    finally:
        os.close(file)


def _short(line: bytes) -> bytes:
    """The line, or what of it fits: which record it is, whose, and its place in the chain."""
    if len(line) <= _SYSLOG_BYTES:
        return line
    record = json.loads(line)
    kept = {name: record[name] for name in _KEPT if name in record}
    chain = {"cut": len(line), "prev": record["prev"], "hash": record["hash"]}
    return json.dumps({**kept, **chain}, separators=(",", ":")).encode()


def _batches(lines: Sequence[bytes]) -> list[bytes]:
    batches = [b""]
    for line in lines:
        if batches[-1] and len(batches[-1]) + len(line) > COLLECTED_BYTES:
            batches.append(b"")
        batches[-1] += line
    return batches
