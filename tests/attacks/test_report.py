"""`--report FILE` where a repository or a command has put links into the workspace (R2)."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.surfaces.invoking import belljar


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "bashrc").write_text("the user's own\n")
    return folder


def test_a_report_is_not_written_through_a_link_that_a_command_plants(
    workspace: Path, outside: Path
) -> None:
    plant = f"""
ln -sf {outside}/bashrc report.json
python3 -c 'import os; [os.symlink("{outside}/bashrc", f".report.json.{{n}}") for n in range(70000)]'
"""
    (workspace / "plant.sh").write_text(plant)
    answer = belljar(
        "run", "--workspace", workspace, "--policy", "permissive", "--report", workspace / "report.json",
        "--", "bash", "plant.sh",
    )  # fmt: skip
    assert answer.status == 0, answer.stderr
    assert (outside / "bashrc").read_text() == "the user's own\n"
    report = workspace / "report.json"
    assert not report.is_symlink()
    assert json.loads(report.read_text())["cause"] == "exited"


def test_a_report_is_not_written_into_a_directory_that_a_command_swaps(
    workspace: Path, outside: Path
) -> None:
    (workspace / "out").mkdir(mode=0o777)
    swap = f"mv out was; ln -s {outside} out"
    answer = belljar(
        "run", "--workspace", workspace, "--report", workspace / "out" / "bashrc", swap
    )
    assert answer.status == 0, answer.stderr
    assert (outside / "bashrc").read_text() == "the user's own\n"
    assert json.loads((workspace / "was" / "bashrc").read_text())["cause"] == "exited"


@pytest.mark.parametrize("report", ["link/bashrc", "leaf", "fifo"])
def test_a_report_path_with_a_link_or_fifo_is_refused_before_anything_runs(
    workspace: Path, outside: Path, report: str
) -> None:
    (workspace / "link").symlink_to(outside)
    (workspace / "leaf").symlink_to(outside / "bashrc")
    os.mkfifo(workspace / "fifo")
    answer = belljar(
        "run", "--workspace", workspace, "--report", workspace / report, "touch ran"
    )
    assert answer.status == 2
    assert "--report" in answer.complaint
    assert (outside / "bashrc").read_text() == "the user's own\n"
    assert not (workspace / "ran").exists()


def test_a_report_path_through_an_alias_of_the_workspace_follows_no_link(
    workspace: Path, outside: Path, tmp_path: Path
) -> None:
    """A caller who entered the workspace through a link has such a path in $PWD."""
    (workspace / "link").symlink_to(outside)
    (tmp_path / "alias").symlink_to(workspace)
    answer = belljar(
        "run",
        "--workspace",
        workspace,
        "--report",
        tmp_path / "alias" / "link" / "bashrc",
        "touch ran",
    )
    assert (answer.status, (workspace / "ran").exists()) == (2, False)
    assert (outside / "bashrc").read_text() == "the user's own\n"


def test_a_report_of_a_session_command_follows_no_link_in_its_workspace(
    workspace: Path, outside: Path
) -> None:
    """The session's workspace is not the directory in which belljar is called."""
    (workspace / "link").symlink_to(outside)
    id = belljar("session", "start", "--workspace", workspace).stdout.strip()
    try:
        answer = belljar(
            "run",
            "--session",
            id,
            "--report",
            workspace / "link" / "bashrc",
            "touch ran",
            cwd=outside,
        )
    finally:
        belljar("session", "stop", id)
    assert (answer.status, (workspace / "ran").exists()) == (2, False)
    assert (outside / "bashrc").read_text() == "the user's own\n"
