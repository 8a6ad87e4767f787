"""A real overlay over a directory. Tests write to the merged view, as a sandbox would."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from belljar.staged import overlay
from belljar.staged.area import StagedArea
from belljar.staged.change import Change
from belljar.workspace.idmap import unmount


class Stage:
    """`merged` is the view of a sandbox, `host` the workspace itself."""

    def __init__(self, host: Path, merged: Path, root: Path) -> None:
        self.host, self.merged = host, merged
        status = host.stat()
        self.area = StagedArea.create(
            root,
            "bj-" + "0" * 12,
            str(host),
            (status.st_dev, status.st_ino),
            os.geteuid(),
            os.getegid(),
        )
        overlay.mount([host], self.area.path / "upper", self.area.work, merged)

    def checkpoint(self, name: str = "here") -> None:
        """As `Session.checkpoint` does it: the changes so far become a layer below a new upper directory."""
        unmount(self.merged)
        self.area.freeze(name)
        self.mount()

    def mount(self) -> None:
        upper, *below = self.area.uppers
        overlay.mount([*below, self.host], upper, self.area.work, self.merged)

    def changes(self) -> dict[str, Change]:
        return {change.path: change for change in self.area.changes()}

    def kinds(self) -> dict[str, str]:
        return {path: change.kind for path, change in self.changes().items()}


@pytest.fixture
def host(tmp_path: Path) -> Path:
    path = tmp_path / "host, with: odd name"
    path.mkdir()
    (path / "a.txt").write_text("one\ntwo\nthree\n")
    (path / "b.txt").write_text("b\n")
    (path / "dir").mkdir()
    (path / "dir" / "c.txt").write_text("c\n")
    (path / "dir" / "d.txt").write_text("d\n")
    (path / "link").symlink_to("a.txt")
    return path


@pytest.fixture
def stage(host: Path, tmp_path: Path) -> Iterator[Stage]:
    if os.geteuid() != 0:
        pytest.skip("only root can mount an overlay")
    merged = tmp_path / "merged"
    merged.mkdir()
    made = Stage(host, merged, tmp_path / "state")
    yield made
    unmount(merged)


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
