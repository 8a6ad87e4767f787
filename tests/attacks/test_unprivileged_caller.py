"""A caller who is not root: the sandbox runs as the caller, and every protection is in force."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pydantic
import pytest

import belljar

SOCKET = Path("/var/run/docker.sock")
CALLER = 1234
PYTHONPATH = os.pathsep.join(
    [str(Path(belljar.__file__).parents[1]), str(Path(pydantic.__file__).parents[1])]
)

SCRIPT = """
import sys
sys.prefix = sys.argv[2]  # where the init was built, whichever Python another user may run
import json, os, anyio, belljar

async def main():
    approve = lambda verdict: True
    async with belljar.Session(workspace=sys.argv[1], policy="permissive", approve=approve) as box:
        result = await box.run(["bash", "/workspace/attack"], timeout=30)
        print(json.dumps([result.stdout, result.stderr]))

anyio.run(main)
"""
ATTACK = """
id -u; id -g; whoami; touch made
cat /.belljar-*/init >/dev/null && echo BREACH
chmod 755 /.belljar-*/init && echo BREACH
head -c1 /proc/1/environ && echo BREACH
touch /.belljar-*/link/x && echo BREACH
unshare -U true && echo BREACH
grep -E '^(CapEff|Seccomp|NoNewPrivs):' /proc/self/status | tr -d '\\t\\n'
"""


def _usable(python: str) -> bool:
    command = [python, "-c", "import belljar.session"]
    environment = {"PYTHONPATH": PYTHONPATH}
    try:
        return (
            subprocess.run(
                command,
                user=CALLER,
                group=CALLER,
                extra_groups=[],
                env=environment,
                cwd="/",
            ).returncode
            == 0
        )
    except OSError:
        return False


@pytest.fixture
def python() -> str:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    found = next(
        (each for each in (sys.executable, "/usr/bin/python3") if _usable(each)), None
    )
    if found is None:
        pytest.skip("no Python here that another user may run")
    return found


@pytest.fixture
def home() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="bj-", dir="/tmp"))
    for directory in (path, path / "workspace", path / "run"):
        directory.mkdir(mode=0o700, exist_ok=True)
        os.chown(directory, CALLER, CALLER)
    yield path
    shutil.rmtree(path)


def run_as_caller(python: str, home: Path, script: str, timeout: int) -> Any:
    """Run a script as the caller and return the JSON that it prints. It gets the workspace and the init's directory."""
    environment = {
        "PYTHONPATH": PYTHONPATH,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(home),
        "BELLJAR_RUN": str(home / "run"),
        "XDG_STATE_HOME": str(home / "run" / "state"),
    }
    process = subprocess.run(
        [python, "-c", script, str(home / "workspace"), sys.prefix],
        user=CALLER, group=CALLER, extra_groups=[SOCKET.stat().st_gid], env=environment, cwd="/",
        capture_output=True, text=True, timeout=timeout, check=False,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


@pytest.mark.docker
def test_the_sandbox_runs_as_the_caller_and_all_walls_stand(
    python: str, home: Path, base_image: str
) -> None:
    (home / "workspace" / "attack").write_text(ATTACK)
    stdout, stderr = run_as_caller(python, home, SCRIPT, timeout=60)
    assert "BREACH" not in stdout
    assert stdout.split() == [
        "1234",
        "1234",
        "sandbox",
        "CapEff:0000000000000000NoNewPrivs:1Seccomp:2",
    ]
    assert stderr.count("denied") >= 2
    assert (home / "workspace" / "made").stat().st_uid == CALLER
    assert list((home / "run").glob("bj-*")) == []
