"""The host process dies at any step of a sandbox's life: after one reap nothing is left, and nothing was done twice."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from tests.abuse.conftest import PROMPT, number

from belljar.engines.docker.engine import DockerEngine
from belljar.engines.spec import LABEL
from belljar.sandbox.reaper import reap

ROOT = Path(__file__).parents[2]


def host(workspace: Path, *steps: int) -> list[int]:
    command = [
        sys.executable,
        "-m",
        "tests.abuse.dying_host",
        str(workspace),
        *map(str, steps),
    ]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=400
    )
    return [int(line) for line in done.stdout.split()]


def containers(engine: DockerEngine, owners: set[str]) -> list[str]:
    return [
        each.id
        for each in engine.list()
        if each.labels.get(LABEL + "owner", "").partition(":")[0] in owners
    ]


def settled(engine: DockerEngine, owners: set[str]) -> None:
    """Wait until the engine's list stops changing: it may still finish a creation that a dead host had asked for."""
    seen, since, deadline = (
        containers(engine, owners),
        time.monotonic(),
        time.monotonic() + PROMPT,
    )
    while time.monotonic() - since < 1.0 and time.monotonic() < deadline:
        time.sleep(0.1)
        if (now := containers(engine, owners)) != seen:
            seen, since = now, time.monotonic()


@pytest.mark.parametrize(
    "workspace_of", ["caller", pytest.param("another", marks=pytest.mark.root)]
)
def test_a_host_killed_at_random_steps_leaves_nothing(
    base_image: str,
    engine: DockerEngine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    workspace_of: str,
) -> None:
    """`make test` tries 20 random points for each kind of workspace, new ones in each run; 500 at full length."""
    run = Path(f"{os.environ['BELLJAR_RUN']}-dying-{workspace_of}")
    monkeypatch.setenv("BELLJAR_RUN", str(run))
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    if workspace_of == "another":
        os.chown(workspace, 1000, 1000)
    (steps,) = host(workspace)
    seed = random.randrange(1 << 32)
    count = number(20, 500)
    print(f"{count} of {steps} steps, seed {seed}")
    points = random.Random(seed).sample(range(1, steps), min(count, steps - 1))
    owners = {str(pid) for pid in host(workspace, *points)}
    settled(engine, owners)
    reap(engine)
    deadline = time.monotonic() + PROMPT
    while (left := containers(engine, owners)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not left
    assert str(run) not in Path("/proc/mounts").read_text()
    assert [name for name in os.listdir(run) if "bj-" in name] == []
    tokens = Counter((workspace / "tokens").read_text().split())
    print(f"{len(tokens)} commands ran")
    assert set(tokens.values()) == {1}, "no command ran twice"
    shutil.rmtree(run)
