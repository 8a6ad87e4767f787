"""One door's, or one forwarded port's, share of the descriptors that this process may have.

Each connection takes one, and a program in a sandbox (at a forwarded port: anybody on this machine) opens as many as it
likes. The limit counts for the whole process: its other sessions, their links and the trail need descriptors too.
"""

from __future__ import annotations

import resource
import threading
from typing import ClassVar


def most() -> int:
    """For all connections together: three quarters of what this process may open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 20 if soft == resource.RLIM_INFINITY else soft * 3 // 4


class Share:
    """`with share:` one connection. Nobody gets more than he leaves to all the others."""

    __slots__ = ("open",)
    all_open: ClassVar[int] = 0
    _lock: ClassVar[threading.Lock] = threading.Lock()  # sessions may have loops of their own

    def __init__(self) -> None:
        self.open = 0

    @property
    def is_used_up(self) -> bool:
        return self.open >= most() - Share.all_open

    def __enter__(self) -> None:
        self._add(1)

    def __exit__(self, *_: object) -> None:
        self._add(-1)

    def _add(self, count: int) -> None:
        with Share._lock:
            self.open += count
            Share.all_open += count
