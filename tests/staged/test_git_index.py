"""A git index that differs only in inode data is no change. An index with other contents is one."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from tests.staged.conftest import Stage

from belljar.errors import Conflict
from belljar.staged import git_index
from belljar.staged.apply import apply, undo

GIT = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "safe.directory=*"]


def git(at: Path, *words: str) -> bytes:
    subprocess.run([*GIT, "-C", str(at), *words], check=True, capture_output=True)
    index = at / ".git" / "index"
    return index.read_bytes() if index.exists() else b""


@pytest.mark.parametrize("version", ["2", "3", "4"])
def test_only_an_index_with_other_contents_has_another_digest(
    tmp_path: Path, version: str
) -> None:
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


def test_git_status_in_the_sandbox_is_no_change(stage: Stage) -> None:
    git(stage.host, "init", "-q")
    git(stage.host, "add", "-A")
    before = git(stage.host, "commit", "-qm", "one")
    os.chown(
        stage.merged / "a.txt", 54321, 54321
    )  # in a sandbox every file has another owner
    assert git(stage.merged, "status") != before
    assert stage.kinds() == {}
    (stage.merged / "b.txt").write_text("new")
    git(stage.merged, "add", "b.txt")
    assert stage.kinds() == {".git": "modified", "b.txt": "modified"}


@pytest.fixture
def committed(stage: Stage) -> Stage:
    """A repository that is older than the session, with a commit made in the sandbox."""
    git(stage.host, "init", "-q")
    git(stage.host, "add", "-A")
    git(stage.host, "commit", "-qm", "one")
    stage.area.meta["since"] = (
        max(each.lstat().st_ctime_ns for each in stage.host.rglob("*")) + 1
    )
    (stage.merged / "b.txt").write_text("new")
    git(stage.merged, "commit", "-qam", "two")
    return stage


def looked_at_by_git(place: Path) -> None:
    os.utime(place / "a.txt", (1, 1))
    before = (place / ".git" / "index").read_bytes()
    assert git(place, "status") != before


def test_git_status_on_the_host_is_no_conflict_for_apply_or_undo(
    committed: Stage,
) -> None:
    stage = committed
    log = stage.host / ".git/logs/HEAD"
    old = log.read_text()
    assert stage.kinds() == {".git": "modified", "b.txt": "modified"}
    looked_at_by_git(stage.host)
    apply(stage.area)
    assert len(log.read_text().splitlines()) == 2
    os.utime(stage.host / "a.txt", (2, 2))
    looked_at_by_git(stage.host)
    undo(stage.area)
    assert log.read_text() == old
    apply(stage.area)
    assert len(log.read_text().splitlines()) == 2


def test_git_add_on_the_host_meanwhile_is_a_conflict_for_apply_and_undo(
    committed: Stage,
) -> None:
    stage = committed
    stage.changes()
    (stage.host / "mine").write_text("mine")
    git(stage.host, "add", "mine")
    with pytest.raises(Conflict, match="nothing was applied") as caught:
        apply(stage.area)
    assert set(caught.value.paths) == {".git/index"}
    apply(stage.area, force=True)
    git(stage.host, "rm", "-q", "--cached", "a.txt")
    with pytest.raises(Conflict, match="nothing was taken back") as caught:
        undo(stage.area)
    assert set(caught.value.paths) == {".git/index"}
