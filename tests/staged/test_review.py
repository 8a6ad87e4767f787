"""Discarding changes after the sandbox is gone, and applying single hunks."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from typing import Any

import pytest
from tests.staged.conftest import Stage, change_much, tree

from belljar.errors import BelljarError, Conflict, UsageError
from belljar.staged.apply import Applied, apply
from belljar.staged.review import Review
from belljar.workspace.idmap import unmount


def test_all_changes_can_be_discarded(stage: Stage) -> None:
    before = tree(stage.host)
    change_much(stage.merged)
    unmount(stage.merged)
    assert "a.txt" in Review(stage.area).discard()
    assert not stage.area.path.exists()
    assert tree(stage.host) == before


def test_named_changes_can_be_discarded_and_the_rest_stays(stage: Stage) -> None:
    change_much(stage.merged)
    (stage.merged / "new" / "other").write_text("stays")
    unmount(stage.merged)
    assert Review(stage.area).discard(["a.txt", "b.txt", "new/deep/f"]) == [
        "a.txt",
        "b.txt",
        "new/deep/f",
    ]
    assert set(stage.kinds()) == {
        "dir",
        "link",
        "new",
        "new/deep",
        "new/other",
        "run.sh",
    }


def test_a_discarded_deletion_in_a_replaced_directory_restores_the_file(
    stage: Stage,
) -> None:
    shutil.rmtree(stage.merged / "dir")
    (stage.merged / "dir").mkdir()
    (stage.merged / "dir" / "new").write_text("x")
    unmount(stage.merged)
    Review(stage.area).discard(["dir/c.txt"])
    assert stage.kinds() == {"dir/d.txt": "deleted", "dir/new": "added"}


def test_changes_in_a_checkpoint_can_be_discarded(stage: Stage) -> None:
    change_much(stage.merged)
    unmount(stage.merged)
    stage.area.freeze("one")
    before = set(stage.kinds())
    for path in ("a.txt", "b.txt", "new/deep/f", "dir"):
        Review(stage.area).discard([path])
    assert set(stage.kinds()) == before - {"a.txt", "b.txt", "new/deep/f", "dir"}


def test_hunks_are_shown_and_taken_one_by_one(stage: Stage) -> None:
    (stage.merged / "a.txt").write_text("zero\none\ntwo\nthree\n")
    review = Review(stage.area)
    (hunk,) = review.hunks("a.txt")
    assert "+zero" in hunk
    change = stage.changes()["a.txt"]
    review.apply_chosen(
        {change: review.show(change)}, {"a.txt": review.with_hunks("a.txt", [0])}
    )
    assert (stage.host / "a.txt").read_text().startswith("zero")
    with pytest.raises(UsageError, match="nothing changed there"):
        review.hunks("b.txt")


def test_what_was_shown_is_what_is_applied(stage: Stage) -> None:
    (stage.merged / "a.txt").write_text("harmless\n")
    review = Review(stage.area)
    change = stage.changes()["a.txt"]
    shown = review.show(change)
    (stage.merged / "a.txt").write_text("something else\n")
    with pytest.raises(Conflict, match="since it was shown"):
        review.apply_chosen({change: shown}, {})
    assert (stage.host / "a.txt").read_text() == "one\ntwo\nthree\n"


def test_what_a_running_sandbox_writes_after_the_review_is_not_applied(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    (stage.merged / "a.txt").write_text("harmless\n")
    os.setxattr(stage.merged / "a.txt", "user.kept", b"1")
    review = Review(stage.area)
    change = stage.changes()["a.txt"]
    shown = review.show(change)

    def swapped(*given: Any, **options: Any) -> Applied:
        (stage.merged / "a.txt").write_text("harmful!\n")
        return apply(*given, **options)

    monkeypatch.setattr("belljar.staged.review.apply", swapped)
    review.apply_chosen({change: shown}, {})
    assert (stage.host / "a.txt").read_text() == "harmless\n"
    assert os.getxattr(stage.host / "a.txt", "user.kept") == b"1"


def test_a_hook_that_replaced_the_shown_file_is_not_applied(stage: Stage) -> None:
    """The diff shows only the number of changes in `.git`, so it does not reveal the hook."""
    (stage.merged / ".git" / "refs").mkdir(parents=True)
    (stage.merged / ".git" / "refs" / "x").write_text("x")
    review = Review(stage.area)
    change = stage.changes()[".git"]
    shown = review.show(change)
    assert not change.runs_later
    (stage.merged / ".git" / "refs" / "x").unlink()
    (stage.merged / ".git" / "refs").rename(stage.merged / ".git" / "hooks")
    (stage.merged / ".git" / "hooks" / "pre-commit").write_text("harm")
    assert review.diff([".git"]) == shown.text
    with pytest.raises(Conflict, match="since it was shown"):
        review.apply_chosen({change: shown}, {})
    assert not (stage.host / ".git").exists()


@pytest.mark.parametrize("cut_off", [False, True])
def test_a_binary_file_is_applied_as_it_was_when_it_was_shown(
    stage: Stage, cut_off: bool
) -> None:
    """The replaced file has the same kind, mode, size and diff."""
    (stage.merged / "a.txt").write_text("other\n")
    (stage.merged / "b.txt").write_bytes(b"\0harmless")
    review, changes = Review(stage.area), stage.changes()
    seen = {change: review.show(change) for change in changes.values()}
    (stage.merged / "b.txt").write_bytes(b"\0harmful!")
    assert {change: review.show(change).text for change in seen} == {
        change: seen[change].text for change in seen
    }
    before = tree(stage.host)
    if cut_off:
        (stage.merged / "b.txt").write_bytes(b"\0harmless")
        with pytest.raises(KeyboardInterrupt):
            apply(
                stage.area,
                seen=seen,
                digests=seen[changes["b.txt"]].digests,
                step=_cut_off_at("file b.txt"),
            )
        (stage.merged / "b.txt").write_bytes(b"\0harmful!")
    with pytest.raises(
        BelljarError,
        match=r"nothing was applied: changed in the sandbox since it was shown: b\.txt",
    ):
        review.apply() if cut_off else review.apply_chosen(seen, {})
    assert tree(stage.host) == before
    (stage.merged / "b.txt").write_bytes(b"\0harmless")
    review.apply_chosen(seen, {})
    assert (stage.host / "b.txt").read_bytes() == b"\0harmless"


def _cut_off_at(where: str) -> Callable[[str], None]:
    def step(name: str) -> None:
        if name == where:
            raise KeyboardInterrupt

    return step


@pytest.mark.parametrize("checkpoint", [False, True])
def test_an_apply_can_be_undone_after_the_rest_was_discarded(
    stage: Stage, checkpoint: bool
) -> None:
    before = tree(stage.host)
    change_much(stage.merged)
    unmount(stage.merged)
    review = Review(stage.area)
    review.apply(["a.txt"])
    if checkpoint:
        stage.area.freeze("one")
    assert "b.txt" in review.discard()
    assert stage.changes() == {}
    assert review.undo() == ["a.txt"]
    assert tree(stage.host) == before
    assert review.discard() == []
    assert not stage.area.path.exists()


@pytest.mark.parametrize("replaced", ["link", "dir/inner"])
def test_a_link_that_a_checkpoint_replaced_is_restored_by_a_discard(
    stage: Stage, replaced: str
) -> None:
    (stage.host / "dir" / "inner").symlink_to("c.txt")
    before = tree(stage.host)
    (stage.merged / replaced).unlink()
    (stage.merged / replaced).write_text("no link")
    stage.checkpoint()
    unmount(stage.merged)
    Review(stage.area).discard([replaced])
    stage.mount()
    assert tree(stage.merged) == before
    assert stage.kinds() == {}


def test_a_directory_with_links_that_a_checkpoint_deleted_is_restored_by_a_discard(
    stage: Stage,
) -> None:
    (stage.host / "dir" / "inner").symlink_to("../nowhere")
    (stage.host / "dir" / "deep").mkdir(mode=0o750)
    (stage.host / "dir" / "deep" / "f").write_text("f")
    before = tree(stage.host)
    shutil.rmtree(stage.merged / "dir")
    stage.checkpoint()
    unmount(stage.merged)
    Review(stage.area).discard(["dir"])
    stage.mount()
    assert tree(stage.merged) == before
    assert stage.kinds() == {}
