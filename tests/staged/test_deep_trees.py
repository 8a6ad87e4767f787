"""Trees that are too deep for Python's recursion, and so for pytest's."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.owners import deep_directory
from tests.staged.conftest import Stage

from belljar.errors import BelljarError
from belljar.staged.review import Review
from belljar.workspace.idmap import unmount


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    with deep_directory() as path:
        yield path


def test_a_tree_deeper_than_python_can_follow_is_taken_back(stage: Stage) -> None:
    deep = stage.host / "dir" / "/".join("d" * 1000)
    subprocess.run(["mkdir", "-p", deep], check=True)
    (deep / "file").write_text("deep")
    subprocess.run(["rm", "-rf", stage.merged / "dir"], check=True)
    (stage.merged / "dir").mkdir()
    (stage.merged / "dir" / "new").write_text("x")
    unmount(stage.merged)
    review = Review(stage.area)
    with pytest.raises(
        BelljarError, match="nothing was applied: more than 200 directories"
    ):
        review.apply(force=True)
    review.discard(["dir/d"])
    assert "dir/d" not in stage.kinds()
    assert (
        stage.area.path / "upper" / deep.relative_to(stage.host) / "file"
    ).read_text() == "deep"
