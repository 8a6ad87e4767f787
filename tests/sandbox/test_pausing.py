"""The mark of a paused sandbox: who holds it, and when its lease is over."""

from pathlib import Path

import pytest

from belljar.errors import UsageError
from belljar.sandbox.pausing import Mark, is_marked, is_over


def test_a_held_mark_is_never_over(tmp_path: Path) -> None:
    mark = Mark.make(tmp_path, lease=-1.0)
    assert is_marked(tmp_path)
    assert not is_over(tmp_path)
    with pytest.raises(UsageError, match="still has it open"):
        Mark.make(tmp_path, 0.0)
    mark.release()
    assert is_over(tmp_path)


def test_a_released_mark_is_over_after_its_lease_and_may_be_taken_over(
    tmp_path: Path,
) -> None:
    Mark.make(tmp_path, 600.0).release()
    assert not is_over(tmp_path)
    Mark.make(tmp_path, 0.0).remove()
    assert not is_marked(tmp_path)
    assert not is_over(tmp_path)


def test_a_mark_whose_sandbox_was_removed_meanwhile_is_let_go(tmp_path: Path) -> None:
    mark = Mark.make(tmp_path, 0.0)
    (tmp_path / "paused").unlink()
    mark.release()
