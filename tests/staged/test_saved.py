"""What was applied can be taken back."""

from __future__ import annotations

import contextlib

import pytest
from tests.staged.conftest import Stage, change_much, tree

from belljar.errors import Conflict, UsageError
from belljar.staged.apply import apply, undo


def test_it_is_taken_back_once(stage: Stage) -> None:
    before = tree(stage.host)
    times = {path: path.lstat().st_mtime_ns for path in stage.host.rglob("*.txt")}
    change_much(stage.merged)
    apply(stage.area)
    undo(stage.area)
    assert tree(stage.host) == before
    assert {path: path.lstat().st_mtime_ns for path in stage.host.rglob("*.txt")} == times
    with pytest.raises(UsageError, match="nothing to take back"):
        undo(stage.area)


def test_an_undo_does_not_lose_what_the_host_did_since(stage: Stage) -> None:
    (stage.merged / "a.txt").write_text("1")
    apply(stage.area)
    (stage.host / "a.txt").write_text("mine")
    with pytest.raises(Conflict):
        undo(stage.area)
    assert (stage.host / "a.txt").read_text() == "mine"


def test_what_the_host_had_changed_is_its_change_still_after_an_undo(stage: Stage) -> None:
    (stage.merged / "a.txt").write_text("sandbox")
    (stage.host / "a.txt").write_text("host")
    apply(stage.area, force=True)
    undo(stage.area)
    assert (stage.host / "a.txt").read_text() == "host"
    with pytest.raises(Conflict):
        apply(stage.area)


def test_an_undo_that_was_cut_off_is_done_again(stage: Stage) -> None:
    before = tree(stage.host)
    change_much(stage.merged)
    apply(stage.area)
    for most in range(1, 20):
        seen: list[str] = []

        def step(path: str, seen: list[str] = seen, most: int = most) -> None:
            seen.append(path)
            if len(seen) > most:
                raise KeyboardInterrupt

        with contextlib.suppress(KeyboardInterrupt):
            undo(stage.area, step=step)
            break
    assert tree(stage.host) == before
