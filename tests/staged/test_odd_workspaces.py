"""Workspaces that are not a plain directory on one disk: other file systems, overlays, git's special layouts."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from tests.staged.conftest import Stage, tree

from belljar.errors import BelljarError
from belljar.staged.apply import apply
from belljar.workspace.idmap import unmount

pytestmark = pytest.mark.root
GIT = [
    "git",
    "-c",
    "user.name=a",
    "-c",
    "user.email=a@b",
    "-c",
    "protocol.file.allow=always",
]


def test_a_disk_that_fills_up_during_an_apply_undoes_all_of_it(tmp_path: Path) -> None:
    host, merged = tmp_path / "host", tmp_path / "merged"
    host.mkdir()
    merged.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", host], check=True)
    try:
        for name in ("a.txt", "z.txt"):
            (host / name).write_text("one\n")
        stage = Stage(host, merged, tmp_path / "state")
        try:
            (merged / "a.txt").write_text("two\n")
            (merged / "big").write_bytes(bytes(range(256)) * 8192)
            (merged / "z.txt").unlink()
            before = tree(host)
            with pytest.raises(
                BelljarError, match="nothing was applied: No space left"
            ):
                apply(stage.area)
            assert tree(host) == before
            apply(stage.area, ["a.txt", "z.txt"])
            assert set(tree(host)) == {"a.txt"}
        finally:
            unmount(merged)
    finally:
        unmount(host)


def test_a_hard_link_is_broken_for_the_changed_name_only(stage: Stage) -> None:
    os.link(stage.host / "a.txt", stage.host / "twin")
    (stage.merged / "a.txt").write_text("changed")
    assert stage.kinds() == {"a.txt": "modified"}
    apply(stage.area, force=True)  # force, because the link is newer than the session
    assert (stage.host / "twin").read_text() == "one\ntwo\nthree\n"
    assert (stage.host / "a.txt").read_text() == "changed"


def test_files_linked_in_the_sandbox_are_both_applied(stage: Stage) -> None:
    (stage.merged / "x").write_text("x")
    os.link(stage.merged / "x", stage.merged / "y")
    apply(stage.area)
    assert (stage.host / "y").read_text() == "x"


def test_a_name_changed_only_in_case_is_applied(stage: Stage) -> None:
    (stage.merged / "a.txt").rename(stage.merged / "A.txt")
    assert stage.kinds() == {"A.txt": "added", "a.txt": "deleted"}
    apply(stage.area)
    assert sorted(path.name for path in stage.host.glob("[aA].txt")) == ["A.txt"]


def test_links_that_lead_out_or_in_circles_are_applied_as_links(stage: Stage) -> None:
    (stage.merged / "out").symlink_to("../../etc/passwd")
    (stage.merged / "loop").symlink_to("loop")
    (stage.merged / "here").symlink_to(".")
    assert set(stage.kinds()) == {"here", "loop", "out"}
    apply(stage.area)
    assert os.readlink(stage.host / "loop") == "loop"
    assert os.readlink(stage.host / "out") == "../../etc/passwd"


def _git(*words: object, at: Path) -> None:
    subprocess.run(
        [*GIT, "-C", str(at), *map(str, words)], check=True, capture_output=True
    )


def test_a_submodule_is_one_change_and_its_hooks_are_held_back(
    stage: Stage, tmp_path: Path
) -> None:
    module = tmp_path / "module"
    _git("init", "-q", module, at=tmp_path)
    _git("commit", "-q", "--allow-empty", "-m", "one", at=module)
    _git("init", "-q", at=stage.host)
    _git("submodule", "-q", "add", module, "sub", at=stage.host)
    _git("add", "-A", at=stage.host)
    _git("commit", "-qm", "one", at=stage.host)
    (stage.merged / "sub" / "new").write_text("x")
    _git("add", "-A", at=stage.merged / "sub")
    _git("commit", "-qm", "two", at=stage.merged / "sub")
    assert stage.kinds() == {".git": "modified", "sub/new": "added"}
    assert (
        apply(stage.area, force=True).held == []
    )  # force, because the repository is newer than the session
    (stage.merged / ".git/modules/sub/hooks/pre-commit").write_text("evil")
    assert apply(stage.area).held == [".git"]
    (stage.merged / "sub/.git").write_text("gitdir: /tmp/evil")
    assert sorted(apply(stage.area).held) == [".git", "sub/.git"]


def test_a_worktrees_git_file_is_held_back(stage: Stage, tmp_path: Path) -> None:
    main = tmp_path / "main"
    _git("init", "-q", main, at=tmp_path)
    _git("commit", "-q", "--allow-empty", "-m", "one", at=main)
    _git("worktree", "add", "-q", "--detach", tmp_path / "tree", at=main)
    (tmp_path / "tree" / ".git").rename(stage.host / ".git")
    (stage.merged / "a.txt").write_text("changed")
    assert stage.kinds() == {"a.txt": "modified"}
    (stage.merged / ".git").write_text("gitdir: /tmp/evil")
    assert apply(stage.area).held == [".git"]
    assert (stage.host / "a.txt").read_text() == "changed"
