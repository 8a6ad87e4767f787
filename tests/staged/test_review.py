"""Taking changes back after the sandbox has gone; single hunks."""

from __future__ import annotations

import os
import shutil
from typing import Any

import pytest
from tests.staged.conftest import Stage
from tests.staged.test_apply import change_much, tree

from belljar.errors import Conflict, UsageError
from belljar.staged.apply import Applied, apply
from belljar.staged.review import Review
from belljar.workspace.idmap import unmount


def test_all_of_it_is_taken_back(stage: Stage) -> None:
    before = tree(stage.host)
    change_much(stage.merged)
    unmount(stage.merged)
    Review(stage.area).discard()
    assert stage.changes() == {}
    assert tree(stage.host) == before


def test_some_of_it_is_taken_back_and_the_rest_stays(stage: Stage) -> None:
    change_much(stage.merged)
    (stage.merged / "new" / "other").write_text("stays")
    unmount(stage.merged)
    assert Review(stage.area).discard(["a.txt", "b.txt", "new/deep/f"]) == ["a.txt", "b.txt", "new/deep/f"]
    assert set(stage.kinds()) == {"dir", "link", "new", "new/deep", "new/other", "run.sh"}


def test_what_a_replaced_directory_hides_is_there_again(stage: Stage) -> None:
    shutil.rmtree(stage.merged / "dir")
    (stage.merged / "dir").mkdir()
    (stage.merged / "dir" / "new").write_text("x")
    unmount(stage.merged)
    Review(stage.area).discard(["dir/c.txt"])
    assert stage.kinds() == {"dir/d.txt": "deleted", "dir/new": "added"}


def test_what_a_checkpoint_holds_is_taken_back_as_well(stage: Stage) -> None:
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
    shown = review.diff(["a.txt"])
    review.apply_chosen({stage.changes()["a.txt"]: shown}, {"a.txt": review.with_hunks("a.txt", [0])})
    assert (stage.host / "a.txt").read_text().startswith("zero")
    with pytest.raises(UsageError, match="nothing changed there"):
        review.hunks("b.txt")


def test_what_was_shown_is_what_is_applied(stage: Stage) -> None:
    (stage.merged / "a.txt").write_text("harmless\n")
    review = Review(stage.area)
    shown, change = review.diff(["a.txt"]), stage.changes()["a.txt"]
    (stage.merged / "a.txt").write_text("something else\n")
    with pytest.raises(Conflict, match="since it was shown"):
        review.apply_chosen({change: shown}, {})
    assert (stage.host / "a.txt").read_text() == "one\ntwo\nthree\n"


def test_what_a_sandbox_that_still_runs_writes_after_the_last_look_is_not_applied(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    (stage.merged / "a.txt").write_text("harmless\n")
    os.setxattr(stage.merged / "a.txt", "user.kept", b"1")
    review = Review(stage.area)
    shown, change = review.diff(["a.txt"]), stage.changes()["a.txt"]

    def swapped(*given: Any, **options: Any) -> Applied:
        (stage.merged / "a.txt").write_text("harmful!\n")
        return apply(*given, **options)

    monkeypatch.setattr("belljar.staged.review.apply", swapped)
    review.apply_chosen({change: shown}, {})
    assert (stage.host / "a.txt").read_text() == "harmless\n"
    assert os.getxattr(stage.host / "a.txt", "user.kept") == b"1"


def test_a_hook_in_the_place_of_what_was_shown_is_not_applied(stage: Stage) -> None:
    """Of `.git` only the number of changes is shown."""
    (stage.merged / ".git" / "refs").mkdir(parents=True)
    (stage.merged / ".git" / "refs" / "x").write_text("x")
    review = Review(stage.area)
    shown, change = review.diff([".git"]), stage.changes()[".git"]
    assert not change.runs_later
    (stage.merged / ".git" / "refs" / "x").unlink()
    (stage.merged / ".git" / "refs").rename(stage.merged / ".git" / "hooks")
    (stage.merged / ".git" / "hooks" / "pre-commit").write_text("harm")
    assert review.diff([".git"]) == shown
    with pytest.raises(Conflict, match="since it was shown"):
        review.apply_chosen({change: shown}, {})
    assert not (stage.host / ".git").exists()
