"""Taking changes back, live and after the sandbox has gone; single hunks."""

from __future__ import annotations

import os
import shutil

import pytest
from tests.staged.conftest import Stage
from tests.staged.test_apply import change_much, tree

from belljar.errors import UsageError
from belljar.staged.review import Review
from belljar.workspace.beneath import Folder
from belljar.workspace.idmap import unmount


@pytest.mark.parametrize("live", [True, False])
def test_all_of_it_is_taken_back(stage: Stage, live: bool) -> None:
    before = tree(stage.host)
    change_much(stage.merged)
    if live:
        with Folder.at(stage.merged) as merged:
            Review(stage.area).discard(live=merged)
        assert tree(stage.merged) == before
    else:
        unmount(stage.merged)
        Review(stage.area).discard()
    assert stage.changes() == {}
    assert tree(stage.host) == before


def test_some_of_it_is_taken_back_and_the_rest_stays(stage: Stage) -> None:
    change_much(stage.merged)
    os.chown(stage.merged, 4242, 4242)
    shutil.rmtree(stage.merged / "new")
    with Folder.at(stage.merged) as merged:
        assert Review(stage.area).discard(["a.txt", "b.txt"], live=merged) == ["a.txt", "b.txt"]
    assert (stage.merged / "a.txt").read_text() == "one\ntwo\nthree\n"
    assert (stage.merged / "b.txt").stat().st_uid == 4242
    assert set(stage.kinds()) == {"dir", "link", "run.sh"}


def test_hunks_are_shown_and_taken_one_by_one(stage: Stage) -> None:
    (stage.merged / "a.txt").write_text("zero\none\ntwo\nthree\n")
    review = Review(stage.area)
    (hunk,) = review.hunks("a.txt")
    assert "+zero" in hunk
    review.apply_hunks("a.txt", [0])
    assert (stage.host / "a.txt").read_text().startswith("zero")
    with pytest.raises(UsageError, match="nothing changed there"):
        review.hunks("b.txt")
