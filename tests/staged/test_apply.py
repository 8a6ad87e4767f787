"""Applying: what is in the workspace afterwards, what is refused, and that no crash leaves half a file."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.staged.conftest import Stage, change_much, tree

from belljar.errors import BelljarError, Conflict, UsageError
from belljar.staged.apply import apply, undo
from belljar.staged.copying import copy_file
from belljar.staged.diff import unified
from belljar.workspace.beneath import Folder
from belljar.workspace.idmap import unmount


def test_all_of_it_is_as_the_sandbox_saw_it(stage: Stage) -> None:
    change_much(stage.merged)
    result = apply(stage.area)
    assert tree(stage.host) == tree(stage.merged)
    assert "a.txt" in result.paths
    assert stage.changes() == {}


def test_named_files_only_and_the_directories_they_need(stage: Stage) -> None:
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


def test_fifos_are_refused_with_a_word(stage: Stage) -> None:
    os.mkfifo(stage.merged / "fifo")
    (stage.merged / "x").write_text("x")
    result = apply(stage.area)
    assert (result.refused, result.paths) == (["fifo"], ["x"])
    assert not (stage.host / "fifo").exists()


def test_a_link_swapped_in_by_the_host_is_not_followed_even_by_force(stage: Stage, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (stage.merged / "dir" / "c.txt").write_text("escaped")
    shutil.rmtree(stage.host / "dir")
    (stage.host / "dir").symlink_to(outside)
    apply(stage.area, force=True)
    assert list(outside.iterdir()) == []
    assert not (stage.host / "dir").is_symlink()
    assert (stage.host / "dir" / "c.txt").read_text() == "escaped"


def test_what_was_applied_can_be_changed_and_applied_again(stage: Stage) -> None:
    (stage.merged / "a.txt").write_text("1")
    apply(stage.area)
    (stage.merged / "a.txt").write_text("2")
    apply(stage.area)
    assert (stage.host / "a.txt").read_text() == "2"


def test_a_read_only_directory_is_filled_first(stage: Stage) -> None:
    (stage.merged / "ro").mkdir()
    (stage.merged / "ro" / "f").write_text("f")
    (stage.merged / "ro").chmod(0o555)
    apply(stage.area)
    assert (stage.host / "ro" / "f").read_text() == "f"
    assert (stage.host / "ro").stat().st_mode & 0o777 == 0o555


def test_two_at_once_are_one_after_the_other(stage: Stage) -> None:
    change_much(stage.merged)
    inside: list[str] = []

    def step(name: str) -> None:
        inside.append(threading.current_thread().name)

    threads = [threading.Thread(target=apply, args=[stage.area], kwargs={"step": step}) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(inside)) == 1
    assert tree(stage.host) == tree(stage.merged)


def test_a_full_disk_in_the_middle_leaves_each_file_whole(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    change_much(stage.merged)
    before = tree(stage.host)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("belljar.staged.copying.copy_data", full)
    with pytest.raises(BelljarError, match="nothing was applied: No space"):
        apply(stage.area)
    assert tree(stage.host) == before
    assert not (stage.area.path / "undo.new").exists()


DYING = """
import os, signal, sys
from pathlib import Path
from belljar.staged.apply import apply
from belljar.staged.area import StagedArea
os.fsync = lambda descriptor: None  # a killed process loses nothing that it wrote

def dying(left):
    def step(name):
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
    apply(StagedArea(Path(sys.argv[1])), step=step)
    os._exit(0)

