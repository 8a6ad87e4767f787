"""The engine's verbs against a fake API server; the real cluster is `make kubernetes-test`."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from tests.engines.kubernetes.api_server import FakeServer
from tests.engines.kubernetes.conftest import SETTINGS

from belljar.engines.kubernetes import find, pod
from belljar.engines.kubernetes.engine import KubernetesEngine
from belljar.engines.spec import SandboxSpec
from belljar.errors import (
    EngineError,
    EngineRefused,
    EngineUnavailable,
    ImageMissing,
    QuotaExceeded,
    UsageError,
)

NAME = "belljar-bj-0123456789ab"


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    state = {"waiting": {"reason": reason, "message": message}}
    return {
        "name": "sandbox",
        "image": "i",
        "imageID": "",
        "ready": False,
        "restartCount": 0,
        "state": state,
    }


def test_a_pod_that_runs_is_launched_and_its_claims_are_read_back(
    server: FakeServer, engine: KubernetesEngine, spec: SandboxSpec
) -> None:
    server.when_created = server.run
    id = engine.create(spec, NAME)
    assert engine.create(spec, NAME) == id == NAME, (
        "a create whose answer was lost may be repeated"
    )
    launched = engine.start(id)
    assert launched.claims.memory == spec.memory
    assert launched.claims.extras == frozenset()
    assert engine.inspect(id) == launched == engine.start(id)
    assert engine.state(id) == "running"
    [listed] = engine.list()
    assert (listed.id, listed.labels) == (NAME, spec.all_labels)


def test_waiting_for_a_pod_asks_the_server_once(
    server: FakeServer, engine: KubernetesEngine, spec: SandboxSpec
) -> None:
    id = engine.create(spec, NAME)
    threading.Timer(0.5, lambda: server.run(server.pods[NAME])).start()
    before = len(server.requests)
    engine.start(id)
    asked = [path for method, path in server.requests[before:] if "/leases" not in path]
    assert len(asked) <= 3, asked  # a look, a list, a watch


def test_a_watch_that_ends_is_begun_again(
    server: FakeServer, engine: KubernetesEngine, spec: SandboxSpec
) -> None:
    id = engine.create(spec, NAME)
    threading.Timer(0.3, server.drop_watches).start()
    threading.Timer(0.8, lambda: server.run(server.pods[NAME])).start()
    assert engine.start(id).id == id


@pytest.mark.parametrize(
    ("status", "error", "told"),
    [
        ({"containerStatuses": [waiting("ImagePullBackOff", "no such tag")]}, ImageMissing, "no such tag"),
        ({"initContainerStatuses": [waiting("ErrImageNeverPull")]}, ImageMissing, "cannot get the image"),
        ({"containerStatuses": [waiting("CreateContainerError", "no profile")]}, EngineError, "no profile"),
        ({"phase": "Failed", "reason": "Evicted", "message": "low on memory"}, EngineError, "Evicted .low on memory"),
    ],
)  # fmt: skip
def test_a_pod_that_cannot_start_says_why_at_once_and_is_removed(
    server: FakeServer,
    engine: KubernetesEngine,
    spec: SandboxSpec,
    status: Any,
    error: type[Exception],
    told: str,
) -> None:
    server.when_created = lambda made: server.change(NAME, **status)
    with pytest.raises(error, match=told):
        engine.start(engine.create(spec, NAME))
    assert server.pods == {}


def test_a_pod_that_no_node_takes_is_an_error_in_the_cluster_s_words(
    server: FakeServer,
    engine: KubernetesEngine,
    spec: SandboxSpec,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("BELLJAR_PATIENCE", "0.01")
    full = {
        "type": "PodScheduled",
        "status": "False",
        "message": "0/3 nodes are available: 3 Insufficient memory.",
    }
    server.when_created = lambda made: server.change(NAME, conditions=[full])
    with pytest.raises(EngineError, match="Insufficient memory"):
        engine.start(engine.create(spec, NAME))
    assert server.pods == {}


def test_an_exhausted_quota_is_told_and_not_tried_again(
    server: FakeServer, engine: KubernetesEngine, spec: SandboxSpec
) -> None:
    server.failures.append(
        ("POST", "/pods", 403, 'pods "x" is forbidden: exceeded quota: sandboxes')
    )
    with pytest.raises(QuotaExceeded, match=r"exceeded quota.*larger quota"):
        engine.create(spec, NAME)
    assert server.count("POST", "/pods") == 1


def test_a_missing_right_is_a_refusal(
    server: FakeServer, engine: KubernetesEngine, spec: SandboxSpec
) -> None:
    server.failures.append(
        ("POST", "/pods", 403, "pods is forbidden: User cannot create resource")
    )
    with pytest.raises(EngineRefused, match="belljar doctor"):
        engine.create(spec, NAME)


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_busy_server_is_asked_again(
    server: FakeServer, engine: KubernetesEngine, spec: SandboxSpec, status: int
) -> None:
    server.failures += [("POST", "/pods", status, "busy")] * 2
    assert engine.create(spec, NAME) == NAME
    assert server.count("POST", "/pods") == 3


def test_a_server_that_stays_away_is_unavailable_in_bounded_time(
    server: FakeServer, engine: KubernetesEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BELLJAR_PATIENCE", "0.05")
    server.__exit__()
    with pytest.raises(EngineUnavailable, match="did not answer"):
        engine.list()


def test_an_ended_pod_is_removed_by_whoever_looks(
    server: FakeServer, engine: KubernetesEngine, spec: SandboxSpec
) -> None:
    server.when_created = server.run
    engine.start(engine.create(spec, NAME))
    server.change(NAME, phase="Succeeded")
    assert engine.state(NAME) is None
    assert server.pods == {}
    assert engine.state(NAME) is None


def test_a_destroyed_pod_may_be_destroyed_again(
    server: FakeServer, engine: KubernetesEngine, spec: SandboxSpec
) -> None:
    engine.create(spec, NAME)
    engine.destroy(NAME)
    engine.destroy(NAME)
    assert engine.list() == []


def test_a_verb_on_an_unknown_pod_is_a_clear_error(engine: KubernetesEngine) -> None:
    for verb in (engine.start, engine.inspect):
        with pytest.raises(EngineError, match="no s"):
            verb("belljar-never-was")


def test_an_instance_lists_its_own_pods_only(
    server: FakeServer, engine: KubernetesEngine, spec: SandboxSpec, tmp_path: Path
) -> None:
    other = KubernetesEngine(SETTINGS, tmp_path / "other")
    again = KubernetesEngine(SETTINGS, tmp_path / "state")
    engine.create(spec, NAME)
    assert [each.id for each in again.list()] == [NAME], (
        "the same state directory is the same instance"
    )
    assert other.list() == []
    assert engine.identity == again.identity != other.identity
    other.close()
    again.close()


def test_an_instance_with_pods_says_that_it_lives(
    server: FakeServer, engine: KubernetesEngine, spec: SandboxSpec
) -> None:
    engine.create(spec, NAME)
    engine.instance.renew()
    engine.instance.renew()
    assert server.leases[engine.instance.lease]["spec"]["leaseDurationSeconds"] == 60


def test_every_sandbox_has_a_user_of_its_own(engine: KubernetesEngine) -> None:
    users = {engine.user(1000, 1000).uid for _ in range(100)}
    assert len(users) == 100
    assert min(users) >= 200_000
    with pytest.raises(UsageError, match="--root"):
        engine.user(1000, 1000, root=True)


def test_our_own_images_come_from_the_settings_registry(
    engine: KubernetesEngine,
) -> None:
    ours, theirs = engine.image("belljar/base:1"), engine.image("python:3")
    assert ours is not None
    assert theirs is not None
    assert (ours.ref, theirs.ref) == ("registry.example.com/belljar/base:1", "python:3")
    assert engine.install_init(Path("/x"), "y").startswith(
        "registry.example.com/belljar/init:"
    )


def test_without_a_cluster_the_engine_says_what_to_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(EngineUnavailable, match="KUBECONFIG"):
        find(state=tmp_path)


def test_a_context_that_is_not_there_is_named(
    server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BELLJAR_KUBERNETES_CONTEXT", "elsewhere")
    with pytest.raises(EngineUnavailable, match="elsewhere"):
        find(state=tmp_path)


def test_the_masks_it_promises_are_those_of_every_kubelet() -> None:
    assert "/proc/kcore" in pod.MASKED
    assert (
        set(__import__("belljar.sandbox.spec", fromlist=["x"]).MASKED_PATHS)
        >= pod.MASKED
    )
