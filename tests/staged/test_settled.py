"""What was applied is no change again, whatever the host does with it, until the sandbox changes it."""

from __future__ import annotations

import shutil

from tests.staged.conftest import Stage, change_much

from belljar.staged.apply import apply, undo
from belljar.staged.review import Review
from belljar.staged.settled import LARGEST


def test_what_was_applied_is_no_ghost_when_the_host_deletes_or_changes_it(
    stage: Stage,
) -> None:
    change_much(stage.merged)
    (stage.merged / "large.bin").write_bytes(b"x" * (LARGEST + 1))
    apply(stage.area)
    assert stage.kinds() == {}
    shutil.rmtree(stage.host / "new")
    for name in ("a.txt", "link", "large.bin", "dir"):
        (stage.host / name).unlink()
    (stage.host / "run.sh").chmod(0o644)
    (stage.host / "b.txt").write_text("made again by the host")
    assert stage.kinds() == {}


def test_text_that_was_applied_as_it_was_shown_is_no_ghost_either(stage: Stage) -> None:
    (stage.merged / "note.txt").write_text("hello\n")
    (stage.merged / "b.txt").write_text("changed\n")
    review = Review(stage.area)
    review.apply_chosen(
        {change: review.show(change) for change in review.changes()}, {}
    )
    (stage.host / "note.txt").unlink()
    (stage.host / "b.txt").unlink()
    assert stage.kinds() == {}


def test_what_the_sandbox_changes_after_the_apply_is_a_change(stage: Stage) -> None:
    change_much(stage.merged)
    (stage.merged / "large.bin").write_bytes(b"x" * (LARGEST + 1))
    apply(stage.area)
    shutil.rmtree(stage.host / "new")
    (stage.merged / "new" / "deep" / "more").write_text("more")
    (stage.merged / "run.sh").chmod(0o700)
    (stage.merged / "large.bin").write_bytes(b"y" * (LARGEST + 1))
    (stage.merged / "b.txt").write_text("back")
    assert stage.kinds() == {
        "b.txt": "added", "large.bin": "modified", "new": "added", "new/deep": "added", "new/deep/more": "added",
        "run.sh": "mode",
    }  # fmt: skip
    apply(stage.area, ["new"])
    assert (stage.host / "new" / "deep" / "more").read_text() == "more"


def test_what_was_taken_back_or_discarded_is_a_change_again(stage: Stage) -> None:
    (stage.merged / "new").mkdir()
    (stage.merged / "new" / "f").write_text("f")
    (stage.merged / "b.txt").unlink()
    before = stage.kinds()
    apply(stage.area)
    undo(stage.area)
    assert stage.kinds() == before
    apply(stage.area, ["b.txt"])
    (stage.host / "b.txt").write_text("again")
    assert stage.kinds() == {"new": "added", "new/f": "added"}
