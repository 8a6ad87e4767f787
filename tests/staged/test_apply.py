"""Applying changes: what the workspace then holds, what is refused, and that no crash leaves half a file."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

import pytest
from tests.staged.conftest import Stage, change_much, tree

from belljar.errors import Conflict, UsageError
from belljar.staged.apply import apply, undo
from belljar.staged.diff import unified
from belljar.workspace.idmap import unmount


def test_after_an_apply_the_host_equals_what_the_sandbox_saw(stage: Stage) -> None:
    change_much(stage.merged)
    result = apply(stage.area)
    assert tree(stage.host) == tree(stage.merged)
    assert "a.txt" in result.paths
    assert stage.changes() == {}


def test_an_apply_of_named_files_makes_only_the_directories_they_need(
    stage: Stage,
) -> None:
    change_much(stage.merged)
    apply(stage.area, ["new/deep/f"])
    assert (stage.host / "new/deep/f").read_text() == "f"
    assert (stage.host / "a.txt").read_text() == "one\ntwo\nthree\n"
    assert "new/deep/f" not in stage.kinds()
    with pytest.raises(UsageError, match="nothing changed there"):
        apply(stage.area, ["nosuch"])
    with pytest.raises(UsageError, match="not a path below"):
        apply(stage.area, ["../x"])
    (stage.merged / "..data").write_text("a name like any other")
    assert apply(stage.area, ["..data"]).paths == ["..data"]


def test_fifos_are_refused_by_name(stage: Stage) -> None:
    os.mkfifo(stage.merged / "fifo")
    (stage.merged / "x").write_text("x")
    result = apply(stage.area)
    assert (result.refused, result.paths) == (["fifo"], ["x"])
    assert not (stage.host / "fifo").exists()


def test_a_link_swapped_in_by_the_host_is_not_followed_even_by_force(
    stage: Stage, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (stage.merged / "dir" / "c.txt").write_text("escaped")
    shutil.rmtree(stage.host / "dir")
    (stage.host / "dir").symlink_to(outside)
    apply(stage.area, force=True)
    assert list(outside.iterdir()) == []
    assert not (stage.host / "dir").is_symlink()
    assert (stage.host / "dir" / "c.txt").read_text() == "escaped"


def test_an_applied_file_can_be_changed_and_applied_again(stage: Stage) -> None:
    (stage.merged / "a.txt").write_text("1")
    apply(stage.area)
    (stage.merged / "a.txt").write_text("2")
    apply(stage.area)
    assert (stage.host / "a.txt").read_text() == "2"


def test_files_are_written_before_their_directory_becomes_read_only(
    stage: Stage,
) -> None:
    (stage.merged / "ro").mkdir()
    (stage.merged / "ro" / "f").write_text("f")
    (stage.merged / "ro").chmod(0o555)
    apply(stage.area)
    assert (stage.host / "ro" / "f").read_text() == "f"
    assert (stage.host / "ro").stat().st_mode & 0o777 == 0o555


def test_two_applies_at_once_run_one_after_the_other(stage: Stage) -> None:
    change_much(stage.merged)
    inside: list[str] = []

    def step(name: str) -> None:
        inside.append(threading.current_thread().name)

    threads = [
        threading.Thread(target=apply, args=[stage.area], kwargs={"step": step})
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(inside)) == 1
    assert tree(stage.host) == tree(stage.merged)


def test_a_change_of_attributes_alone_is_seen_and_applied(stage: Stage) -> None:
    os.setxattr(stage.host / "b.txt", "user.old", b"1")
    os.setxattr(stage.merged / "a.txt", "user.note", b"new")
    os.setxattr(stage.merged / "b.txt", "user.old", b"2")
    (stage.merged / "dir" / "c.txt").chmod(
        0o644
    )  # copied into the upper layer, but unchanged
    assert stage.kinds() == {"a.txt": "modified", "b.txt": "modified"}
    with stage.area.layers() as layers:
        assert "# extended attributes differ\n" in unified(layers, layers.changes())
    apply(stage.area, force=True)
    assert os.getxattr(stage.host / "a.txt", "user.note") == b"new"
    assert os.getxattr(stage.host / "b.txt", "user.old") == b"2"
    assert stage.changes() == {}
    os.removexattr(stage.merged / "a.txt", "user.note")
    assert stage.kinds() == {"a.txt": "modified"}
    apply(stage.area)
    assert os.listxattr(stage.host / "a.txt") == []
    assert stage.changes() == {}


def test_a_deleted_directory_that_was_brought_back_can_be_deleted_again(
    stage: Stage,
) -> None:
    shutil.rmtree(stage.merged / "dir")
    apply(stage.area)
    undo(stage.area)
    apply(stage.area)
    assert not (stage.host / "dir").exists()


def test_the_longest_names_are_applied_and_taken_back(stage: Stage) -> None:
    name = "n" * 255
    (stage.host / name).write_text("old")
    (stage.merged / name).write_text("new")
    apply(stage.area, force=True)
    undo(stage.area)
    assert (stage.host / name).read_text() == "old"


@pytest.mark.parametrize("edit", ["changed", "deleted"])
def test_a_later_change_by_the_host_to_an_applied_file_is_left_alone(
    stage: Stage, edit: str
) -> None:
    (stage.merged / "a.txt").write_text("sandbox\n")
    (stage.merged / "b.txt").write_text("sandbox\n")
    apply(stage.area, ["a.txt"])
    (stage.host / "a.txt").write_text("sandbox\nmine\n") if edit == "changed" else (
        stage.host / "a.txt"
    ).unlink()
    assert list(stage.changes()) == ["b.txt"]
    assert apply(stage.area, force=True).paths == ["b.txt"]
    if edit == "changed":
        assert (stage.host / "a.txt").read_text() == "sandbox\nmine\n"
        unmount(stage.merged)
        (stage.area.path / "upper" / "a.txt").write_text("sandbox again\n")
        with pytest.raises(Conflict):
            apply(stage.area)
