"""Claims from a SandboxWarmPool, against a fake API server with a stand-in for the controller of agent-sandbox."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.engines.kubernetes.api_server import FakeServer
from tests.engines.kubernetes.conftest import SETTINGS
from tests.kubernetes import stand_in_controller

from belljar.engines.kubernetes import agent_sandbox, pod
from belljar.engines.kubernetes.checks import findings
from belljar.engines.kubernetes.engine import KubernetesEngine
from belljar.engines.spec import Image, SandboxSpec, User
from belljar.errors import EngineError

POOL = "agents"


@pytest.fixture
def pool(
    server: FakeServer, spec: SandboxSpec
) -> Iterator[stand_in_controller.Controller]:
    """Two sandboxes wait."""
    server.when_created = server.run
    apply(server, spec, 2)
    with stand_in_controller.running("team") as controller:
        wait_until(lambda: running(server) == 2)
        yield controller


def apply(server: FakeServer, spec: SandboxSpec, size: int) -> None:
    for each in agent_sandbox.objects(POOL, size, "team", spec, SETTINGS):
        plural = f"{each['kind'].lower()}s"
        server.change_custom("POST", plural, "", each, "")


def running(server: FakeServer) -> int:
    return sum(
        each["status"]["phase"] == "Running" for each in list(server.pods.values())
    )


def wait_until(holds: Any) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def claims(server: FakeServer) -> list[dict[str, Any]]:
    return [each for (kind, _), each in list(server.custom.items()) if kind == "sandboxclaims"]  # fmt: skip


@pytest.fixture
def engine(server: FakeServer, tmp_path: Path) -> Iterator[KubernetesEngine]:
    made = KubernetesEngine(replace(SETTINGS, warm_pool=POOL), tmp_path / "state")
    yield made
    made.close()


def another(spec: SandboxSpec) -> SandboxSpec:
    """As another host asks for one of the kind."""
    return replace(
        spec,
        user=User(400_000, 400_000),
        secrets={"BELLJAR_TOKEN": "1" * 64},
        labels={**spec.labels, "org.belljar.session": "bj-another"},
    )


def test_a_claim_gives_a_pod_that_waited_and_says_nothing_of_its_user(
    server: FakeServer,
    engine: KubernetesEngine,
    spec: SandboxSpec,
    pool: stand_in_controller.Controller,
) -> None:
    taken = engine.take(another(spec))
    assert taken is not None
    assert taken.spec.user == spec.user
    assert taken.spec.secrets["BELLJAR_TOKEN"] == "0" * 64
    [claim] = claims(server)
    assert pool.given == {claim["metadata"]["name"]: taken.id}
    assert claim["spec"]["warmPoolRef"] == {"name": POOL}
    assert "bj-another" not in json.dumps(claim)
    assert engine.inspect(taken.id).claims.extras == frozenset()
    assert [each.id for each in engine.list()] == [taken.id]
    time.sleep(0.2)
    assert server.pods[taken.id]["metadata"]["labels"][pod.INSTANCE], "and stays ours"


def test_its_end_removes_the_claim_and_not_the_pod_before_it(
    server: FakeServer,
    engine: KubernetesEngine,
    spec: SandboxSpec,
    pool: stand_in_controller.Controller,
) -> None:
    taken = engine.take(spec)
    assert taken is not None
    before = len(server.requests)
    engine.destroy(taken.id)
    assert claims(server) == []
    assert taken.id not in server.pods
    deleted = [path for how, path in server.requests[before:] if how == "DELETE"]
    assert "/sandboxclaims/" in deleted[0]


def test_another_process_of_the_instance_also_removes_the_claim(
    server: FakeServer,
    engine: KubernetesEngine,
    spec: SandboxSpec,
    pool: stand_in_controller.Controller,
    tmp_path: Path,
) -> None:
    taken = engine.take(spec)
    assert taken is not None
    other = KubernetesEngine(SETTINGS, tmp_path / "state")
    [listed] = other.list()
    other.destroy(listed.id)
    assert claims(server) == []
    other.close()


def test_without_a_controller_the_pod_still_ends(
    server: FakeServer,
    engine: KubernetesEngine,
    spec: SandboxSpec,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server.when_created = server.run
    apply(server, spec, 1)
    with stand_in_controller.running("team"):
        taken = engine.take(spec)
    assert taken is not None
    monkeypatch.setenv("BELLJAR_PATIENCE", "0.01")
    engine.destroy(taken.id)
    assert taken.id not in server.pods
    assert claims(server) == []


def test_two_hosts_never_get_the_same_one(
    server: FakeServer,
    engine: KubernetesEngine,
    spec: SandboxSpec,
    pool: stand_in_controller.Controller,
    tmp_path: Path,
) -> None:
    hosts = [
        KubernetesEngine(replace(SETTINGS, warm_pool=POOL), tmp_path / str(n))
        for n in range(4)
    ]
    found: list[Any] = []
    takers = [
        threading.Thread(target=lambda host=host: found.append(host.take(spec)))
        for host in hosts
    ]
    for each in takers:
        each.start()
    for each in takers:
        each.join()
    assert len({each.id for each in found}) == 4
    for host in hosts:
        host.close()


def test_a_sandbox_of_another_kind_claims_nothing(
    server: FakeServer,
    engine: KubernetesEngine,
    spec: SandboxSpec,
    pool: stand_in_controller.Controller,
) -> None:
    for other in (
        replace(spec, image=Image("another")),
        replace(spec, env={**spec.env, "A": "b"}),
        replace(spec, argv=(*spec.argv, "--limit", "nofile=7")),
    ):
        assert engine.take(other) is None
    assert server.count("POST", "/sandboxclaims") == 0


def test_a_pod_that_is_not_as_its_template_is_given_back(
    server: FakeServer,
    engine: KubernetesEngine,
    spec: SandboxSpec,
    pool: stand_in_controller.Controller,
) -> None:
    for each in server.pods.values():
        each["spec"]["volumes"].append({"name": "node", "hostPath": {"path": "/"}})
    assert engine.take(spec) is None
    assert claims(server) == []


@pytest.mark.parametrize("wrong", ["owner", "instance"])
def test_a_pod_that_is_somebody_else_s_stops_the_run(
    server: FakeServer,
    engine: KubernetesEngine,
    spec: SandboxSpec,
    pool: stand_in_controller.Controller,
    wrong: str,
) -> None:
    for each in server.pods.values():
        if wrong == "owner":
            each["metadata"]["ownerReferences"][0]["name"] = "another"
        else:
            each["metadata"]["labels"][pod.INSTANCE] = "another"
    with pytest.raises(EngineError, match="no Pod of its own"):
        engine.take(spec)
    assert claims(server) == []


def test_a_pool_that_gives_nothing_is_told_and_the_claim_removed(
    server: FakeServer,
    engine: KubernetesEngine,
    spec: SandboxSpec,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    apply(server, spec, 1)
    monkeypatch.setenv("BELLJAR_PATIENCE", "0.005")
    with pytest.raises(EngineError, match="no controller of agent-sandbox"):
        engine.take(spec)
    assert claims(server) == []


def test_a_watch_that_breaks_is_begun_again(
    server: FakeServer, engine: KubernetesEngine, spec: SandboxSpec
) -> None:
    server.when_created = server.run
    apply(server, spec, 1)
    threading.Timer(0.3, server.drop_watches).start()
    found: list[Any] = []
    taking = threading.Thread(target=lambda: found.append(engine.take(spec)))
    taking.start()
    time.sleep(0.6)
    with stand_in_controller.running("team"):
        taking.join()
    assert found[0] is not None


def test_a_pool_that_is_not_there_is_named(
    server: FakeServer, engine: KubernetesEngine, spec: SandboxSpec
) -> None:
    with pytest.raises(EngineError, match=f"no {POOL} of sandboxwarmpools"):
        engine.take(spec)
    found = {each.name: each for each in findings(engine.api, engine.settings)}
    assert not found["warm pool"].ok
    assert "belljar kubernetes pool" in found["warm pool"].fix
    apply(server, spec, 1)
    found = {each.name: each for each in findings(engine.api, engine.settings)}
    assert found["warm pool"].ok


def test_a_pool_cannot_lead_to_another_kind_of_object(
    server: FakeServer, engine: KubernetesEngine, spec: SandboxSpec
) -> None:
    apply(server, spec, 1)
    pool = server.custom["sandboxwarmpools", POOL]
    pool["spec"]["sandboxTemplateRef"]["name"] = "../sandboxclaims/x"
    with pytest.raises(EngineError, match="cannot be one of sandboxtemplates"):
        engine.take(spec)


def test_the_template_has_our_pod_no_other_network_policy_and_no_instance(
    spec: SandboxSpec,
) -> None:
    template, pool = agent_sandbox.objects(POOL, 3, "team", spec, SETTINGS)
    assert pool["spec"] == {"replicas": 3, "sandboxTemplateRef": {"name": POOL}}
    made = template["spec"]["podTemplate"]
    assert made["spec"] == pod.pod(spec, "", SETTINGS, "")["spec"]
    assert set(made["metadata"]["labels"]) == {pod.SANDBOX, pod.NETWORK}
    assert template["spec"]["networkPolicyManagement"] == "Unmanaged"
    assert template["spec"]["envVarsInjectionPolicy"] == "Disallowed"
