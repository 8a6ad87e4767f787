"""An apply that is killed, fails or meets a race in the middle."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from contextlib import suppress
from typing import Any

import pytest
from tests.staged.conftest import Stage, change_much, tree

from belljar.errors import BelljarError
from belljar.staged import journal
from belljar.staged.apply import apply, undo
from belljar.staged.copying import copy_file
from belljar.staged.journal import FEW
from belljar.workspace.beneath import Folder, Owner


def test_a_full_disk_in_the_middle_leaves_each_file_whole(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_an_apply_killed_at_200_points_leaves_each_file_old_or_new_and_resumes(
    stage: Stage,
) -> None:
    (stage.merged / "many").mkdir()
    for number in range(95):
        (stage.merged / "many" / str(number)).write_text(f"{number}\n" * 50)
    change_much(stage.merged)
    old, new = tree(stage.host), tree(stage.merged)
    points, at, promised, status = 0, 0, False, -signal.SIGKILL
    command = [sys.executable, "-c", DYING, str(stage.area.path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as dying:
        assert dying.stdin
        assert dying.stdout
        while status == -signal.SIGKILL:
            points, at = points + 1, at + 1
            dying.stdin.write(f"{at}\n")
            dying.stdin.flush()
            status = int(dying.stdout.readline())
            if not promised and (stage.area.path / "journal.json").exists():
                promised, at = (
                    True,
                    0,
                )  # from now on it only carries out the journal's steps
            for name, what in tree(stage.host).items():
                known = (
                    what in (old.get(name), new.get(name))
                    or what[0] == "directory"
                    or name.endswith(".belljar")
                )
                assert known, (points, name, what)
        dying.stdin.close()
    assert (status, points > 200) == (0, True)
    assert tree(stage.host) == new
    undo(stage.area)
    assert tree(stage.host) == old


def test_an_error_in_the_middle_of_an_apply_undoes_the_rest(stage: Stage) -> None:
    change_much(stage.merged)
    locked = subprocess.run(
        ["chattr", "+i", str(stage.host / "b.txt")], check=False, capture_output=True
    )
    if locked.returncode != 0:
        pytest.skip("this file system knows no immutable files")
    before = tree(stage.host)
    try:
        with pytest.raises(
            BelljarError, match="nothing was applied: Operation not permitted"
        ):
            apply(stage.area, force=True)
        assert tree(stage.host) == before
    finally:
        subprocess.run(["chattr", "-i", str(stage.host / "b.txt")], check=True)
    apply(
        stage.area, [name for name in stage.changes() if name != "b.txt"]
    )  # without the file that chattr has touched
    apply(stage.area, force=True)
    assert tree(stage.host) == tree(stage.merged)


def test_an_apply_by_root_follows_no_name_that_the_owner_swaps(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner may rename everything in his directories at any moment, even what root made there."""
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

    def give(folder: Folder, path: str, owner: Owner) -> None:
        swap("made" if path == "made" else "pointer", path)
        given(folder, path, owner)

    def copy(*given: Any, **more: Any) -> os.stat_result:
        status = copy_file(*given, **more)
        swap("new", given[3])
        return status

    given = Folder.give
    monkeypatch.setattr(Folder, "give", give)
    monkeypatch.setattr("belljar.staged.journal.copy_file", copy)
    for name in there:
        with suppress(BelljarError):
            apply(
                stage.area,
                [name],
                force=True,
                step=lambda said: swap("a.txt", said.removeprefix("chmod ")),
            )
    left = {path.lstat().st_ino: path.lstat() for path in stage.host.rglob("*")}
    kept = [left[inode] for inode in inodes if inode in left]
    assert [path for path in secrets if path.exists()] == []
    assert [(status.st_uid, status.st_mode & 0o777) for status in kept] == [
        (0, 0o700),
        *[(0, 0o600)] * (len(kept) - 1),
    ]


def test_many_files_wait_for_the_disk_together_and_one_that_is_refused_undoes_all(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each file is beside its place before the first is renamed."""
    names = [f"f{number}" for number in range(FEW + 1)]
    for name in names:
        (stage.merged / name).write_text("new\n")
    waited: list[str] = []
    monkeypatch.setattr(
        os,
        "fsync",
        lambda descriptor: waited.append(os.readlink(f"/proc/self/fd/{descriptor}")),
    )
    before = tree(stage.host)

    def refused(said: str) -> None:
        if said == f"rename {names[3]}":
            assert (
                len(
                    [
                        path
                        for path in stage.host.iterdir()
                        if path.name.endswith(".belljar")
                    ]
                )
                == len(names) - 3
            )
            raise OSError(errno.EPERM, "refused", names[3])

    with pytest.raises(BelljarError, match="nothing was applied"):
        apply(stage.area, step=refused)
    assert tree(stage.host) == before
    apply(stage.area)
    assert tree(stage.host) == tree(stage.merged)
    assert not [path for path in waited if path.startswith(str(stage.host))]


@pytest.mark.parametrize("again", [None, ["a.txt"], ["a.txt", "dir"], ["dir"]])
def test_an_apply_that_was_cut_off_is_told_by_the_next_one(
    stage: Stage, again: list[str] | None
) -> None:
    """It finishes what was begun, so that is what it has applied, also if somebody names it."""
    (stage.merged / "a.txt").write_text("new\n")
    (stage.merged / "dir" / "c.txt").write_text("new c\n")

    def cut_off(name: str) -> None:
        if name == "forget":
            raise SystemExit

    with pytest.raises(SystemExit):
        apply(stage.area, ["a.txt", "dir/c.txt"], step=cut_off)
    (stage.merged / "dir" / "d.txt").write_text("new d\n")
    rest = ["dir/d.txt"] if again is None or "dir" in again else []
    assert sorted(apply(stage.area, again).paths) == sorted(
        ["a.txt", "dir/c.txt", *rest]
    )


def test_what_is_beside_its_place_at_a_time_is_bounded_in_number_and_in_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(journal, "BATCH", 3)
    monkeypatch.setattr(journal, "BATCH_BYTES", 10)
    sizes = [1, 1, 1, 1, 9, 20, 1]
    steps = [(number, {"size": size}) for number, size in enumerate(sizes)]
    batches = [[one["size"] for _, one in batch] for batch in journal._batches(steps)]
    assert batches == [[1, 1, 1], [1, 9], [20], [1]]
