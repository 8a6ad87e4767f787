"""Comparing two staged sessions of one workspace."""

import os
from pathlib import Path

import pytest
from tests.staged.conftest import Stage

from belljar.errors import UsageError
from belljar.staged import overlay
from belljar.staged.apply import apply
from belljar.staged.area import StagedArea
from belljar.staged.compare import compared
from belljar.staged.diff import LARGEST
from belljar.workspace.idmap import unmount


def test_only_differences_between_two_sessions_are_shown(
    stage: Stage, tmp_path: Path
) -> None:
    status, merged = stage.host.stat(), tmp_path / "other"
    merged.mkdir()
    inode = (status.st_dev, status.st_ino)
    other = StagedArea.create(
        tmp_path / "state",
        "bj-" + "1" * 12,
        str(stage.host),
        inode,
        os.geteuid(),
        os.getegid(),
    )
    overlay.mount([stage.host], other.path / "upper", other.work, merged)
    try:
        for place, text in ((stage.merged, "mine\n"), (merged, "yours\n")):
            (place / "b.txt").write_text(text)
            (place / "same").write_text("same\n")
            (place / "large same").write_bytes(b"x" * LARGEST + b"y")
        (merged / "bits").write_bytes(b"\0\1")
        (stage.merged / "large").write_bytes(b"x" * LARGEST + b"mine")
        (merged / "large").write_bytes(b"x" * LARGEST + b"your")
        (stage.merged / "bar").write_bytes(b"10%\r20%\n")
        (merged / "bar").write_bytes(b"10%\r30%\n")
        found = compared(stage.area, other)
    finally:
        unmount(merged)
    assert "-mine\n+yours\n" in found
    assert "--- a/bar\n+++ b/bar\n" in found
    assert "Binary files /dev/null and b/bits differ" in found
    assert "Binary files a/large and b/large differ" in found
    assert "-10%\r20%\n+10%\r30%\n" in found
    assert "same" not in found


def test_two_workspaces_cannot_be_compared(stage: Stage, tmp_path: Path) -> None:
    other = StagedArea.create(
        tmp_path / "state",
        "bj-" + "2" * 12,
        str(tmp_path),
        (1, 2),
        os.geteuid(),
        os.getegid(),
    )
    with pytest.raises(UsageError, match="different workspaces"):
        compared(stage.area, other)


def test_two_checkpoints_of_a_session_are_compared_also_after_an_apply(
    stage: Stage,
) -> None:
    (stage.merged / "a.txt").write_text("first\n")
    stage.checkpoint("one")
    (stage.merged / "a.txt").write_text("second\n")
    (stage.merged / "b.txt").unlink()
    stage.checkpoint("two")
    (stage.merged / "a.txt").write_text("third\n")
    apply(stage.area, ["a.txt"])
    (stage.host / "a.txt").write_text("host\n")
    one, two = stage.area.points
    between = compared(stage.area, stage.area, since=one, until=two)
    assert "-first\n+second\n" in between
    assert "b.txt" in between
    since = compared(stage.area, stage.area, ["a.txt"], since=two)
    assert "-second\n+third\n" in since
    assert "host" not in since
