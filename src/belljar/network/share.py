"""Limits how many of this process's file descriptors the connections of a door or forwarded port may take.

Each connection takes one, and a program in a sandbox (for a forwarded port: anybody on this machine) can open any
number. The process has only so many descriptors, and other sessions, links and the audit trail need some, too.
"""

from __future__ import annotations

import resource
import threading
from typing import ClassVar


def max_connections() -> int:
    """How many connections all doors and ports may have together: three quarters of the process's descriptors."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 20 if soft == resource.RLIM_INFINITY else soft * 3 // 4


class Share:
    """One door's or port's connections; `with share:` counts one. None may take more than it leaves to the others."""

    __slots__ = ("open",)
    all_open: ClassVar[int] = 0
    _lock: ClassVar[threading.Lock] = (
        threading.Lock()
    )  # sessions may run in several threads

    def __init__(self) -> None:
        self.open = 0

    @property
    def is_used_up(self) -> bool:
        return self.open >= max_connections() - Share.all_open

    def __enter__(self) -> None:
        self._add(1)

    def __exit__(self, *_: object) -> None:
        self._add(-1)

    def _add(self, count: int) -> None:
        with Share._lock:
            self.open += count
            Share.all_open += count
