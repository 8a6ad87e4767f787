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
