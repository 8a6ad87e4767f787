"""Whose files a test's are."""

from __future__ import annotations

import os
from pathlib import Path

OWNER = 1000


def give(path: Path, uid: int = OWNER) -> None:
    """To an unprivileged user, if root runs the tests; else it is an unprivileged user's already."""
    if os.geteuid() == 0:
        os.chown(path, uid, uid)
