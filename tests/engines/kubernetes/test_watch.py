"""One watch for all who wait."""

from __future__ import annotations

import threading
import time

from tests.engines.kubernetes.api_server import FakeServer

from belljar.engines.kubernetes.engine import KubernetesEngine
from belljar.engines.spec import SandboxSpec


def test_many_who_wait_cost_one_watch(
    server: FakeServer, engine: KubernetesEngine, spec: SandboxSpec
) -> None:
    names = [f"belljar-{number}" for number in range(20)]
    for name in names:
        engine.create(spec, name)
    found: list[str] = []
    waiting = [
        threading.Thread(target=lambda name=name: found.append(engine.start(name).id))
        for name in names
    ]
    for each in waiting:
        each.start()
    for name in names:
        server.run(server.pods[name])
    for each in waiting:
        each.join(30)
    assert sorted(found) == sorted(names)
    assert server.count("GET", "watch=") <= 2


def test_a_removed_pod_ends_the_waiting(
    server: FakeServer, engine: KubernetesEngine, spec: SandboxSpec
) -> None:
    engine.create(spec, "belljar-1")
    threading.Timer(0.5, lambda: server.delete("belljar-1")).start()
    begun = time.monotonic()
    assert engine._watch.wait("belljar-1", lambda pod: False, begun + 60) is None
    assert time.monotonic() - begun < 30
