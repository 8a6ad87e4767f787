"""The directory that keeps staged changes exists only while there are any."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.session.test_staged import Open, root
from tests.session.test_staged import _nothing_stays as _nothing_stays
from tests.session.test_staged import engine_name as engine_name
from tests.session.test_staged import place as place
from tests.session.test_staged import staged as staged
from tests.staged.conftest import Stage

from belljar.errors import UsageError
from belljar.staged.area import LAYERS, StagedArea
from belljar.staged.review import Review
from belljar.workspace.idmap import unmount

pytestmark = [pytest.mark.anyio, pytest.mark.root, pytest.mark.engine]


def remains() -> list[str]:
    found = (
        [each.name for each in root().iterdir() if not each.name.endswith(".lock")]
        if root().is_dir()
        else []
    )
    layers = (
        [each.name for each in (root() / LAYERS).iterdir()]
        if (root() / LAYERS).is_dir()
        else []
    )
    return [name for name in found if name != LAYERS] + layers


async def test_a_session_that_changed_nothing_leaves_nothing(staged: Open) -> None:
    before = remains()  # by earlier tests of this process
    async with staged() as box:
        await box.run("cat a.txt")
        await box.checkpoint()
    assert remains() == before


async def test_changes_outlive_their_session(staged: Open, place: Path) -> None:
    async with staged() as box:
        await box.run("echo two > a.txt; rm b.txt; echo x > dir/x")
    (area,) = StagedArea.all(root())
    assert area.id
    review = Review(area)
    assert [change.path for change in review.changes()] == ["a.txt", "b.txt", "dir/x"]
    review.discard(["b.txt"])
    review.apply()
    assert (place / "a.txt").read_text() == "two\n"
    assert (place / "b.txt").exists()


async def test_a_checkpoint_is_not_lost_by_what_is_noted_beside_it(
    staged: Open,
) -> None:
    async with staged() as box:
        beside = box.staged.area
        await box.checkpoint("first")
        beside.note_command("a command that began before")
        assert [point.name for point in box.staged.area.points] == ["first"]
        await box.rollback("first")


def test_a_copied_checkpoint_beyond_its_bound_is_refused_with_sizes(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("belljar.staged.area.MOST_COPIED", 1 << 20)
    (stage.merged / "small").write_bytes(bytes(1000))
    point = stage.area.snapshot("small enough")
    (stage.merged / "large").write_bytes(os.urandom(2 << 20))
    with pytest.raises(UsageError, match=r"2 MiB changed so far.* of 1 MiB at most"):
        stage.area.snapshot("too large")
    assert stage.area.points == [point]
    assert len([*(stage.area.path.parent / LAYERS).iterdir()]) == 1


def test_another_device_number_is_accepted_only_after_a_reboot(stage: Stage) -> None:
    device, inode = stage.area.meta["inode"]
    stage.area.meta["inode"] = [device + 1, inode]
    assert not stage.area.is_in_place
    with pytest.raises(
        UsageError,
        match=f"no longer the directory that was staged; `belljar discard {stage.area.id}`",
    ):
        stage.area.changes()
    stage.area.meta["boot"] = "another"
    assert stage.area.is_in_place
    assert stage.area.changes() == []
    stage.area.meta["inode"] = [device, inode + 1]
    assert not stage.area.is_in_place


def test_the_name_of_a_checkpoint_is_taken_once(stage: Stage) -> None:
    stage.checkpoint("good")
    with pytest.raises(UsageError, match="there is a checkpoint 'good' already"):
        stage.area.taken("good")
    assert stage.area.taken("good", replace=True) == stage.area.points[0]
    assert stage.area.taken("other") is None
    assert stage.area.unused("good") == "good 2"
    with pytest.raises(UsageError, match="no checkpoint 'bad'; choose from 'good'"):
        stage.area.point("bad")


def test_changes_that_are_continued_get_a_work_directory_of_their_own(
    stage: Stage,
) -> None:
    """The kernel may still use the old one, for the sandbox before."""
    (stage.merged / "kept").write_text("x")
    unmount(stage.merged)
    old = stage.area
    area = StagedArea.continued(
        old.path.parent, "bj-" + "9" * 12, old, os.geteuid(), os.getegid(), None
    )
    assert area.work.name != old.work.name
    assert area.work.is_dir()
    assert [change.path for change in area.changes()] == ["kept"]
    assert StagedArea.find(old.path.parent, old.id).id == area.id
