"""How the growth of a workspace is measured."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from belljar.errors import ProtectionMissing
from belljar.limits import Limits
from belljar.workspace import budget
from belljar.workspace.budget import Budget, deleted, measure


@pytest.fixture
def root(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path, os.O_PATH | os.O_DIRECTORY)
    yield descriptor
    os.close(descriptor)


def test_bytes_are_those_that_the_disk_holds(root: int, tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 30)
    (tmp_path / "full").write_bytes(b"x" * (1 << 20))
    usage = measure(root)
    assert 1 << 20 <= usage.bytes < 2 << 20
    assert usage.entries == 2


def test_a_file_with_several_names_is_counted_once(root: int, tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"x" * (1 << 20))
    for n in range(5):
        os.link(tmp_path / "one", tmp_path / f"name-{n}")
    usage = measure(root)
    assert usage.bytes < 2 << 20
    assert usage.entries == 6


def test_links_are_never_followed(root: int, tmp_path: Path) -> None:
    (tmp_path / "up").symlink_to("/usr")
    (tmp_path / "round").symlink_to(".")
    assert measure(root).entries == 2


def test_entries_at_all_levels_count(root: int, tmp_path: Path) -> None:
    (tmp_path / "a" / "b" / "c").mkdir(parents=True)
    (tmp_path / "a" / "b" / "file").touch()
    assert measure(root).entries == 4


def test_counting_stops_at_the_budget(root: int, tmp_path: Path) -> None:
    for n in range(100):
        (tmp_path / str(n)).touch()
    assert measure(root, budget.Usage(1 << 62, 10)).entries == 11


def test_only_what_was_added_counts(root: int, tmp_path: Path) -> None:
    (tmp_path / "before").write_bytes(b"x" * (4 << 20))
    mine = Budget(root, Limits(workspace_bytes="1m", workspace_entries=3), os.getpid())
    (tmp_path / "little").write_bytes(b"x" * 1000)
    mine.look()
    assert not mine.exceeded
    (tmp_path / "much").write_bytes(b"x" * (2 << 20))
    mine.look()
    assert mine.exceeded
    (tmp_path / "much").unlink()
    mine.look()
    assert mine.exceeded, "once over, always over"


def test_a_tree_too_deep_to_see_is_refused_at_the_start_and_over_the_budget_later(root: int, tmp_path: Path) -> None:
    mine = Budget(root, Limits(workspace_entries=10_000), os.getpid())
    (tmp_path / "/".join("d" * (budget.DEPTH + 1))).mkdir(parents=True)
    mine.look()
    assert mine.exceeded
    with pytest.raises(ProtectionMissing, match="deeper"):
        Budget(root, Limits(workspace_entries=10_000), os.getpid())


def test_files_that_are_deleted_but_open_are_found(root: int, tmp_path: Path) -> None:
    with (tmp_path / "gone").open("wb") as file:
        file.write(b"x" * (1 << 20))
        file.flush()
        (tmp_path / "gone").unlink()
        assert deleted([os.getpid(), 2**22 + 1], os.fstat(root).st_dev) >= 1 << 20
