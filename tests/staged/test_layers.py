"""Reading the changes from the upper layer, in every odd case."""

from __future__ import annotations

import os
import shutil

import pytest
from tests.staged.conftest import Stage, tree

from belljar.staged.apply import apply, undo


def test_an_untouched_workspace_has_no_changes(stage: Stage) -> None:
    (stage.merged / "a.txt").read_text()
    assert stage.changes() == {}


def test_added_modified_deleted_and_mode_changes_are_found(stage: Stage) -> None:
    (stage.merged / "new.txt").write_text("n\n")
    (stage.merged / "a.txt").write_text("changed\n")
    (stage.merged / "b.txt").unlink()
    (stage.merged / "dir" / "c.txt").chmod(0o755)
    assert stage.kinds() == {
        "new.txt": "added",
        "a.txt": "modified",
        "b.txt": "deleted",
        "dir/c.txt": "mode",
    }
    assert (stage.host / "a.txt").read_text() == "one\ntwo\nthree\n"


def test_touched_or_rewritten_with_the_same_text_is_no_change(stage: Stage) -> None:
    (stage.merged / "a.txt").write_text("one\ntwo\nthree\n")
    os.utime(stage.merged / "b.txt")
    assert stage.changes() == {}


def test_a_deleted_directory_is_one_change(stage: Stage) -> None:
    shutil.rmtree(stage.merged / "dir")
    assert stage.kinds() == {"dir": "deleted"}


def test_a_directory_deleted_and_made_again_lists_its_own_changes(stage: Stage) -> None:
    shutil.rmtree(stage.merged / "dir")
    (stage.merged / "dir").mkdir()
    (stage.merged / "dir" / "c.txt").write_text("c\n")
    (stage.merged / "dir" / "e.txt").write_text("e\n")
    assert stage.kinds() == {"dir/d.txt": "deleted", "dir/e.txt": "added"}


def test_a_renamed_file_is_gone_and_new(stage: Stage) -> None:
    (stage.merged / "a.txt").rename(stage.merged / "z.txt")
    assert stage.kinds() == {"a.txt": "deleted", "z.txt": "added"}


def test_a_moved_directory_is_gone_and_new(stage: Stage) -> None:
    with pytest.raises(OSError, match="cross-device"):
        (stage.merged / "dir").rename(stage.merged / "moved")
    shutil.move(stage.merged / "dir", stage.merged / "moved")
    assert stage.kinds() == {
        "dir": "deleted",
        "moved": "added",
        "moved/c.txt": "added",
        "moved/d.txt": "added",
    }
    before = tree(stage.host)
    apply(stage.area)
    assert tree(stage.host) == tree(stage.merged)
    undo(stage.area)
    assert tree(stage.host) == before


def test_changes_of_type_are_found(stage: Stage) -> None:
    (stage.merged / "a.txt").unlink()
    (stage.merged / "a.txt").mkdir()
    (stage.merged / "a.txt" / "x").write_text("x")
    (stage.merged / "b.txt").unlink()
    (stage.merged / "b.txt").symlink_to("/etc/passwd")
    shutil.rmtree(stage.merged / "dir")
    (stage.merged / "dir").write_text("now a file")
    assert stage.kinds() == {
        "a.txt": "type",
        "a.txt/x": "added",
        "b.txt": "type",
        "dir": "type",
    }
    assert stage.changes()["b.txt"].after.target == "/etc/passwd"  # type: ignore[union-attr]


def test_links_loops_and_empty_directories_are_listed(stage: Stage) -> None:
    (stage.merged / "loop").symlink_to("loop")
    (stage.merged / "link").unlink()
    (stage.merged / "link").symlink_to("b.txt")
    (stage.merged / "empty").mkdir()
    assert stage.kinds() == {"loop": "added", "link": "modified", "empty": "added"}


def test_a_git_directory_is_one_change(stage: Stage) -> None:
    (stage.host / ".git" / "objects" / "aa").mkdir(parents=True)
    (stage.host / "sub" / ".git").mkdir(parents=True)
    for number in range(20):
        (stage.merged / ".git" / "objects" / "aa" / str(number)).write_text("o")
    (stage.merged / "sub" / ".git" / "HEAD").write_text("ref")
    (stage.merged / "worktree").mkdir()
    (stage.merged / "worktree" / ".git").write_text("gitdir: elsewhere")
    assert stage.kinds() == {
        ".git": "modified",
        "sub/.git": "modified",
        "worktree": "added",
        "worktree/.git": "added",
    }
    assert len(stage.changes()[".git"].members) == 20


def test_a_name_changed_only_in_case_is_gone_and_new(stage: Stage) -> None:
    (stage.merged / "a.txt").rename(stage.merged / "A.txt")
    assert stage.kinds() == {"a.txt": "deleted", "A.txt": "added"}


def test_an_untouched_directory_is_never_opened(stage: Stage) -> None:
    (stage.host / "locked").mkdir()
    (stage.merged / "a.txt").write_text("x")
    stage.host.joinpath("locked").chmod(0)
    assert stage.kinds() == {"a.txt": "modified"}
