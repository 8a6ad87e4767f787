"""Owners of test files, and directories that may become very deep."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

OWNER = 1000


def give(path: Path, uid: int = OWNER) -> None:
    """Give the path to an unprivileged user. Without root it belongs to one already."""
    if os.geteuid() == 0:
        os.chown(path, uid, uid)


@contextmanager
def deep_directory() -> Iterator[Path]:
    """A temporary directory for very deep trees. pytest's own would not do: a later run of pytest must delete what a
    killed run left there, and fails on trees that are too deep for Python."""
    path = Path(tempfile.mkdtemp(prefix="belljar-deep-"))
    try:
        yield path
    finally:
        subprocess.run(["rm", "-rf", path], check=True)
