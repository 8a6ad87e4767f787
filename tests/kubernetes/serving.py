"""`belljar serve` in the cluster (part `serve`): the manifests as they are printed, two replicas on PostgreSQL, a
rolling update under a running command.

What a cluster has and this one lacks is given: a volume that both nodes may write (one directory of this machine), and
the API server's address (nothing here forwards the one of the service `kubernetes`).
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.kubernetes.conftest import LIMITS
from tests.kubernetes.layout import CONTROL, REGISTRY, Layout
from tests.surfaces.http.postgres import postgres
from tests.surfaces.http.serving import KEY

from belljar.engines.kubernetes.manifests import PORT, Wanted, as_text, manifests

NAMESPACE = f"belljar-serve-{os.getpid()}"
USER = 65532
SELECTOR = "app.kubernetes.io/component=serve"
LIMITED = {"memory": LIMITS.memory, "cpus": LIMITS.cpus, "pids": LIMITS.pids}
WANTED = {"limits": LIMITED, "changes": "staged"}
LINES = 600


@pytest.fixture(scope="module")
def deployed(layout: Layout, kubectl: Callable[..., str]) -> Iterator[None]:
    state = layout.root / "serve-state"
    state.mkdir(mode=0o700)
    os.chown(state, USER, USER)
    with postgres(CONTROL) as database:
        kubectl("create", "namespace", NAMESPACE)
        kubectl("apply", "-f", "-", given=_given(state, database))
        kubectl("apply", "-f", "-", given=as_text(_wanted()))
        try:
            _rolled_out(kubectl)
            yield
        finally:
            print(kubectl("-n", NAMESPACE, "get", "pods", "-o", "wide"))
            kubectl("delete", "namespace", NAMESPACE, "--grace-period=0", "--wait")
            shutil.rmtree(state, ignore_errors=True)


def _given(state: Path, database: str) -> str:
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": NAMESPACE},
        "spec": {
            "capacity": {"storage": "10Gi"},
            "accessModes": ["ReadWriteMany"],
            "hostPath": {"path": str(state)},
            "claimRef": {"namespace": NAMESPACE, "name": "belljar-state"},
        },
    }
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "belljar-database", "namespace": NAMESPACE},
        "stringData": {"url": database, "key": KEY},
    }
    return as_text([volume, secret])


def _wanted() -> list[dict[str, Any]]:
    objects = manifests(
        Wanted(namespace=NAMESPACE, images=REGISTRY, runtime_class="nonet")
    )
    for each in objects:
        if each["kind"] == "PodDisruptionBudget":
            each["apiVersion"] = "policy/v1beta1"  # the only one before 1.21
        if each["kind"] == "Deployment":
            [container] = each["spec"]["template"]["spec"]["containers"]
            container["env"] += [
                {"name": "KUBERNETES_SERVICE_HOST", "value": CONTROL},
                {"name": "KUBERNETES_SERVICE_PORT", "value": "6443"},
            ]
    return objects


def _rolled_out(kubectl: Callable[..., str]) -> None:
    try:
        kubectl(
            *("-n", NAMESPACE, "rollout", "status", "deployment/belljar-serve"),
            "--timeout=180s",
        )
    except AssertionError:
        for words in (("describe", "pods"), ("logs", f"--selector={SELECTOR}")):
            print(kubectl("-n", NAMESPACE, *words))
        raise


def _replicas(kubectl: Callable[..., str]) -> dict[str, str]:
    """Name and URL of each that is ready."""
    found = json.loads(
        kubectl("-n", NAMESPACE, "get", "pods", "-l", SELECTOR, "-o", "json")
    )
    return {
        each["metadata"]["name"]: f"http://{each['status']['podIP']}:{PORT}"
        for each in found["items"]
        if "deletionTimestamp" not in each["metadata"]
        and any(
            one["type"] == "Ready" and one["status"] == "True"
            for one in each["status"].get("conditions", ())
        )
    }


Clients = Callable[[str], httpx.Client]


@pytest.fixture
def client() -> Iterator[Clients]:
    given = {"Authorization": f"Bearer {KEY}"}
    with ExitStack() as opened:
        yield lambda url: opened.enter_context(
            httpx.Client(base_url=url, headers=given, timeout=90, trust_env=False)
        )


def _session(client: httpx.Client) -> str:
    made = client.post("/v1/sessions", json=WANTED, headers={"Prefer": "wait=90"})
    assert made.status_code == 201, made.text
    assert made.json()["state"] == "ready", made.text
    return str(made.json()["id"])


def _counted(client: httpx.Client, session: str, lines: int) -> str:
    """Start a command that prints so many lines, ten a second; where to ask for it."""
    asked = {"command": f"for i in $(seq {lines}); do echo line $i; sleep 0.1; done"}
    path = f"/v1/sessions/{session}/commands"
    begun = client.post(path, json=asked, headers={"Prefer": "wait=0"})
    assert begun.status_code == 202, begun.text
    return f"{path}/{begun.json()['id']}"


def _whole(client: httpx.Client, command: str, lines: int) -> None:
    """Wait for its end: nothing is lost, nothing is there twice."""
    done = client.get(command, headers={"Prefer": "wait=85"}).json()
    assert done["state"] == "ended", done
    assert done["result"]["cause"] == "exited", done["result"]
    expected = [f"line {number}" for number in range(1, lines + 1)]
    assert done["result"]["stdout"].splitlines() == expected


def test_a_restarted_api_server_loses_no_session_and_no_output(
    deployed: None,
    kubectl: Callable[..., str],
    do: Callable[[str, str], Any],
    client: Clients,
) -> None:
    """All streams are cut at once. The commands run on, and are followed again from where they were."""
    first, second = (client(url) for url in _replicas(kubectl).values())
    session, other = _session(first), _session(second)
    commands = [_counted(first, each, 200) for each in (session, other, session)]
    do("kill", "apiserver")
    time.sleep(1)  # the streams end, and nothing answers
    do("start", "apiserver")
    for command in commands:
        _whole(second, command, 200)
    for each in (session, other):
        assert first.get(f"/v1/sessions/{each}").json()["state"] == "ready"
        assert first.delete(f"/v1/sessions/{each}").status_code < 300


def test_a_rolling_update_loses_no_session_and_no_output(
    deployed: None, kubectl: Callable[..., str], client: Clients
) -> None:
    before = _replicas(kubectl)
    assert len(before) == 2
    first, second = (client(url) for url in before.values())
    session = _session(first)
    command = _counted(second, session, LINES)  # which passes it on to the owner
    started = time.monotonic()
    kubectl("-n", NAMESPACE, "rollout", "restart", "deployment/belljar-serve")
    _rolled_out(kubectl)
    print(f"serve: rolling update of two replicas: {time.monotonic() - started:.0f} s")
    after = _replicas(kubectl)
    assert len(after) == 2
    assert not set(before) & set(after)
    replicas = [client(url) for url in after.values()]
    for each in replicas:
        assert each.get(f"/v1/sessions/{session}").json()["state"] == "ready"
        said = each.post(
            f"/v1/sessions/{session}/commands",
            json={"command": "echo still here"},
            headers={"Prefer": "wait=60"},
        ).json()
        assert said["result"]["stdout"] == "still here\n", said
    _whole(replicas[0], command, LINES)
    assert replicas[1].delete(f"/v1/sessions/{session}").status_code < 300
