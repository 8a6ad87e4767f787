"""Pods that wait for their first use: what makes two of one kind, and who gets one."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest
from tests.engines.kubernetes.api_server import FakeServer
from tests.engines.kubernetes.conftest import LIMITS, SETTINGS

from belljar.engines.base import Shares
from belljar.engines.kubernetes import pod, waiting
from belljar.engines.kubernetes.engine import CAN, KubernetesEngine
from belljar.engines.spec import Image, Mount, SandboxSpec, User
from belljar.layout import WORKSPACE
from belljar.sandbox.spec import LinkPlan, build_spec
from belljar.workspace.pinned import Workspace


@pytest.fixture
def another(spec: SandboxSpec, workspace: Path) -> SandboxSpec:
    """As another host would ask for one of the same kind."""
    link = LinkPlan("exec", "registry.example.com/belljar/init:1", token="1" * 64)
    with Workspace.open(workspace) as pinned:
        return build_spec(
            image=Image("registry.example.com/belljar/base:1"), workspace=pinned, limits=LIMITS, link=link,
            lease_seconds=7, user=User(400_000, 400_000), can=CAN,
            place=Mount("tmpfs", WORKSPACE, read_only=False, size=32 << 20),
        )  # fmt: skip


@pytest.fixture
def waits(server: FakeServer, engine: KubernetesEngine, spec: SandboxSpec) -> str:
    server.when_created = server.run
    id = engine.create(spec, "belljar-a")
    engine.start(id)
    engine.offer(id, spec)
    engine.takes = True
    return id


def test_two_of_one_kind_differ_only_in_what_each_has_of_its_own(
    spec: SandboxSpec, another: SandboxSpec
) -> None:
    kind = waiting.kind(spec, SETTINGS)
    assert waiting.kind(another, SETTINGS) == kind
    for other in (
        replace(spec, network="full"),
        replace(spec, limits=replace(spec.limits, cpus=1.0)),
        replace(spec, env={**spec.env, "A": "b"}),
        replace(spec, image=Image("another")),
    ):
        assert waiting.kind(other, SETTINGS) != kind
    assert waiting.kind(spec, replace(SETTINGS, runtime_class="other")) != kind


def test_the_engine_shares(engine: KubernetesEngine) -> None:
    assert isinstance(engine, Shares)


def test_one_that_waits_is_nobody_s_and_then_its_taker_s(
    server: FakeServer, engine: KubernetesEngine, another: SandboxSpec, waits: str
) -> None:
    assert engine.list() == []
    kind = waiting.kind(another, SETTINGS)
    assert engine.count_waiting(kind) == 1
    made = server.count("POST", "/pods")
    taken = engine.take(another)
    assert taken is not None
    assert taken.id == waits
    assert server.count("POST", "/pods") == made
    assert taken.spec.user == User(300_000, 300_000)
    assert taken.spec.secrets["BELLJAR_TOKEN"] == "0" * 64
    assert taken.spec.argv[0].startswith(f"{taken.spec.private}/")
    assert taken.spec.labels == another.labels
    assert [each.id for each in engine.list()] == [waits]
    assert engine.count_waiting(kind) == 0
    assert engine.take(another) is None


def test_of_many_takers_one_gets_it(
    server: FakeServer, another: SandboxSpec, waits: str, tmp_path: Path
) -> None:
    hosts = [
        KubernetesEngine(replace(SETTINGS, warm=True), tmp_path / str(number))
        for number in range(6)
    ]
    found: list[object] = []
    takers = [
        threading.Thread(target=lambda host=host: found.append(host.take(another)))
        for host in hosts
    ]
    for each in takers:
        each.start()
    for each in takers:
        each.join()
    assert len(found) == 6
    assert len([each for each in found if each is not None]) == 1
    for host in hosts:
        host.close()


def test_nothing_is_taken_unless_it_is_wanted(
    engine: KubernetesEngine, another: SandboxSpec, waits: str
) -> None:
    engine.takes = False
    assert engine.take(another) is None


def test_one_that_was_changed_is_not_taken(
    server: FakeServer, engine: KubernetesEngine, another: SandboxSpec, waits: str
) -> None:
    volumes = server.pods[waits]["spec"]["volumes"]
    volumes.append({"name": "node", "hostPath": {"path": "/"}})
    assert engine.take(another) is None
    volumes.pop()
    [container] = server.pods[waits]["spec"]["containers"]
    command = container["command"]
    container["command"] = [*command, "--limit", "nofile=9"]
    assert engine.take(another) is None
    container["command"] = command
    container["image"] = "another"
    assert engine.take(another) is None
    assert server.pods[waits]["metadata"]["labels"][pod.STATE] == waiting.WAITING


def test_what_ended_while_it_waited_is_removed(
    server: FakeServer, engine: KubernetesEngine, another: SandboxSpec, waits: str
) -> None:
    server.change(waits, phase="Succeeded")
    assert engine.take(another) is None
    assert engine.count_waiting(waiting.kind(another, SETTINGS)) == 0
    assert waits not in server.pods
