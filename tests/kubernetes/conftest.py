"""Fixtures of the tests on a real cluster. `make kubernetes-test` starts it and sets the variables."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.kubernetes import pki
from tests.kubernetes.build import Build
from tests.kubernetes.layout import Layout

from belljar.engines.kubernetes.manifests import ACCOUNT
from belljar.host import Host
from belljar.limits import Limits

LIMITS = Limits(memory="256m", cpus=0.5, pids=128, tmp="16m", home="16m", shm="8m")
OPTIONS: dict[str, Any] = {"changes": "staged", "limits": LIMITS}


@pytest.fixture(scope="session")
def layout() -> Layout:
    return Layout(
        Path(os.environ["BELLJAR_TEST_CLUSTER"]),
        Path(os.environ["BELLJAR_TEST_PROGRAMS"]),
    )


@pytest.fixture(scope="session")
def do(layout: Layout) -> Callable[[str, str], Any]:
    """Ask the cluster's supervisor: kill, start, cut, heal."""

    def ask(verb: str, what: str) -> Any:
        with socket.socket(socket.AF_UNIX) as asking, asking.makefile("rw") as lines:
            asking.settimeout(120)
            asking.connect(str(layout.control))
            lines.write(json.dumps({"do": verb, "what": what}) + "\n")
            lines.flush()
            answer = json.loads(lines.readline())
        assert "ok" in answer, answer
        return answer["ok"]

    return ask


@pytest.fixture(scope="session")
def kubectl(layout: Layout) -> Callable[..., str]:
    program = str(Build(layout.programs).program("kubectl"))

    def run(*words: str, given: str | None = None) -> str:
        done = subprocess.run(
            [program, f"--kubeconfig={layout.kubeconfig()}", *words],
            input=given,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture
def become(
    layout: Layout, kubectl: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], None]:
    """Work as a Pod of the service account `belljar` of a namespace would."""

    def change(namespace: str) -> None:
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{ACCOUNT}/token"
        asked = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {},
        }
        given = json.loads(
            kubectl("create", "--raw", path, "-f", "-", given=json.dumps(asked))
        )
        token = given["status"]["token"]
        config = pki.kubeconfig(layout, "account", token, namespace)
        monkeypatch.setenv("KUBECONFIG", config)
        monkeypatch.setenv("BELLJAR_KUBERNETES_NAMESPACE", namespace)

    return change


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    made = Host(engine="kubernetes", state=tmp_path / "state")
    yield made
    made.close()


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Have the next sandboxes on this node."""

    def choose(node: str) -> None:
        selector = json.dumps({"kubernetes.io/hostname": node})
        monkeypatch.setenv("BELLJAR_KUBERNETES_NODE_SELECTOR", selector)

    return choose
