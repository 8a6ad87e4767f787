"""The link's byte stream through `exec`: the engine wraps what the bridge prints in headers; this unwraps it."""

from __future__ import annotations

import socket
import ssl
from collections import deque

HEADER = 8
STDOUT = 1


class Demultiplexed:
    """A `Transport` over the hijacked connection of an exec; `first` is what of the stream was read already."""

    bridged = True

    def __init__(self, connection: socket.socket, first: bytes = b"") -> None:
        self._socket = connection
        self._socket.setblocking(False)
        self.pipes: deque[int] = deque()  # none: descriptors do not travel over a network
        self._raw = b""
        self._missing = 0
        self._wanted = False
        self._ready = self._unwrap(first)

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, data: bytes, /) -> int:
        try:
            return self._socket.send(data)
        except ssl.SSLWantWriteError:
            raise BlockingIOError from None

    def close(self) -> None:
        self._socket.close()

    def recv(self, size: int, /) -> bytes:
        if self._ready:
            found, self._ready = self._ready, b""
            return found
        try:
            data = self._socket.recv(size)
        except ssl.SSLWantReadError:
            raise BlockingIOError from None
        if not data:
            return b""
        found = self._unwrap(data)
        if not found:
            raise BlockingIOError  # only a header, or the bridge's stderr, so far
        return found

    def _unwrap(self, data: bytes) -> bytes:
        self._raw += data
        parts = []
        while self._raw:
            if not self._missing:
                if len(self._raw) < HEADER:
                    break
                self._wanted = self._raw[0] == STDOUT
                self._missing = int.from_bytes(self._raw[4:HEADER], "big")
                self._raw = self._raw[HEADER:]
                continue
            part, self._raw = self._raw[: self._missing], self._raw[self._missing :]
            self._missing -= len(part)
            if self._wanted:
                parts.append(part)
        return b"".join(parts)
