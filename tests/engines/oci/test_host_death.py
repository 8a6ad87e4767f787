"""No daemon cleans up after a dead host: killed at any step, after one reap nothing is left."""

from __future__ import annotations

import os
import random
import shutil
import time
from collections import Counter
from pathlib import Path

import pytest
from tests.abuse.conftest import PROMPT, number
from tests.abuse.test_host_death import host as dying_hosts
from tests.engines.oci.conftest import needs_runc

from belljar.engines.oci import OciEngine, find
from belljar.engines.oci.runtime import containers
from belljar.images import catalog
from belljar.sandbox.reaper import reap

pytestmark = [needs_runc, pytest.mark.oci]


def remains(engine: OciEngine) -> dict[str, object]:
    found = {
        "sandboxes": engine._boxes.names(),
        "control groups": engine._caller.groups.names(engine._prefix),
        "the runtime's notes": containers(engine._runtime_states),
        "held images": [
            name for name in engine._store.held() if name.startswith(engine._prefix)
        ],
        "directories": [
            name for name in os.listdir(os.environ["BELLJAR_RUN"]) if "bj-" in name
        ],
    }
    return {kind: names for kind, names in found.items() if names}


def test_a_host_killed_at_random_steps_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`make test` tries 20 random points, new ones in each run; 400 at full length."""
    run = Path(f"/run/belljar-dying-oci-{os.getpid()}")
    monkeypatch.setenv("BELLJAR_RUN", str(run))
    monkeypatch.setenv("BELLJAR_ENGINE", "oci")
    monkeypatch.setenv("BELLJAR_STATE", str(tmp_path / "state"))
    engine = find()
    catalog.ensure(engine.images, "base")
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (steps,) = dying_hosts(workspace)
    seed = random.randrange(1 << 32)
    count = number(20, 400)
    print(f"{count} of {steps} steps, seed {seed}")
    dying_hosts(
        workspace, *random.Random(seed).sample(range(1, steps), min(count, steps - 1))
    )

    reap(engine)
    deadline = time.monotonic() + PROMPT
    while (
        left := remains(engine)
    ) and time.monotonic() < deadline:  # a runtime may still finish its work
        time.sleep(0.2)
        reap(engine)

    assert not left
    assert str(run) not in Path("/proc/mounts").read_text()
    tokens = Counter((workspace / "tokens").read_text().split())
    assert set(tokens.values()) == {1}, "no command ran twice"
    shutil.rmtree(run)
