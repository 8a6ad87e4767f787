"""The overlay, on every kind of file system."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.staged.conftest import Stage, change_much, tree

from belljar.staged import overlay
from belljar.staged.apply import apply, undo
from belljar.workspace.idmap import unmount

pytestmark = pytest.mark.root


def _tmpfs(place: Path, _: Path) -> None:
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", place], check=True
    )


def _loop(place: Path, beside: Path) -> None:
    image = beside / "disk"
    with image.open("wb") as file:
        file.truncate(16 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, place], check=True)
    (place / "lost+found").rmdir()


def _overlay(place: Path, beside: Path) -> None:
    for name in ("lower", "upper", "work"):
        (beside / name).mkdir()
    overlay.mount([beside / "lower"], beside / "upper", beside / "work", place)


@pytest.fixture(params=[_tmpfs, _loop, _overlay], ids=["tmpfs", "loop", "overlay"])
def elsewhere(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    if os.geteuid() != 0:
        pytest.skip("only root can mount")
    host, merged, beside = tmp_path / "host", tmp_path / "merged", tmp_path / "beside"
    for path in (host, merged, beside):
        path.mkdir()
    try:
        request.param(host, beside)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"cannot be mounted here: {error}")
    for name in ("a.txt", "b.txt"):
        (host / name).write_text("one\n")
    (host / "dir").mkdir()
    (host / "dir" / "c.txt").write_text("c\n")
    (host / "link").symlink_to("a.txt")
    yield Stage(host, merged, tmp_path / "state")
    unmount(merged)
    unmount(host)


def test_a_workspace_on_another_file_system_is_applied_and_undone(
    elsewhere: Stage,
) -> None:
    before = tree(elsewhere.host)
    change_much(elsewhere.merged)
    apply(elsewhere.area)
    assert tree(elsewhere.host) == tree(elsewhere.merged)
    assert elsewhere.changes() == {}
    undo(elsewhere.area)
    assert tree(elsewhere.host) == before
