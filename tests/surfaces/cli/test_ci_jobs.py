"""The jobs that `belljar ci` prints do what they say, with the shell that each system runs them with."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.surfaces.invoking import belljar

from belljar.surfaces.cli import ci_jobs

SHELLS = {
    "github": ("bash", "--noprofile", "--norc", "-eo", "pipefail"), "gitlab": ("bash", "-eo", "pipefail"),
    "jenkins": ("sh", "-xe"), "without-root": ("bash", "-eo", "pipefail"),
}  # fmt: skip
SHIPPED = Path(sys.executable).with_name("belljar")


@pytest.mark.parametrize("system", ci_jobs.FILES)
def test_a_job_runs_the_task_and_leaves_its_reports(
    system: str, workspace: Path
) -> None:
    job = belljar("ci", system).stdout
    (line,) = re.findall(r"^[ -]*(?:sh ')?(\S*belljar run .*?)'?$", job, re.MULTILINE)
    task = workspace / "agent-task.sh"
    task.write_text("#!/bin/sh\necho built > $BELLJAR_ARTIFACTS/result\n")
    task.chmod(0o755)
    tools = workspace / ".belljar" / "bin"
    tools.mkdir(parents=True)
    (tools / "belljar").symlink_to(SHIPPED)
    path = f"{SHIPPED.parent}:{os.environ['PATH']}"
    script = workspace.parent / "script.sh"
    script.write_text(f"{line}\n")
    ran = subprocess.run(
        [*SHELLS[system], str(script)], cwd=workspace, env={**os.environ, "PATH": path, "CI": "true"}, timeout=120,
        capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert json.loads((workspace / "belljar.json").read_text())["exit_code"] == 0
    assert "<testsuite" in (workspace / "belljar.xml").read_text()
    assert (workspace / "artifacts" / "result").read_text() == "built\n"
    for name in ("belljar.json", "belljar.xml", "artifacts"):
        assert name in job.split("belljar run", 1)[1]


@pytest.mark.parametrize("system", ["github", "gitlab"])
def test_a_job_builds_the_image_once_and_then_takes_it_from_the_cache(
    system: str, base_image: str, workspace: Path, tmp_path: Path
) -> None:
    """The steps before and after the task, as two jobs on machines with nothing but the cached file."""
    job = belljar("ci", system).stdout
    lines = re.findall(
        r"^ +(?:-|-? ?run:) (?:run: )?(.*(?:images |\bmv ).*)$", job, re.MULTILINE
    )
    assert len(lines) == (2 if system == "github" else 3)
    home = tmp_path / "home"
    home.mkdir()
    tools = workspace / ".belljar" / "bin"
    tools.mkdir(parents=True)
    (tools / "belljar").symlink_to(SHIPPED)
    ours = {
        "PATH": f"{SHIPPED.parent}:{os.environ['PATH']}",
        "HOME": str(home),
        "GITHUB_OUTPUT": str(tmp_path / "output"),
    }
    said = []
    for machine in ("first", "second"):
        (tmp_path / machine).mkdir(mode=0o700)
        ran = subprocess.run(
            [*SHELLS[system], "-c", "\n".join(lines)], cwd=workspace, timeout=240,
            env={**os.environ, **ours, "BELLJAR_IMAGES": str(tmp_path / machine)},
            capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr
        said.append(ran.stdout)
    assert said[0].startswith("sha256:"), "exported"
    assert said[1].startswith(base_image), "imported"
    (kept,) = [*home.glob("*.tar"), *workspace.glob("*.tar")]
    assert kept.stat().st_size > 50_000_000
