"""Names that were made in watched directories."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from belljar.runs_later import notify
from belljar.runs_later.notify import Made, Notifier
from belljar.runs_later.view import Entry, FolderView


def test_each_name_is_told_once_and_a_moved_directory_by_its_new_name(
    root: int, tmp_path: Path
) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    notifier = Notifier(root)
    assert all(notifier.watch(path) for path in ("", "a", "a/b"))
    assert not notifier.watch("missing")
    assert notifier.made() == []
    (tmp_path / "a" / "new").touch()
    os.link(tmp_path / "a" / "new", tmp_path / "a" / "b" / "second")
    assert notifier.made() == [Made("a", "new", False), Made("a/b", "second", False)]
    (tmp_path / "a" / "b").rename(tmp_path / "c")
    assert notifier.made() == [Made("a", "b", True, gone=True), Made("", "c", True)]
    assert notifier.watch("c")
    (tmp_path / "c" / "x").mkdir()
    assert notifier.made() == [Made("c", "x", True)]
    assert notifier.made() == []


def test_too_much_to_be_told_is_said_so(
    root: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notify, "_MOST", 1000)
    notifier = Notifier(root)
    notifier.watch("")
    for number in range(100):
        (tmp_path / f"file{number}").touch()
    assert notifier.made() is None
    assert notifier.made() == []


def test_a_view_reads_no_link(root: int, tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to("/etc")
    (tmp_path / "tool").write_text("x")
    (tmp_path / "tool").chmod(0o755)
    view = FolderView(root)
    assert set(view.entries("")) == {
        Entry(".git", "directory"),
        Entry("out", "link"),
        Entry("tool", "file"),
    }
    assert view.is_program("tool")
    for path in ("out", "out/passwd"):
        with pytest.raises(OSError, match=r"\w"):
            view.read(path, 100)
    with pytest.raises(OSError, match=r"\w"):
        view.entries("out")
