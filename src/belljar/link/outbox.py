"""Bytes for the init: sent at once if the kernel accepts them, otherwise queued in order.

The event loop and the heartbeat's thread both send, so a lock covers each whole frame. Receiving takes the same lock,
because a TLS connection cannot send and receive at once.
"""

from __future__ import annotations

import threading
from collections import deque
from contextlib import suppress

from belljar.link.transport import Transport


class Outbox:
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
