"""What goes to the init: sent at once if the kernel takes it, kept in order if not.

The event loop and the heartbeat's thread both send, so each whole frame goes under a lock, which receiving shares:
a TLS connection does not bear both at once.
"""

from __future__ import annotations

import threading
from collections import deque

from belljar.link.transport import Transport


class Outbox:
    def __init__(self, transport: Transport) -> None:
        self.lock = threading.Lock()
        self._transport = transport
        self._kept: deque[bytes] = deque()

    def __bool__(self) -> bool:
        return bool(self._kept)

    def put(self, data: bytes = b"") -> None:
        """Send what can be sent, in order, and keep the rest; OSError when the other side is gone."""
        with self.lock:
            if data:
                self._kept.append(data)
            try:
                self._send()
            except (BlockingIOError, InterruptedError):
                return

    def _send(self) -> None:
        while self._kept:
            part = self._kept[0]
            sent = self._transport.send(part)
            if sent < len(part):
                self._kept[0] = part[sent:]
                return
            self._kept.popleft()