for line in sys.stdin:
    if (child := os.fork()) == 0:
        dying(int(line))
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def test_killed_at_200_points_each_file_is_old_or_new_and_the_rest_is_done_later(stage: Stage) -> None:
    (stage.merged / "many").mkdir()
    for number in range(95):
        (stage.merged / "many" / str(number)).write_text(f"{number}\n" * 50)
    change_much(stage.merged)
    old, new = tree(stage.host), tree(stage.merged)
    points, at, promised, status = 0, 0, False, -signal.SIGKILL
    command = [sys.executable, "-c", DYING, str(stage.area.path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as dying:
        assert dying.stdin
        assert dying.stdout
        while status == -signal.SIGKILL:
            points, at = points + 1, at + 1
            dying.stdin.write(f"{at}\n")
            dying.stdin.flush()
            status = int(dying.stdout.readline())
            if not promised and (stage.area.path / "journal.json").exists():
                promised, at = True, 0  # from here on the journal's steps are all there is to do
            for name, what in tree(stage.host).items():
                known = what in (old.get(name), new.get(name)) or what[0] == "directory" or name.endswith(".belljar")
                assert known, (points, name, what)
        dying.stdin.close()
    assert (status, points > 200) == (0, True)
    assert tree(stage.host) == new
    undo(stage.area)
    assert tree(stage.host) == old


def test_what_the_host_refuses_in_the_middle_undoes_the_rest(stage: Stage) -> None:
    change_much(stage.merged)
    locked = subprocess.run(["chattr", "+i", str(stage.host / "b.txt")], check=False, capture_output=True)
    if locked.returncode != 0:
        pytest.skip("this file system knows no immutable files")
    before = tree(stage.host)
    try:
        with pytest.raises(BelljarError, match="nothing was applied: Operation not permitted"):
            apply(stage.area, force=True)
        assert tree(stage.host) == before
    finally:
        subprocess.run(["chattr", "-i", str(stage.host / "b.txt")], check=True)
    apply(stage.area, [name for name in stage.changes() if name != "b.txt"])  # which chattr changed
    apply(stage.area, force=True)
    assert tree(stage.host) == tree(stage.merged)


def test_a_change_of_attributes_alone_is_seen_and_applied(stage: Stage) -> None:
    os.setxattr(stage.host / "b.txt", "user.old", b"1")
    os.setxattr(stage.merged / "a.txt", "user.note", b"new")
    os.setxattr(stage.merged / "b.txt", "user.old", b"2")
    (stage.merged / "dir" / "c.txt").chmod(0o644)  # copied up, with nothing changed
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


def test_a_deleted_directory_that_was_brought_back_can_be_deleted_again(stage: Stage) -> None:
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
def test_what_the_host_does_with_an_applied_file_is_its_own_business(stage: Stage, edit: str) -> None:
    (stage.merged / "a.txt").write_text("sandbox\n")
    (stage.merged / "b.txt").write_text("sandbox\n")
    apply(stage.area, ["a.txt"])
    (stage.host / "a.txt").write_text("sandbox\nmine\n") if edit == "changed" else (stage.host / "a.txt").unlink()
    assert list(stage.changes()) == ["b.txt"]
    assert apply(stage.area, force=True).paths == ["b.txt"]
    if edit == "changed":
        assert (stage.host / "a.txt").read_text() == "sandbox\nmine\n"
        unmount(stage.merged)
        (stage.area.path / "upper" / "a.txt").write_text("sandbox again\n")
        with pytest.raises(Conflict):
            apply(stage.area)


def test_the_workspace_s_owner_gets_nothing_of_root_s_by_swapping_names(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """He may rename whatever is in his directories, also what root made there, between any two steps of root's."""
    secrets = [stage.host / f"secret{number}" for number in range(4)]
    for path in stage.host.rglob("*"):
        os.chown(path, 4711, 4711, follow_symlinks=False)
    os.chown(stage.host, 4711, 4711)
    (stage.merged / "made").mkdir()
    (stage.merged / "new").write_text("from inside")
    (stage.merged / "pointer").symlink_to("a.txt")
    (stage.merged / "a.txt").chmod(0o777)
    for path in secrets:
        path.mkdir(mode=0o700) if path == secrets[0] else path.touch(mode=0o600)
    (secrets[0] / "key").write_text("s3cret")
    inodes = [path.stat().st_ino for path in secrets]
    there = dict(zip(("made", "new", "pointer", "a.txt"), secrets, strict=True))

    def swap(name: str, path: str) -> None:
        if (secret := there[name]).exists() and os.path.lexists(stage.host / path):
            os.rename(stage.host / path, stage.host / f"{name}.away")
            os.rename(secret, stage.host / path)

    def then(function: Callable[..., Any], name: str, at: int) -> Callable[..., Any]:
        def called(*given: Any, **more: Any) -> Any:
            found = function(*given, **more)
            swap(name, str(given[at]))
            return found

        return called

    monkeypatch.setattr(Folder, "mkdir", then(Folder.mkdir, "made", 1))
    monkeypatch.setattr(Folder, "symlink", then(Folder.symlink, "pointer", 2))
    monkeypatch.setattr("belljar.staged.apply.copy_file", then(copy_file, "new", 3))
    for name in there:
        with suppress(BelljarError):
            apply(stage.area, [name], force=True, step=lambda said: swap("a.txt", said.removeprefix("chmod ")))
    left = {path.lstat().st_ino: path.lstat() for path in stage.host.rglob("*")}
    kept = [left[inode] for inode in inodes if inode in left]
    assert [path for path in secrets if path.exists()] == []
    assert [(status.st_uid, status.st_mode & 0o777) for status in kept] == [(0, 0o700), *[(0, 0o600)] * (len(kept) - 1)]
