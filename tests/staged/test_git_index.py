"""An index that git wrote anew, for inodes that look different, is no change; one that says something else is."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from tests.staged.conftest import Stage

from belljar.staged import git_index

GIT = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "safe.directory=*"]


def git(at: Path, *words: str) -> bytes:
    subprocess.run([*GIT, "-C", str(at), *words], check=True, capture_output=True)
    index = at / ".git" / "index"
    return index.read_bytes() if index.exists() else b""


@pytest.mark.parametrize("version", ["2", "3", "4"])
def test_only_an_index_with_other_contents_says_something_else(tmp_path: Path, version: str) -> None:
    for name in ("a", "b" * 7, "c" * 5000):
        (tmp_path / name[:200]).write_text("x")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    if version == "3":
        (tmp_path / "later").touch()
        git(tmp_path, "add", "-N", "later")
    before = git(tmp_path, "update-index", "--index-version", version)
    os.utime(tmp_path / "a", (1, 1))
    touched = git(tmp_path, "status")
    assert before[7] == int(version)
    assert touched != before
    assert git_index.same_contents(before, touched) == (version != "4")
    assert git_index.same_contents(before, touched[:-1]) is False
    (tmp_path / "a").write_text("y")
    assert git_index.same_contents(before, git(tmp_path, "add", "a")) is False
    assert git_index.same_contents(b"", b"x") is False


def test_a_look_by_git_in_the_sandbox_changes_nothing(stage: Stage) -> None:
    git(stage.host, "init", "-q")
    git(stage.host, "add", "-A")
    before = git(stage.host, "commit", "-qm", "one")
    os.chown(stage.merged / "a.txt", 54321, 54321)  # as all are, inside
    assert git(stage.merged, "status") != before
    assert stage.kinds() == {}
    (stage.merged / "b.txt").write_text("new")
    git(stage.merged, "add", "b.txt")
    assert stage.kinds() == {".git": "modified", "b.txt": "modified"}
