"""Layers that no overlay would write, and a host that changes during an apply: nothing outside is touched."""

from __future__ import annotations

import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path

import pytest
from tests.staged.conftest import Stage, change_much, tree

from belljar.errors import BelljarError
from belljar.staged.apply import apply, undo
from belljar.staged.area import LAYERS
from belljar.staged.review import Review
from belljar.workspace.idmap import unmount

pytestmark = pytest.mark.root


@pytest.fixture
def upper(stage: Stage) -> Path:
    """The upper layer without its overlay, as if a hostile sandbox could write anything there."""
    unmount(stage.merged)
    return stage.area.path / "upper"


def test_forged_whiteouts_devices_and_overlay_attributes_do_no_harm(
    stage: Stage, upper: Path
) -> None:
    before = tree(stage.host)
    for name in ("nosuch", "a.txt"):
        os.mknod(upper / name, stat.S_IFCHR, 0)
    os.mknod(upper / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    os.mknod(upper / "disk", stat.S_IFBLK | 0o600, os.makedev(8, 0))
    os.mknod(upper / "plug", stat.S_IFSOCK | 0o600)
    (upper / "dir").mkdir()
    os.setxattr(upper / "dir", "user.overlay.opaque", b"y")
    os.setxattr(upper / "dir", "trusted.overlay.redirect", b"/etc")
    done = apply(stage.area)
    assert done.refused == ["disk", "null", "plug"]
    assert done.paths == ["a.txt", "dir/c.txt", "dir/d.txt"]
    assert list(stage.changes()) == ["disk", "null", "plug"]
    undo(stage.area)
    assert tree(stage.host) == before


def _nest(at: Path, name: str, levels: int) -> None:
    here = os.open(at, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir(name, dir_fd=here)
        below = os.open(name, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(os.open("leaf", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)


def test_a_tree_nested_too_deeply_can_be_discarded(stage: Stage, upper: Path) -> None:
    levels = 1100  # more than Python's recursion limit
    _nest(upper, "d", levels)
    with pytest.raises(BelljarError, match="nested too deeply"):
        stage.area.snapshot("point")
    assert not list((stage.area.path.parent / LAYERS).iterdir())
    Review(stage.area).discard(["d"])
    assert not list(upper.iterdir())
    _nest(upper, "d", levels)
    stage.area.remove()
    assert [
        each.name
        for each in stage.area.path.parent.iterdir()
        if each.name.endswith(".gone")
    ] == []


@pytest.mark.parametrize(("name", "levels"), [("d", 300), ("n" * 250, 30)])
def test_a_tree_nested_too_deeply_is_refused_and_the_rest_applied(
    stage: Stage, upper: Path, name: str, levels: int
) -> None:
    _nest(upper, name, levels)
    (upper / "x").write_text("x")
    done = apply(stage.area)
    assert len(done.refused) == 1
    assert (stage.host / "x").read_text() == "x"
    assert not (stage.area.path / "journal.json").exists()
    undo(stage.area)
    assert not (stage.host / name).exists()


def test_a_host_that_swaps_a_directory_for_a_link_at_any_step_loses_nothing_outside(
    stage: Stage, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "c.txt").write_text("outside")
    for turn in range(40):
        (stage.merged / "dir" / "c.txt").write_text(f"sandbox {turn}")
        (stage.merged / "dir" / f"new{turn}").write_text("x")
        seen: list[str] = []

        def step(name: str, seen: list[str] = seen, turn: int = turn) -> None:
            seen.append(name)
            if len(seen) == turn % 12 + 1 and not (stage.host / "dir").is_symlink():
                (stage.host / "dir").rename(stage.host / "away")
                (stage.host / "dir").symlink_to(outside)

        with suppress(BelljarError, OSError):
            apply(stage.area, force=True, step=step)
        assert tree(outside) == {"c.txt": ("file", (b"outside", 0o644))}
        if (stage.host / "dir").is_symlink():
            (stage.host / "dir").unlink()
        if (stage.host / "away").exists():
            shutil.rmtree(stage.host / "dir", ignore_errors=True)
            (stage.host / "away").rename(stage.host / "dir")


def test_files_that_a_running_sandbox_changes_under_an_apply_are_old_or_new(
    stage: Stage,
) -> None:
    change_much(stage.merged)

    def step(name: str) -> None:
        with suppress(OSError):
            shutil.rmtree(stage.merged / "new")
        (stage.merged / "a.txt").write_text("again\n")

    with suppress(BelljarError, OSError):
        apply(stage.area, step=step)
    assert (stage.host / "a.txt").read_text() in (
        "one\ntwo\nthree\n",
        "changed\n",
        "again\n",
    )
    assert not [name for name in tree(stage.host) if name.endswith(".belljar")]
