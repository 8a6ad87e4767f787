"""The TCP ports that programs in a sandbox listen on.

Root asks the kernel through a socket that was made in the sandbox's network namespace, which takes microseconds. Other
callers read the process's `net/tcp`, for which the kernel walks all connections of the machine: milliseconds. Frequent
callers use `when_cheap`.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
import weakref
from contextlib import suppress
from pathlib import Path

from belljar.syscalls import CLONE_NEWNET, closing, in_new_thread, libc

SHARE = 20  # after a look, `when_cheap` waits for so many times as long as it took
_SOCK_DIAG, _BY_FAMILY, _REQUEST_DUMP = 4, 20, 0x301
_DONE, _ERROR = 3, 2
_LISTEN = 10
_REPLY = 1 << 16


class Listening:
    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._diag: socket.socket | None = None
        self._entered = self._closed = False
        self._lock = threading.Lock()
        self._next_look = 0.0
        self._thread: threading.Thread | None = None
        self._ports: frozenset[int] | None = None

    def ports(self) -> frozenset[int]:
        """The ports now; empty if the sandbox is gone or the kernel does not tell. May take milliseconds."""
        with self._lock:
            if not self._entered:
                self._enter()
            return self._look()

    def when_cheap(self) -> frozenset[int] | None:
        """The ports of the last look. Looks take at most a small share of the time, and slow ones run in a thread."""
        if time.monotonic() >= self._next_look and not self._busy:
            if self._diag is not None:
                self._measured()
            else:
                self._thread = threading.Thread(
                    target=self._in_thread, name="belljar-listening", daemon=True
                )
                self._thread.start()
        return self._ports

    def close(self) -> None:
        self._closed = True
        if self._diag is not None:
            self._diag.close()

    @property
    def _busy(self) -> bool:
        return self._lock.locked() or (
            self._thread is not None and self._thread.is_alive()
        )

    def _in_thread(self) -> None:
        with self._lock:
            if not self._entered:
                self._enter()
            self._measured()

    def _measured(self) -> None:
        began = time.monotonic()
        self._ports = self._look()
        now = time.monotonic()
        self._next_look = now + SHARE * (now - began)

    def _look(self) -> frozenset[int]:
        try:
            if self._diag is not None:
                return _asked(self._diag, socket.AF_INET) | _asked(
                    self._diag, socket.AF_INET6
                )
            return _read(self._pid, "tcp") | _read(self._pid, "tcp6")
        except (OSError, ValueError, struct.error):
            return frozenset()

    def _enter(self) -> None:
        in_new_thread(self._make_inside, "belljar-listening")
        self._entered = True
        if self._closed:
            self.close()

    def _make_inside(self) -> None:
        flags = os.O_RDONLY | os.O_CLOEXEC
        with (
            suppress(OSError),
            closing(os.open(f"/proc/{self._pid}/ns/net", flags)) as namespace,
        ):
            if libc.setns(namespace, CLONE_NEWNET) == 0:
                diag = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG)
                diag.setblocking(False)  # the kernel answers within the call that asks
                self._diag = diag
                weakref.finalize(self, diag.close)  # for a session that is never closed


def _asked(diag: socket.socket, family: int) -> frozenset[int]:
    """sock_diag(7): a request for all listening sockets, and a message for each."""
    request = struct.pack(
        "=BBBBI", family, socket.IPPROTO_TCP, 0, 0, 1 << _LISTEN
    ) + bytes(48)
    diag.send(
        struct.pack("=IHHII", 16 + len(request), _BY_FAMILY, _REQUEST_DUMP, 1, 0)
        + request
    )
    ports: set[int] = set()
    while True:
        data, at = diag.recv(_REPLY), 0
        while at < len(data):
            length, kind = struct.unpack_from("=IH", data, at)
            if kind == _DONE:
                return frozenset(ports)
            if kind == _ERROR or length < 16:
                raise OSError("the kernel does not tell who listens")
            ports.add(struct.unpack_from("!H", data, at + 20)[0])
            at += (length + 3) & ~3


def _read(pid: int, name: str) -> frozenset[int]:
    rows = [
        line.split()
        for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]
    ]
    return frozenset(
        int(row[1].rpartition(":")[2], 16) for row in rows if int(row[3], 16) == _LISTEN
    )
