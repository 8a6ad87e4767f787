"""Workspaces that are not a plain directory on the same disk: other file systems, overlays, git's own arrangements."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.staged.conftest import Stage
from tests.staged.test_apply import change_much, tree

from belljar.errors import BelljarError
from belljar.staged import overlay
from belljar.staged.apply import apply, undo
from belljar.workspace.idmap import unmount

pytestmark = pytest.mark.root
GIT = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always"]


def _tmpfs(place: Path, _: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", place], check=True)


def _loop(place: Path, beside: Path) -> None:
    image = beside / "disk"
    with image.open("wb") as file:
        file.truncate(16 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, place], check=True)
    (place / "lost+found").rmdir()


def _overlay(place: Path, beside: Path) -> None:
    for name in ("lower", "upper", "work"):
        (beside / name).mkdir()
    overlay.mount([beside / "lower"], beside / "upper", beside / "work", place)


@pytest.fixture(params=[_tmpfs, _loop, _overlay], ids=["tmpfs", "loop", "overlay"])
def elsewhere(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    if os.geteuid() != 0:
        pytest.skip("only root can mount")
    host, merged, beside = tmp_path / "host", tmp_path / "merged", tmp_path / "beside"
    for path in (host, merged, beside):
        path.mkdir()
    try:
        request.param(host, beside)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"cannot be mounted here: {error}")
    for name in ("a.txt", "b.txt"):
        (host / name).write_text("one\n")
    (host / "dir").mkdir()
    (host / "dir" / "c.txt").write_text("c\n")
    (host / "link").symlink_to("a.txt")
    yield Stage(host, merged, tmp_path / "state")
    unmount(merged)
    unmount(host)


def test_a_workspace_on_another_file_system_is_applied_and_undone(elsewhere: Stage) -> None:
    before = tree(elsewhere.host)
    change_much(elsewhere.merged)
    apply(elsewhere.area)
    assert tree(elsewhere.host) == tree(elsewhere.merged)
    assert elsewhere.changes() == {}
    undo(elsewhere.area)
    assert tree(elsewhere.host) == before


def test_a_disk_that_is_full_in_the_middle_takes_all_of_it_back(tmp_path: Path) -> None:
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
            with pytest.raises(BelljarError, match="nothing was applied: No space left"):
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
    apply(stage.area, force=True)  # the link is newer than the session
    assert (stage.host / "twin").read_text() == "one\ntwo\nthree\n"
    assert (stage.host / "a.txt").read_text() == "changed"


def test_files_linked_in_the_sandbox_are_both_applied(stage: Stage) -> None:
    (stage.merged / "x").write_text("x")
    os.link(stage.merged / "x", stage.merged / "y")
    apply(stage.area)
    assert (stage.host / "y").read_text() == "x"


def test_a_name_that_changed_only_in_case(stage: Stage) -> None:
    (stage.merged / "a.txt").rename(stage.merged / "A.txt")
    assert stage.kinds() == {"A.txt": "added", "a.txt": "deleted"}
    apply(stage.area)
    assert sorted(path.name for path in stage.host.glob("[aA].txt")) == ["A.txt"]


def test_links_that_lead_out_or_in_circles_are_links(stage: Stage) -> None:
    (stage.merged / "out").symlink_to("../../etc/passwd")
    (stage.merged / "loop").symlink_to("loop")
    (stage.merged / "here").symlink_to(".")
    assert set(stage.kinds()) == {"here", "loop", "out"}
    apply(stage.area)
    assert os.readlink(stage.host / "loop") == "loop"
    assert os.readlink(stage.host / "out") == "../../etc/passwd"


def _git(*words: object, at: Path) -> None:
    subprocess.run([*GIT, "-C", str(at), *map(str, words)], check=True, capture_output=True)


def test_a_submodule_is_one_line_and_its_hooks_are_held(stage: Stage, tmp_path: Path) -> None:
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
    assert apply(stage.area, force=True).held == []  # the repository is newer than the session
    (stage.merged / ".git/modules/sub/hooks/pre-commit").write_text("evil")
    assert apply(stage.area).held == [".git"]
    (stage.merged / "sub/.git").write_text("gitdir: /tmp/evil")
    assert sorted(apply(stage.area).held) == [".git", "sub/.git"]


def test_a_worktree_whose_git_directory_is_elsewhere(stage: Stage, tmp_path: Path) -> None:
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
