"""What a change reports about its file."""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path

import pytest
from tests.staged.conftest import Stage

from belljar.errors import UsageError
from belljar.staged.change import Change, select


def test_names_that_are_not_utf8_are_listed(stage: Stage) -> None:
    for name in (b"\xff\xfe", b"new\nline", b'quo"te', b" "):
        Path(os.fsdecode(os.fsencode(stage.merged) + b"/" + name)).write_text("x")
    assert set(stage.kinds().values()) == {"added"}
    assert len(stage.kinds()) == 4


def test_fifos_sockets_and_binary_files_are_distinguished(stage: Stage) -> None:
    os.mkfifo(stage.merged / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(stage.merged / "s"))
    (stage.merged / "bin").write_bytes(b"\0\1\2")
    found = stage.changes()
    assert found["fifo"].after.kind == "fifo"  # type: ignore[union-attr]
    assert found["s"].after.kind == "socket"  # type: ignore[union-attr]
    assert found["bin"].binary


def test_a_change_is_binary_if_either_side_is_and_the_contents_changed(
    stage: Stage,
) -> None:
    for name in ("to", "from", "mode", "gone"):
        (stage.host / name).write_bytes(b"\0" if name != "to" else b"text")
        (stage.host / name).chmod(0o644)
    (stage.merged / "to").write_bytes(b"\0")
    (stage.merged / "from").write_text("text")
    (stage.merged / "mode").chmod(0o755)
    (stage.merged / "gone").unlink()
    (stage.merged / "a.txt").write_text("text")
    found = {
        path: (change.kind, change.binary) for path, change in stage.changes().items()
    }
    assert found == {
        "to": ("modified", True),
        "from": ("modified", True),
        "mode": ("mode", False),
        "gone": ("deleted", False),
        "a.txt": ("modified", False),
    }


def test_a_change_is_of_a_directory_if_it_is_one_afterwards_or_one_was_deleted(
    stage: Stage,
) -> None:
    shutil.rmtree(stage.merged / "dir")
    (stage.merged / "dir").write_text("now a file")
    (stage.merged / "b.txt").unlink()
    (stage.merged / "b.txt").mkdir()
    (stage.merged / "new").mkdir()
    (stage.host / "empty").mkdir()
    (stage.merged / "empty").rmdir()
    (stage.merged / "a.txt").unlink()
    found = {
        path: (change.is_directory, change.kinds, change.size)
        for path, change in stage.changes().items()
        if "/" not in path
    }
    assert found == {
        "dir": (False, ("directory", "file"), 10),
        "b.txt": (True, ("file", "directory"), 0),
        "new": (True, ("directory",), 0),
        "empty": (True, ("directory",), 0),
        "a.txt": (False, ("file",), 14),
    }


def test_many_paths_are_found_among_many_changes_without_comparing_each_with_each() -> (
    None
):
    """Ten thousand of ten thousand: by pairs that would be a hundred million comparisons."""
    changes = [
        Change(f"d{number // 100}/f{number}", "added") for number in range(10_000)
    ]
    assert select(changes, [change.path for change in changes]) == changes
    assert select(changes, ["d7/", "./d7/f700", "d7"]) == changes[700:800]
    assert select(changes, ["."]) == changes
    with pytest.raises(UsageError, match="d7/f1: nothing changed there"):
        select(changes, ["d7", "d7/f1"])
