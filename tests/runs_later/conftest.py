"""Workspaces with git repositories."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from belljar.runs_later.watch import Watch
from belljar.workspace.survey import Survey


@pytest.fixture
def root(tmp_path: Path) -> Iterator[int]:
    (tmp_path / ".git" / "hooks").mkdir(parents=True)
    (tmp_path / ".git" / "config").write_text(
        "[core]\n\tbare = false\n\tpager = mine\n"
    )
    descriptor = os.open(tmp_path, os.O_PATH | os.O_DIRECTORY)
    yield descriptor
    os.close(descriptor)


def git(*arguments: str, cwd: Path) -> None:
    subprocess.run(
        ["git", "-c", "protocol.file.allow=always", "-c", "user.name=me", "-c", "user.email=me@here", *arguments],
        cwd=cwd, check=True, capture_output=True,
    )  # fmt: skip


@pytest.fixture
def repositories(tmp_path: Path) -> Iterator[tuple[Path, Watch]]:
    """A repository with a submodule, a nested repository two levels down, and a bare one."""
    top = tmp_path / "top"
    for path in (tmp_path / "library", top, top / "deep" / "nested"):
        path.mkdir(parents=True)
        git("init", "-q", cwd=path)
        git("commit", "-q", "--allow-empty", "-m", "first", cwd=path)
    git("submodule", "-q", "add", str(tmp_path / "library"), "vendor/library", cwd=top)
    git("init", "-q", "--bare", "mirror.git", cwd=top)
    descriptor = os.open(top, os.O_PATH | os.O_DIRECTORY)
    yield top, Watch(descriptor, Survey(descriptor).git_directories())
    os.close(descriptor)
