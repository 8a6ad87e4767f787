"""The link's byte stream through `exec`. The engine puts a header before each piece of output; this removes them."""

from __future__ import annotations

import socket
import ssl
from collections import deque

from belljar.link.transport import GIVE_UP

HEADER = 8
STDOUT = 1


class Demultiplexed:
    """A `Transport` over the hijacked connection of an exec; `first` is the part of the stream read already."""

    bridged = True
    silence = GIVE_UP

    def __init__(self, connection: socket.socket, first: bytes = b"") -> None:
        self._socket = connection
        self._socket.setblocking(False)
        self.pipes: deque[int] = (
            deque()
        )  # always empty: descriptors cannot cross a network
        self._raw = b""
        self._missing = 0
        self._is_stdout = False
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
            ready, self._ready = self._ready, b""
            return ready
        try:
            data = self._socket.recv(size)
        except ssl.SSLWantReadError:
            raise BlockingIOError from None
        if not data:
            return b""
        content = self._unwrap(data)
        if not content:
            raise BlockingIOError  # only a header, or the bridge's stderr, so far
        return content

    def _unwrap(self, data: bytes) -> bytes:
        self._raw += data
        parts = []
        while self._raw:
            if not self._missing:
                if len(self._raw) < HEADER:
                    break
                self._is_stdout = self._raw[0] == STDOUT
                self._missing = int.from_bytes(self._raw[4:HEADER], "big")
                self._raw = self._raw[HEADER:]
                continue
            part, self._raw = self._raw[: self._missing], self._raw[self._missing :]
            self._missing -= len(part)
            if self._is_stdout:
                parts.append(part)
        return b"".join(parts)
