"""Claims from a SandboxWarmPool on a real cluster (part `pools`), and images pulled beforehand.

The objects are agent-sandbox's as far as Belljar uses them, in a schema of our own; its controller is a stand-in
(stand_in_controller.py). The API server, the account's rights, Pods, garbage collection and links are real.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from anyio import to_thread
from tests.kubernetes import stand_in_controller
from tests.kubernetes.conftest import LIMITS, OPTIONS
from tests.kubernetes.layout import NODES, REGISTRY

from belljar import Session
from belljar.engines.kubernetes import agent_sandbox
from belljar.engines.kubernetes.engine import KubernetesEngine
from belljar.engines.kubernetes.manifests import PRIORITY, Wanted, as_text, manifests
from belljar.host import Host
from belljar.options import SandboxOptions
from belljar.sandbox import launch

NAMESPACE = f"belljar-pools-{os.getpid()}"
POOL = "agents"
KINDS = (
    (stand_in_controller.CORE, "Sandbox", "sandboxes"),
    (stand_in_controller.EXTENSIONS, "SandboxClaim", "sandboxclaims"),
    (stand_in_controller.EXTENSIONS, "SandboxTemplate", "sandboxtemplates"),
    (stand_in_controller.EXTENSIONS, "SandboxWarmPool", "sandboxwarmpools"),
)


def definition(group: str, kind: str, plural: str) -> dict[str, Any]:
    """The least schema that keeps all fields; the real one is far longer."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": anything, "status": anything}}
    version = {
        "name": "v1beta1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }
    names = {"kind": kind, "plural": plural, "singular": kind.lower()}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "names": names, "scope": "Namespaced", "versions": [version]},
    }  # fmt: skip


@pytest.fixture(scope="module")
def applied(kubectl: Callable[..., str]) -> Iterator[str]:
    defined = [definition(*each) for each in KINDS]
    kubectl("apply", "-f", "-", given=as_text(defined))
    kubectl("wait", "--for=condition=Established", "--timeout=60s",
            *(f"crd/{each['metadata']['name']}" for each in defined))  # fmt: skip
    wanted = Wanted(
        namespace=NAMESPACE,
        images=REGISTRY,
        sandboxes=12,
        runtime_class="nonet",
        agent_sandbox=True,
        pulled=("base",),
    )
    kubectl("apply", "-f", "-", given=as_text(manifests(wanted, service=False)))
    yield NAMESPACE
    kubectl("delete", "namespace", NAMESPACE, "--wait=false")


@pytest.fixture
def pool(
    applied: str,
    kubectl: Callable[..., str],
    workspace: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[stand_in_controller.Controller]:
    """Two sandboxes wait."""
    monkeypatch.setenv("BELLJAR_KUBERNETES_NAMESPACE", applied)
    monkeypatch.setenv("BELLJAR_KUBERNETES_PRIORITY_CLASS", PRIORITY)
    maker = Host(engine="kubernetes", state=tmp_path / "maker", run=tmp_path / "made")
    engine = maker.connect()
    assert isinstance(engine, KubernetesEngine)
    options = SandboxOptions(
        str(workspace), changes="staged", limits=LIMITS, lease=agent_sandbox.LEASE
    )
    spec = launch.plan(options, maker)
    objects = agent_sandbox.objects(POOL, 2, applied, spec, engine.settings)
    kubectl("apply", "-f", "-", given=as_text(objects))
    with stand_in_controller.running(applied) as controller:
        yield controller
    maker.close()


def pods(kubectl: Callable[..., str], selector: str = "") -> list[Any]:
    words = ["-l", selector] if selector else []
    told = kubectl("-n", NAMESPACE, "get", "pods", "-o", "json", *words)
    return list(json.loads(told)["items"])


async def test_the_account_claims_sandboxes_and_leaves_none(
    pool: stand_in_controller.Controller,
    become: Callable[[str], None],
    kubectl: Callable[..., str],
    workspace: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    become(NAMESPACE)
    monkeypatch.setenv("BELLJAR_KUBERNETES_WARM_POOL", POOL)
    host = Host(engine="kubernetes", state=tmp_path / "state", run=tmp_path / "run")
    (workspace / "here").write_text("hello\n")
    used = []
    for _ in range(3):
        begun = time.perf_counter()
        async with Session(workspace, host=host, **OPTIONS) as box:
            opened = time.perf_counter() - begun
            assert (await box.run("cat here")).stdout == "hello\n"
            fresh = "cat /tmp/mark 2>/dev/null; touch /tmp/mark; echo fresh"
            assert (await box.run(fresh)).stdout == "fresh\n"
            assert box.sandbox.witnesses["network"] == "init, engine"
            used.append(box.sandbox.launched.id)
            mine = await to_thread.run_sync(host.connect().list)
            assert [each.id for each in mine] == used[-1:]
            [made] = [each for each in pods(kubectl) if each["metadata"]["name"] == used[-1]]  # fmt: skip
            assert made["spec"]["priorityClassName"] == PRIORITY
        print(f"pools: a session from a claim is open after {opened * 1000:.0f} ms")
    assert sorted(pool.given.values()) == sorted(used), "each came by a claim"
    assert len(set(used)) == 3
    left = {each["metadata"]["name"] for each in pods(kubectl)}
    assert not left & set(used)
    told = kubectl("-n", NAMESPACE, "get", "sandboxclaims", "-o", "json")
    assert json.loads(told)["items"] == []
    found = (await to_thread.run_sync(host.connect().describe)).findings
    assert {each.name: each.ok for each in found}["warm pool"]
    assert all(each.ok for each in found)
    await to_thread.run_sync(host.close)


async def test_a_session_of_another_kind_gets_a_pod_of_its_own(
    pool: stand_in_controller.Controller,
    become: Callable[[str], None],
    workspace: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    become(NAMESPACE)
    monkeypatch.setenv("BELLJAR_KUBERNETES_WARM_POOL", POOL)
    host = Host(engine="kubernetes", state=tmp_path / "state", run=tmp_path / "run")
    more = {**OPTIONS, "limits": replace(LIMITS, pids=100)}
    async with Session(workspace, host=host, **more) as box:
        assert box.sandbox.launched.id.startswith("belljar-bj-")
        assert (await box.run("echo own")).stdout == "own\n"
    assert pool.given == {}
    await to_thread.run_sync(host.close)


def test_every_node_pulls_the_images(applied: str, kubectl: Callable[..., str]) -> None:
    kubectl("-n", applied, "rollout", "status", "daemonset/belljar-images", "--timeout=120s")  # fmt: skip
    found = pods(kubectl, "app.kubernetes.io/component=images")
    assert {each["spec"]["nodeName"] for each in found} == set(NODES)
