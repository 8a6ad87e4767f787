"""The byte streams a link can run over, the queue of what they could not take yet, and the descriptors that come with them.

Descriptors from a sandbox are not trusted. The host reopens a pipe, because the flags of a shared one could be changed
by the sandbox (to block us). Anything else is closed in a thread: closing a socket may wait (SO_LINGER), and so may
closing a connection with such a socket in its queue.
"""

from __future__ import annotations

import _thread
import contextlib
import errno
import fcntl
import os
import socket
import stat
import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Protocol

from belljar.link.frames import FrameError
from belljar.link.wire import PASSED_MAX

SPACE = socket.CMSG_SPACE(
    253 * 4
)  # the kernel's maximum: descriptors that do not fit it would close in our thread
GIVE_UP = 60.0
DRAIN = 64  # messages to read before a connection is closed


class Transport(Protocol):
    """A non-blocking byte stream."""

    pipes: deque[int]
    """Descriptors received with the bytes."""
    bridged: bool
    """Whether the other end cannot tell a dead host from a silent one."""
    silence: float
    """Seconds after which a stream that answers nothing is lost, whatever the engine says."""

    def fileno(self) -> int: ...
    def recv(self, size: int, /) -> bytes: ...
    def send(self, data: bytes, /) -> int: ...
    def close(self) -> None: ...


class SocketTransport:
    """A unix socket over which the init may pass us pipes."""

    bridged = False
    silence = GIVE_UP

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        self._socket = connected
        self.pipes: deque[int] = deque()
        self.fileno, self.send = connected.fileno, connected.send

    def recv(self, size: int, /) -> bytes:
        data, ancillary, _, _ = self._socket.recvmsg(
            size, SPACE, socket.MSG_CMSG_CLOEXEC
        )
        if ancillary:
            self._take_descriptors(ancillary)
        return data

    def _take_descriptors(self, ancillary: list[tuple[int, int, bytes]]) -> None:
        for level, kind, payload in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                self.pipes.extend(
                    memoryview(payload[: len(payload) // 4 * 4]).cast("i")
                )
        if len(self.pipes) > PASSED_MAX:
            raise FrameError("more descriptors than there are streams")

    def close(self) -> None:
        """Never blocks, whatever descriptors are still queued. Only a few of them become ours: of those that our table
        has no room for, the kernel would close the rest in this thread."""
        drained = False
        with contextlib.suppress(OSError, FrameError):
            self._socket.shutdown(socket.SHUT_RDWR)
        for _ in range(DRAIN):
            try:
                drained = not self.recv(64 << 10)
            except FrameError:
                break
            except OSError:
                drained = True
            if drained:
                break
        close_passed(self.pipes)
        self.pipes.clear()
        if drained:
            self._socket.close()
        else:
            _in_thread(self._socket.close)


def close_passed(descriptors: Iterable[int]) -> None:
    """Close descriptors that a sandbox passed: pipes at once, all others in a thread."""
    others = []
    for descriptor in descriptors:
        if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            os.close(descriptor)
        else:
            others.append(descriptor)
    if others:
        _in_thread(lambda: deque(map(_close_at_once, others), 0))


def _close_at_once(descriptor: int) -> None:
    """Without waiting for a socket's peer, so that those behind it are closed too."""
    with contextlib.suppress(OSError):  # not a socket
        passed = socket.socket(fileno=descriptor)
        with contextlib.suppress(OSError):
            passed.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, bytes(8))
        passed.detach()
    os.close(descriptor)


def reopened(descriptor: int, *, to_write: bool) -> int | None:
    """Open a passed pipe again with flags of our own; None: nobody reads it. Always closes `descriptor`."""
    mode = os.O_WRONLY if to_write else os.O_RDONLY
    try:
        if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            raise FrameError("a descriptor that is not a pipe")
        if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE != mode:
            raise FrameError("the wrong end of a pipe")
        return os.open(
            f"/proc/self/fd/{descriptor}", mode | os.O_NONBLOCK | os.O_CLOEXEC
        )
    except OSError as error:
        if to_write and error.errno == errno.ENXIO:
            return None
        raise FrameError(f"a pipe that cannot be opened: {error.strerror}") from error
    finally:
        close_passed([descriptor])


def _in_thread(close: Callable[[], object]) -> None:
    _thread.start_new_thread(
        close, ()
    )  # `Thread.start` would wait until the thread runs


class Outbox:
    """Bytes for the init: sent at once if the kernel accepts them, otherwise queued in order.

    The event loop and the heartbeat's thread both send, so a lock covers each whole frame. Receiving takes the same
    lock, because a TLS connection cannot send and receive at once.
    """

    def __init__(self, transport: Transport) -> None:
        self.lock = threading.Lock()
        self._transport = transport
        self._queue: deque[bytes] = deque()

    def __bool__(self) -> bool:
        return bool(self._queue)

    def put(self, data: bytes = b"") -> bool:
        """Send as much as possible, in order, and queue the rest: whether anything waits. Raises OSError when the other
        side is gone."""
        with self.lock, suppress(BlockingIOError, InterruptedError):
            if data:
                self._queue.append(data)
            while self._queue:
                part = self._queue[0]
                sent = self._transport.send(part)
                if sent < len(part):
                    self._queue[0] = part[sent:]
                    break
                self._queue.popleft()
        return bool(self._queue)
