"""Workspaces with git repositories."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")


def new_directory(path: Path) -> Path:
    path.mkdir()
    return path
