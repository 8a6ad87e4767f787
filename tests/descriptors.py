"""Open descriptors of this process by path. A mere count changes with whatever is garbage-collected meanwhile."""

from __future__ import annotations

import os
from contextlib import suppress


def open_paths(start: str) -> list[str]:
    """The paths of open descriptors that begin with `start`."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            if (target := os.readlink(f"/proc/self/fd/{number}")).startswith(start):
                found.append(target)
    return sorted(found)
