"""Undoing an apply."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
from tests.owners import OWNER, deep_directory, give
from tests.staged.conftest import Stage, change_much, tree

from belljar.errors import BelljarError, Conflict, UsageError
from belljar.staged import saved
from belljar.staged.apply import apply, undo
from belljar.staged.area import StagedArea
from belljar.staged.copying import make_whiteout
from belljar.workspace.beneath import Folder


def test_an_apply_is_undone_exactly_and_only_once(stage: Stage) -> None:
    before = tree(stage.host)
    times = {path: path.lstat().st_mtime_ns for path in stage.host.rglob("*.txt")}
    change_much(stage.merged)
    apply(stage.area)
    undo(stage.area)
    assert tree(stage.host) == before
    assert {
        path: path.lstat().st_mtime_ns for path in stage.host.rglob("*.txt")
    } == times
    with pytest.raises(UsageError, match="nothing that can still be taken back"):
        undo(stage.area)


def test_applies_are_taken_back_the_newest_first_and_only_so_many_are_kept(
    stage: Stage,
) -> None:
    for number in range(saved.MOST + 3):
        (stage.merged / "a.txt").write_text(f"{number}")
        apply(stage.area)
    for number in reversed(range(2, saved.MOST + 2)):
        undo(stage.area)
        assert (stage.host / "a.txt").read_text() == f"{number}"
    with pytest.raises(UsageError, match="nothing that can still"):
        undo(stage.area)
    assert [
        path.name for path in stage.area.path.iterdir() if path.name.startswith("und")
    ] == []


def test_an_undo_over_a_file_that_the_host_changed_is_a_conflict(stage: Stage) -> None:
    (stage.merged / "a.txt").write_text("1")
    apply(stage.area)
    (stage.host / "a.txt").write_text("mine")
    with pytest.raises(Conflict):
        undo(stage.area)
    assert (stage.host / "a.txt").read_text() == "mine"


def test_after_a_forced_apply_and_undo_the_conflict_is_still_there(
    stage: Stage,
) -> None:
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


def test_what_the_host_put_into_an_applied_directory_survives_an_undo(
    stage: Stage,
) -> None:
    (stage.merged / "new" / "deep").mkdir(parents=True)
    (stage.merged / "new" / "deep" / "ours").write_text("x")
    apply(stage.area)
    (stage.host / "new" / "mine").write_text("mine")
    undo(stage.area)
    assert [path.name for path in (stage.host / "new").iterdir()] == ["mine"]


def test_an_undo_does_not_follow_a_link_that_replaced_an_applied_directory(
    stage: Stage, tmp_path: Path
) -> None:
    """And the link does not make the undo fail half-way for good."""
    before, outside = tree(stage.host), tmp_path / "outside"
    (stage.merged / "new/deep").mkdir(parents=True)
    (stage.merged / "new/deep/f").write_text("f")
    apply(stage.area)
    (stage.host / "new").rename(outside)
    (stage.host / "new").symlink_to(outside)
    undo(stage.area, force=True)
    assert tree(stage.host) == before
    assert (outside / "deep/f").read_text() == "f"


def test_an_undo_stopped_by_a_link_is_finished_once_the_link_is_gone(
    stage: Stage, tmp_path: Path
) -> None:
    before, outside = tree(stage.host), tmp_path / "outside"
    (stage.merged / "dir/c.txt").write_text("changed")
    apply(stage.area)
    (stage.host / "dir").rename(outside)
    (stage.host / "dir").symlink_to(outside)
    with pytest.raises(BelljarError, match=r"taken back in part .*undo again"):
        undo(stage.area, force=True)
    assert (outside / "c.txt").read_text() == "changed"
    (stage.host / "dir").unlink()
    outside.rename(stage.host / "dir")
    undo(stage.area)
    assert tree(stage.host) == before


def test_an_undo_that_would_delete_a_host_file_in_a_replaced_directory_is_a_conflict(
    stage: Stage,
) -> None:
    (stage.merged / "a.txt").unlink()
    (stage.merged / "a.txt").mkdir()
    (stage.merged / "a.txt" / "ours").write_text("x")
    apply(stage.area)
    (stage.host / "a.txt" / "mine").write_text("mine")
    with pytest.raises(
        Conflict, match=r"nothing was taken back: a\.txt/mine: made on the host"
    ) as caught:
        undo(stage.area)
    assert set(caught.value.paths) == {"a.txt/mine"}
    (stage.host / "a.txt" / "mine").unlink()
    undo(stage.area)
    assert (stage.host / "a.txt").read_text() == "one\ntwo\nthree\n"


def test_a_change_of_a_directorys_mode_copies_no_contents(stage: Stage) -> None:
    (stage.merged / "dir").chmod(0o700)
    apply(stage.area)
    assert sorted(path.name for path in (stage.area.path / "undo").iterdir()) == [
        "saved.json"
    ]
    undo(stage.area)
    assert (stage.host / "dir").stat().st_mode & 0o777 == 0o755
    assert (stage.host / "dir" / "c.txt").exists()


class Cut(BaseException):
    """Raised in place of a kill."""


def cut_at(point: int) -> Callable[[str], None]:
    left = iter(range(point))

    def step(_: str) -> None:
        if next(left, None) is None:
            raise Cut

    return step


def shut_directories(place: Path) -> tuple[Path, StagedArea]:
    """Staged changes of a sandbox that made read-only directories writable, wrote to them, and restored their mode."""
    host = place / "host"
    for name in ("shut", "opened", "closed"):
        (host / name).mkdir(parents=True)
        (host / name / "f").write_text("one")
    (host / "shut" / "gone").touch()
    status = host.stat()
    area = StagedArea.create(
        place / "state",
        "bj-" + "0" * 12,
        str(host),
        (status.st_dev, status.st_ino),
        0,
        0,
    )
    upper = area.path / "upper"
    for name in ("shut", "opened", "closed", "made"):
        (upper / name).mkdir()
        (upper / name / "f").write_text("two")
    with Folder.at(upper) as layer:
        make_whiteout(layer, "shut/gone")
    for directory, mode in {
        host / "shut": 0o555, host / "opened": 0o555, upper / "shut": 0o555,
        upper / "closed": 0o500, upper / "made": 0o500,
    }.items():  # fmt: skip
        directory.chmod(mode)
    return host, area


@pytest.mark.root
@pytest.mark.parametrize("verb", ["apply", "undo"])
def test_an_apply_of_an_ordinary_user_killed_at_any_point_ends_with_the_right_modes(
    verb: str,
) -> None:
    for point in count():
        with deep_directory() as place:
            give(place)
            os.seteuid(OWNER)
            try:
                host, area = shut_directories(place)
                old = tree(host)
                if verb == "undo":
                    apply(area)
                try:
                    (apply if verb == "apply" else undo)(area, step=cut_at(point))
                    is_cut = False
                except Cut:
                    is_cut = True
                    if verb == "undo":
                        undo(area)
                if verb == "apply":
                    apply(area)
                    modes = {
                        path.name: path.stat().st_mode & 0o777
                        for path in host.iterdir()
                    }
                    assert modes == {
                        "shut": 0o555,
                        "opened": 0o755,
                        "closed": 0o500,
                        "made": 0o500,
                    }, point
                    assert {path.read_text() for path in host.rglob("f")} == {"two"}
                else:
                    assert tree(host) == old, point
            finally:
                os.seteuid(0)
        if not is_cut:
            assert point > 5
            return
