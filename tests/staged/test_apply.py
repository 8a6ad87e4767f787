"""Applying: what is in the workspace afterwards, what is refused, and that no crash leaves half a file."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import tracemalloc
from pathlib import Path

import pytest
from tests.staged.conftest import Stage

from belljar.errors import BelljarError, Conflict, UsageError
from belljar.staged.apply import apply, undo
from belljar.staged.diff import unified
from belljar.workspace.idmap import unmount


def tree(path: Path) -> dict[str, tuple[str, object]]:
    found: dict[str, tuple[str, object]] = {}
    for each in sorted(path.rglob("*")):
        name = str(each.relative_to(path))
        if each.is_symlink():
            found[name] = "link", os.readlink(each)
        elif each.is_dir():
            found[name] = "directory", each.stat().st_mode & 0o777
        else:
            found[name] = "file", (each.read_bytes(), each.stat().st_mode & 0o777)
    return found


def change_much(merged: Path) -> None:
    (merged / "a.txt").write_text("changed\n")
    (merged / "b.txt").unlink()
    (merged / "new").mkdir()
    (merged / "new" / "deep").mkdir(mode=0o750)
    (merged / "new" / "deep" / "f").write_text("f")
    (merged / "run.sh").write_text("#!/bin/sh\n")
    (merged / "run.sh").chmod(0o755)
    (merged / "link").unlink()
    (merged / "link").symlink_to("/nowhere/outside")
    shutil.rmtree(merged / "dir")
    (merged / "dir").write_text("a file now")


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


def test_set_id_bits_and_owners_are_the_hosts(stage: Stage) -> None:
    (stage.merged / "x").write_text("x")
    os.chown(stage.merged / "x", 4242, 4242)
    (stage.merged / "x").chmod(0o6755)
    os.chown(stage.host / "b.txt", 1234, 1234)
    (stage.merged / "b.txt").write_text("new b")
    apply(stage.area, force=True)
    assert (stage.host / "x").stat().st_mode & 0o7777 == 0o755
    assert (stage.host / "x").stat().st_uid == stage.host.stat().st_uid
    assert (stage.host / "b.txt").stat().st_uid == 1234


def test_fifos_are_refused_with_a_word(stage: Stage) -> None:
    os.mkfifo(stage.merged / "fifo")
    (stage.merged / "x").write_text("x")
    result = apply(stage.area)
    assert (result.refused, result.paths) == (["fifo"], ["x"])
    assert not (stage.host / "fifo").exists()


def test_a_file_that_the_host_changed_meanwhile_is_a_conflict_and_nothing_is_done(stage: Stage) -> None:
    change_much(stage.merged)
    (stage.host / "a.txt").write_text("the host's own\n")
    before = tree(stage.host)
    with pytest.raises(Conflict) as caught:
        apply(stage.area)
    assert list(caught.value.paths) == ["a.txt"]
    assert "changed on the host, changed in the sandbox" in str(caught.value)
    assert tree(stage.host) == before
    apply(stage.area, force=True)
    assert (stage.host / "a.txt").read_text() == "changed\n"


def test_deleted_or_replaced_by_the_host_meanwhile(stage: Stage) -> None:
    (stage.merged / "a.txt").write_text("x")
    (stage.merged / "dir" / "c.txt").write_text("x")
    (stage.host / "a.txt").unlink()
    shutil.rmtree(stage.host / "dir")
    (stage.host / "dir").symlink_to("/etc")
    with pytest.raises(Conflict) as caught:
        apply(stage.area)
    assert {"a.txt", "dir"} <= set(caught.value.paths)


def test_a_renamed_file_is_no_conflict_and_one_that_the_host_deleted_still_is(stage: Stage) -> None:
    (stage.merged / "a.txt").rename(stage.merged / "moved.txt")
    (stage.merged / "b.txt").write_text("changed")
    (stage.host / "b.txt").unlink()
    with pytest.raises(Conflict) as caught:
        apply(stage.area)
    assert list(caught.value.paths) == ["b.txt"]
    apply(stage.area, ["moved.txt"])
    apply(stage.area, ["a.txt"])
    assert (stage.host / "moved.txt").read_text() == "one\ntwo\nthree\n"
    assert not (stage.host / "a.txt").exists()


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


def test_a_file_changed_in_a_directory_that_the_sandbox_deleted(stage: Stage) -> None:
    shutil.rmtree(stage.merged / "dir")
    (stage.host / "dir" / "c.txt").write_text("still needed")
    with pytest.raises(Conflict, match=r"dir/c\.txt changed on the host"):
        apply(stage.area)


def test_what_was_applied_can_be_changed_and_applied_again(stage: Stage) -> None:
    (stage.merged / "a.txt").write_text("1")
    apply(stage.area)
    (stage.merged / "a.txt").write_text("2")
    apply(stage.area)
    assert (stage.host / "a.txt").read_text() == "2"


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


def test_what_the_host_would_run_needs_a_yes_of_its_own(stage: Stage) -> None:
    (stage.merged / ".envrc").write_text("evil")
    (stage.merged / "x").write_text("x")
    result = apply(stage.area)
    assert (result.held, result.paths) == ([".envrc"], ["x"])
    with pytest.raises(UsageError, match=r"run \.envrc by itself"):
        apply(stage.area, [".envrc"])
    apply(stage.area, [".envrc"], runs_later=True)
    assert (stage.host / ".envrc").read_text() == "evil"


def test_a_commit_is_applied_and_a_planted_hook_is_held(stage: Stage) -> None:
    (stage.host / ".git" / "objects").mkdir(parents=True)
    (stage.host / ".git" / "config").write_text("[core]\n\tbare = false\n")
    (stage.merged / ".git" / "objects" / "aa").write_text("blob")
    (stage.merged / ".git" / "index").write_text("index")
    assert apply(stage.area).held == []
    (stage.merged / ".git" / "hooks").mkdir()
    (stage.merged / ".git" / "hooks" / "pre-commit").write_text("evil")
    assert apply(stage.area).held == [".git"]
    (stage.merged / ".git" / "hooks" / "pre-commit").unlink()
    (stage.merged / ".git" / "config").write_text("[core]\n\tbare = false\n\tfsmonitor = evil\n")
    assert apply(stage.area).held == [".git"]


@pytest.mark.parametrize("path", [".git", "sub/.git", ".git/hooks", ".git/config", ".vscode", "sub/.claude", ".github"])
def test_a_link_to_something_that_is_run_is_held(stage: Stage, path: str) -> None:
    (stage.merged / path).parent.mkdir(exist_ok=True)
    (stage.merged / "harmless").mkdir()
    (stage.merged / path).symlink_to(stage.host / "harmless")
    assert [held for held in apply(stage.area).held if path.startswith(held)]
    assert not (stage.host / path).is_symlink()


def test_settings_too_long_to_be_read_are_held(stage: Stage) -> None:
    (stage.host / ".git").mkdir()
    (stage.merged / ".git" / "config").write_text("#" * (2 << 20) + "\n[core]\n\tfsmonitor = evil\n")
    assert apply(stage.area).held == [".git"]


def test_hooks_of_a_submodule_that_is_named_like_a_store_are_held(stage: Stage) -> None:
    (stage.host / ".git" / "modules" / "x" / "objects").mkdir(parents=True)
    (stage.merged / ".git" / "modules" / "x" / "objects" / "hooks").mkdir()
    (stage.merged / ".git" / "modules" / "x" / "objects" / "hooks" / "post-checkout").write_text("evil")
    assert apply(stage.area).held == [".git"]


def test_a_git_directory_by_another_name_is_held(stage: Stage) -> None:
    for name in ("objects", "refs"):
        (stage.merged / "store" / name).mkdir(parents=True)
    (stage.merged / "store" / "config").write_text("[core]\n\tfsmonitor = evil\n\tworktree = .\n")
    (stage.merged / "store" / "HEAD").write_text("ref: refs/heads/main\n")
    assert apply(stage.area).held == ["store/HEAD"]
    apply(stage.area, ["store/HEAD"], runs_later=True)
    (stage.merged / "store" / "config").write_text("[core]\n\tfsmonitor = worse\n\tworktree = .\n")
    assert apply(stage.area).held == ["store/config"]


def test_what_the_host_s_own_git_directory_leads_to_is_held(stage: Stage, host: Path) -> None:
    (host / ".git" / "hooks").mkdir(parents=True)
    (host / ".git" / "config").write_text("[core]\n\thooksPath = scripts/hooks\n[include]\n\tpath = ../team\n")
    (host / ".git" / "hooks" / "pre-push").symlink_to("../../scripts/check")
    (host / ".claude").symlink_to("agents")
    wanted = ["agents/settings.json", "scripts/check", "scripts/hooks/pre-commit", "team"]
    for path in [*wanted, "scripts/other"]:
        (stage.merged / path).parent.mkdir(exist_ok=True, parents=True)
        (stage.merged / path).write_text("evil")
    assert apply(stage.area).held == wanted
    assert (host / "scripts" / "other").exists()


@pytest.mark.parametrize("when", ["read", "journal"])
def test_settings_that_a_running_sandbox_swaps_meanwhile_are_not_applied(stage: Stage, when: str) -> None:
    (stage.host / ".git").mkdir()
    config = stage.merged / ".git" / "config"
    config.write_text("[core]\n\tbare = false\n")

    def swap(step: str) -> None:
        if step == when:
            config.write_text("[core]\n\tfsmonitor = evil\n")

    with contextlib.suppress(Conflict):
        apply(stage.area, step=swap)
    applied = stage.host / ".git" / "config"
    assert not applied.exists() or "evil" not in applied.read_text()


def test_a_sparse_file_stays_sparse_and_attributes_come_along(stage: Stage) -> None:
    big = stage.merged / "big"
    with big.open("wb") as file:
        file.seek(5 << 30)
        file.write(b"end")
    os.setxattr(big, "user.note", b"kept")
    tracemalloc.start()
    apply(stage.area)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 << 20
    status = (stage.host / "big").stat()
    assert status.st_size == (5 << 30) + 3
    assert status.st_blocks * 512 < 1 << 20
    assert os.getxattr(stage.host / "big", "user.note") == b"kept"


def test_names_that_are_no_text_are_applied(stage: Stage) -> None:
    name = os.fsdecode(b"\xff\nx")
    (stage.merged / name).write_text("odd")
    apply(stage.area)
    undo(stage.area)
    apply(stage.area)
    assert (stage.host / name).read_text() == "odd"


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
    with pytest.raises(OSError, match="No space"):
        apply(stage.area)
    assert tree(stage.host) == before


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


def test_what_the_host_had_changed_is_its_change_still_after_an_undo(stage: Stage) -> None:
    (stage.merged / "a.txt").write_text("sandbox")
    (stage.host / "a.txt").write_text("host")
    apply(stage.area, force=True)
    undo(stage.area)
    assert (stage.host / "a.txt").read_text() == "host"
    with pytest.raises(Conflict):
        apply(stage.area)


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
