"""`--artifacts DIR`: files come out, nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.surfaces.invoking import belljar

from belljar.surfaces.cli import artifacts  # noqa: F401 - what these tests are about

LEAVE = "cd $BELLJAR_ARTIFACTS; mkdir d; echo x > d/f; chmod 755 d/f; ln -s /etc/passwd link; ln -s d dlink; mkfifo fifo"


@pytest.mark.parametrize("staged", [(), ("--staged",)], ids=["direct", "staged"])
def test_files_come_out_and_nothing_else(
    workspace: Path, tmp_path: Path, staged: tuple[str, ...]
) -> None:
    out = tmp_path / "out"
    answer = belljar(
        "run", *staged, "--workspace", workspace, "--artifacts", out, f"{LEAVE}; exit 3"
    )
    assert answer.status == 3
    assert sorted(path.relative_to(out).as_posix() for path in out.rglob("*")) == [
        "d",
        "d/f",
    ]
    assert os.access(out / "d" / "f", os.X_OK)
    assert "left out, being no files or directories: dlink, fifo, link" in answer.stderr


def test_a_link_in_the_place_of_the_directory_leads_nowhere(
    workspace: Path, tmp_path: Path
) -> None:
    text = "rm -r $BELLJAR_ARTIFACTS; ln -s /etc $BELLJAR_ARTIFACTS"
    answer = belljar(
        "run", "--workspace", workspace, "--artifacts", tmp_path / "out", text
    )
    assert answer.status == 125
    assert "--artifacts" in answer.stderr
    assert not any((tmp_path / "out").rglob("*"))


def test_a_link_that_the_command_plants_in_the_workspace_is_not_followed(
    workspace: Path, tmp_path: Path
) -> None:
    text = f"ln -s {tmp_path} out; echo x > $BELLJAR_ARTIFACTS/planted"
    answer = belljar(
        "run", "--workspace", workspace, "--artifacts", workspace / "out" / "in", text
    )
    assert answer.status == 125
    assert not (tmp_path / "in").exists()


def test_only_an_empty_place_is_filled(workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "full").write_text("mine")
    for place in (tmp_path, tmp_path / "full"):
        answer = belljar(
            "run", "--workspace", workspace, "--artifacts", place, "touch ran"
        )
        assert answer.status == 2
    assert not (workspace / "ran").exists()
    assert (tmp_path / "full").read_text() == "mine"
