"""Whose files a test's are."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

OWNER = 1000


def give(path: Path, uid: int = OWNER) -> None:
    """To an unprivileged user, if root runs the tests; else it is an unprivileged user's already."""
    if os.geteuid() == 0:
        os.chown(path, uid, uid)


@contextmanager
def deep_directory() -> Iterator[Path]:
    """To be dug as deep as one likes. What a killed run leaves in pytest's own directories pytest must remove one day,
    and a tree that is deeper than Python can follow fails that later run."""
    path = Path(tempfile.mkdtemp(prefix="belljar-deep-"))
    try:
        yield path
    finally:
        subprocess.run(["rm", "-rf", path], check=True)
