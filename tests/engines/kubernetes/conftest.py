"""The spec of a sandbox for a Pod, and a fake API server on the loopback."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("lightkube", reason="needs the extra [kubernetes]")

from tests.engines.kubernetes.api_server import FakeServer

from belljar.engines.kubernetes.engine import CAN, KubernetesEngine
from belljar.engines.kubernetes.settings import Settings
from belljar.engines.spec import LABEL, Image, Mount, SandboxSpec, User
from belljar.layout import WORKSPACE
from belljar.limits import Limits
from belljar.sandbox.spec import LinkPlan, build_spec
from belljar.workspace.pinned import Workspace

SETTINGS = Settings(
    namespace="team",
    images="registry.example.com/",
    runtime_class="nonet",
    requests=0.5,
)
LIMITS = Limits(
    memory="64m", cpus=0.5, pids=32, tmp="4m", home="4m", shm="4m", nofile=100
)


@pytest.fixture
def spec(workspace: Path) -> Iterator[SandboxSpec]:
    link = LinkPlan("exec", "registry.example.com/belljar/init:1", token="0" * 64)
    with Workspace.open(workspace) as pinned:
        yield build_spec(
            image=Image("registry.example.com/belljar/base:1"), workspace=pinned, limits=LIMITS, link=link,
            lease_seconds=60, labels={LABEL + "session": "bj-0123456789ab", LABEL + "owner": "1:2:a:b"},
            user=User(300_000, 300_000), can=CAN,
            place=Mount("tmpfs", WORKSPACE, read_only=False, size=32 << 20),
        )  # fmt: skip


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeServer]:
    with FakeServer() as running:
        config = tmp_path / "kubeconfig"
        config.write_text(running.kubeconfig())
        monkeypatch.setenv("KUBECONFIG", str(config))
        yield running


@pytest.fixture
def engine(server: FakeServer, tmp_path: Path) -> Iterator[KubernetesEngine]:
    made = KubernetesEngine(SETTINGS, tmp_path / "state")
    yield made
    made.close()
