"""A working directory is never outside the workspace."""

import os
from pathlib import Path

import pytest

from belljar.errors import WorkingDirectoryError
from belljar.workspace.cwd import inside


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "src" / "deep").mkdir(parents=True)
    os.symlink("src/deep", tmp_path / "near")
    os.symlink("/workspace/src", tmp_path / "absolute")
    os.symlink("/etc", tmp_path / "etc")
    os.symlink("../..", tmp_path / "src" / "up")
    os.symlink("loop", tmp_path / "loop")
    return tmp_path


def looked(tree: Path, cwd: str | None) -> str:
    root = os.open(tree, os.O_PATH | os.O_DIRECTORY)
    try:
        return inside(str(tree), cwd, root=root)
    finally:
        os.close(root)


@pytest.mark.parametrize(
    ("cwd", "found"),
    [
        (None, "/workspace"),
        ("", "/workspace"),
        (".", "/workspace"),
        ("src", "/workspace/src"),
        ("src/../src/./deep/", "/workspace/src/deep"),
        ("/workspace/src", "/workspace/src"),
        ("near", "/workspace/src/deep"),
        ("absolute/deep", "/workspace/src/deep"),
        ("not/there", "/workspace/not/there"),
    ],
)
def test_a_directory_inside_the_workspace_is_accepted(
    tree: Path, cwd: str | None, found: str
) -> None:
    assert looked(tree, cwd) == found


def test_a_path_of_the_host_below_the_workspace_is_translated(tree: Path) -> None:
    assert looked(tree, str(tree / "src")) == "/workspace/src"


@pytest.mark.parametrize(
    "cwd",
    [
        "..",
        "/",
        "/etc",
        "src/../..",
        "etc",
        "src/up",
        "/workspace/../etc",
        "/work",
        "loop",
        "a\0b",
    ],
)
def test_a_directory_that_leads_out_is_refused(tree: Path, cwd: str) -> None:
    with pytest.raises(WorkingDirectoryError, match="Invalid working directory"):
        looked(tree, cwd)


def test_a_link_is_not_followed_where_no_descriptor_is_given(tree: Path) -> None:
    assert inside(str(tree), "etc") == "/workspace/etc"
