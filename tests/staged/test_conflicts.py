"""Applying never loses what the host has changed since."""

from __future__ import annotations

import os
import shutil

import pytest
from tests.staged.conftest import Stage, change_much, tree

from belljar.errors import Conflict
from belljar.staged.apply import apply, undo


def test_a_file_that_the_host_changed_meanwhile_is_a_conflict_and_nothing_is_done(
    stage: Stage,
) -> None:
    change_much(stage.merged)
    (stage.host / "a.txt").write_text("the host's own\n")
    before = tree(stage.host)
    with pytest.raises(Conflict) as caught:
        apply(stage.area)
    assert list(caught.value.paths) == ["a.txt"]
    assert "changed on the host, changed in the sandbox" in str(caught.value)
    assert tree(stage.host) == before
    apply(stage.area, force=True)
    assert (stage.host / "a.txt").read_text() == "changed\n"


def test_a_file_that_the_host_deleted_or_replaced_meanwhile_is_a_conflict(
    stage: Stage,
) -> None:
    (stage.merged / "a.txt").write_text("x")
    (stage.merged / "dir" / "c.txt").write_text("x")
    (stage.host / "a.txt").unlink()
    shutil.rmtree(stage.host / "dir")
    (stage.host / "dir").symlink_to("/etc")
    with pytest.raises(Conflict) as caught:
        apply(stage.area)
    assert {"a.txt", "dir"} <= set(caught.value.paths)


def test_a_renamed_file_is_no_conflict_and_one_that_the_host_deleted_still_is(
    stage: Stage,
) -> None:
    (stage.merged / "a.txt").rename(stage.merged / "moved.txt")
    (stage.merged / "b.txt").write_text("changed")
    (stage.host / "b.txt").unlink()
    with pytest.raises(Conflict) as caught:
        apply(stage.area)
    assert list(caught.value.paths) == ["b.txt"]
    apply(stage.area, ["moved.txt"])
    apply(stage.area, ["a.txt"])
    assert (stage.host / "moved.txt").read_text() == "one\ntwo\nthree\n"
    assert not (stage.host / "a.txt").exists()


def test_a_second_name_of_an_unchanged_file_is_no_conflict(stage: Stage) -> None:
    (stage.merged / "second.txt").hardlink_to(stage.merged / "a.txt")
    (stage.merged / "b.txt").write_text("changed")
    (stage.merged / "other.txt").hardlink_to(stage.merged / "b.txt")
    (stage.host / "b.txt").unlink()
    with pytest.raises(Conflict) as caught:
        apply(stage.area)
    assert set(caught.value.paths) == {"b.txt", "other.txt"}
    apply(stage.area, ["second.txt"])
    assert (stage.host / "second.txt").read_text() == "one\ntwo\nthree\n"


def test_a_host_change_in_a_directory_that_the_sandbox_deleted_is_a_conflict(
    stage: Stage,
) -> None:
    shutil.rmtree(stage.merged / "dir")
    (stage.host / "dir" / "c.txt").write_text("still needed")
    with pytest.raises(Conflict, match=r"dir/c\.txt changed on the host"):
        apply(stage.area)


def test_a_file_that_the_host_touched_or_changed_and_took_back_is_no_conflict(
    stage: Stage,
) -> None:
    (stage.merged / "a.txt").write_text("sandbox")
    for text in (None, "host", "one\ntwo\nthree\n"):
        stage.changes()
        (stage.host / "a.txt").write_text(text) if text else os.utime(
            stage.host / "a.txt"
        )
        if text == "host":
            with pytest.raises(Conflict):
                apply(stage.area)
            continue
        apply(stage.area)
        assert (stage.host / "a.txt").read_text() == "sandbox"
        undo(stage.area)
    (stage.host / "a.txt").chmod(0o600)
    with pytest.raises(Conflict):
        apply(stage.area)


def test_what_a_checkpoint_holds_is_not_taken_for_something_that_the_host_deleted(
    stage: Stage,
) -> None:
    (stage.merged / "d").mkdir()
    (stage.merged / "d" / "a").write_text("1")
    (stage.merged / "new.txt").write_text("new")
    stage.checkpoint()
    (stage.merged / "d" / "c").write_text(
        "4"
    )  # the directory is copied up from the checkpoint's layer
    (stage.merged / "new.txt").write_text("newer")
    stage.checkpoint("again")
    (stage.merged / "new.txt").rename(stage.merged / "moved.txt")
    (stage.merged / "d" / "e").write_text("5")
    assert set(apply(stage.area, ["d"]).paths) == {"d", "d/a", "d/c", "d/e"}
    apply(stage.area)
    assert (stage.host / "moved.txt").read_text() == "newer"


def test_a_file_that_the_host_deleted_is_a_conflict_also_after_a_checkpoint(
    stage: Stage,
) -> None:
    (stage.merged / "a.txt").write_text("changed")
    (stage.merged / "dir" / "c.txt").write_text("changed")
    stage.checkpoint()
    (stage.merged / "a.txt").write_text("changed again")
    shutil.rmtree(stage.host / "dir")
    (stage.host / "a.txt").unlink()
    with pytest.raises(Conflict) as caught:
        apply(stage.area)
    assert set(caught.value.paths) == {"a.txt", "dir", "dir/c.txt"}
