"""A tool call through each agent framework, beside the framework's own back ends, in turns. Only those are measured
whose environment `make adapters-test` has made.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import docker
from anyio import to_thread
from tests import runtimes
from tests.adapters import environments
from tests.adapters.calls import FRAMEWORKS as MEASURED
from tests.adapters.frameworks import FRAMEWORKS

from belljar.images import catalog

from .table import Row, ms, p50, p95

ROUNDS = 50
STARTS = 5
SAMPLE_GOAL = 0.1


async def rows(directory: Path) -> list[Row]:
    site = await to_thread.run_sync(environments.install_checkout, directory)
    os.environ.update(await to_thread.run_sync(runtimes.with_compose) or {})
    return [
        row
        for name in MEASURED
        for row in await to_thread.run_sync(_measured, name, site)
    ]


def _measured(name: str, site: Path) -> list[Row]:
    try:
        place = environments.environment(FRAMEWORKS[name])
    except environments.NotRun as reason:
        return [Row(name, "not run", str(reason), "", "")]
    image = catalog.reference("base")
    done = environments.run_in(
        place, site, "-m", "tests.adapters.calls", name, image, str(ROUNDS)
    )
    if done.returncode:
        return [Row(name, "failed", done.stderr.strip().splitlines()[-1][:100], "", "")]
    times = json.loads(
        done.stdout.splitlines()[-1]
    )  # a framework may print something first
    ours, found = times.pop("ours"), []
    samples = times.pop("samples", None)
    for other, taken in times.items():
        ratio = p50(ours) / p50(taken)
        found.append(
            Row(
                f"{name}: `echo hi`, p50 / p95",
                ms(p50(ours), p95(ours)),
                f"its {other} {ms(p50(taken), p95(taken))}",
                f"{ratio:.2f}",
                "",
            )
        )
    return found + (_samples(samples) if samples else [])


def _samples(taken: dict[str, float]) -> list[Row]:
    """Beside Inspect's docker provider, or where there is no `docker compose`, beside what it starts: a container."""
    other = taken.pop("docker", None)
    beside = _container() if other is None else other
    what = f"no `docker compose` ({runtimes.FETCH}); a container"
    baseline = f"{what if other is None else 'its docker'} {ms(beside)}"
    rows = []
    for name, ours in taken.items():
        met = None if other is None else ours / beside <= SAMPLE_GOAL
        title = f"inspect: a sample set up and torn down, of 20 at once, {name}"
        ratio, goal = f"{ours / beside:.3f}", f"≤ {SAMPLE_GOAL} ×"
        rows.append(Row(title, ms(ours), baseline, ratio, goal, met))
    return rows


def _container() -> float:
    client = docker.from_env()
    begun = time.perf_counter()
    for _ in range(STARTS):
        client.containers.run(
            catalog.reference("base"), ["sleep", "60"], detach=True
        ).remove(force=True)
    container = (time.perf_counter() - begun) / STARTS
    client.close()
    return container
