"""The byte streams a link can run over."""

from __future__ import annotations

import os
import socket
from collections import deque
from typing import Protocol

from belljar.link.frames import FrameError

PIPES_MAX = 64  # passed and not yet claimed by their frames, which follow at once
PIPES_SPACE = socket.CMSG_SPACE(PIPES_MAX * 4)


class Transport(Protocol):
    """A non-blocking byte stream."""

    pipes: deque[int]
    """Descriptors that came with the bytes."""

    def fileno(self) -> int: ...
    def recv(self, size: int, /) -> bytes: ...
    def send(self, data: bytes, /) -> int: ...
    def close(self) -> None: ...


class SocketTransport:
    """A unix socket whose other end may pass us pipes."""

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        self._socket = connected
        self.pipes: deque[int] = deque()
        self.fileno, self.send = connected.fileno, connected.send

    def recv(self, size: int, /) -> bytes:
        data, extras, flags, _ = self._socket.recvmsg(size, PIPES_SPACE, socket.MSG_CMSG_CLOEXEC)
        for level, kind, payload in extras:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                self.pipes.extend(memoryview(payload[: len(payload) // 4 * 4]).cast("i"))
        if flags & socket.MSG_CTRUNC or len(self.pipes) > PIPES_MAX:
            raise FrameError("more descriptors than there are streams")
        return data

    def close(self) -> None:
        self._socket.close()
        while self.pipes:
            os.close(self.pipes.popleft())
