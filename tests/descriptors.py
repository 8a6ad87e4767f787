"""This process's descriptors, by where they lead: a bare count changes with whatever else is collected meanwhile."""

from __future__ import annotations

import os
from contextlib import suppress


def open_paths(start: str) -> list[str]:
    """Where the open descriptors lead whose path begins with `start`."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            if (target := os.readlink(f"/proc/self/fd/{number}")).startswith(start):
                found.append(target)
    return sorted(found)
