"""What Podman reports of itself, and which of its services is chosen."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.fake_engine import FakeEngine, reply

from belljar.doctor.engine_items import unavailable
from belljar.engines import podman
from belljar.engines.docker import first_that_answers
from belljar.engines.docker.engine import DockerEngine
from belljar.engines.docker.hosts import Endpoint, podman_start
from belljar.engines.podman.dialect import PodmanDialect
from belljar.engines.spec import IdMap, SandboxSpec, User
from belljar.errors import EngineRefused, EngineUnavailable

VERSION = {
    "ApiVersion": "1.41",
    "Os": "linux",
    "Arch": "amd64",
    "Components": [{"Name": "Podman Engine"}],
}
# The answer of Podman 5.4 on Debian 13, where it can set all limits.
INFO = {
    "CgroupVersion": "2", "CgroupDriver": "systemd", "MemoryLimit": True, "PidsLimit": True, "SwapLimit": False,
    "CpuCfsQuota": False, "SecurityOptions": ["name=seccomp,profile=default"], "Driver": "overlay",
}  # fmt: skip


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., FakeEngine]]:
    for name in ("DOCKER_HOST", "DOCKER_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("BELLJAR_PATIENCE", "0.05")
    made: list[FakeEngine] = []

    def make(answer: Callable[[bytes], bytes]) -> FakeEngine:
        made.append(FakeEngine(answer))
        return made[-1]

    yield make
    for each in made:
        each.close()


def podman_with(*controllers: str, **more: Any) -> Callable[[bytes], bytes]:
    own: dict[str, Any] = {"host": {"cgroupControllers": list(controllers)}}
    answers = {
        "/version": VERSION,
        "/info": {**INFO, **more},
        "/v4.0.0/libpod/info": own,
    }
    return lambda request: reply(200, answers[request.split(b" ", 2)[1].decode()])


def test_podman_can_set_the_limits_whose_controllers_it_has(
    service: Callable[..., FakeEngine],
) -> None:
    def limits(*controllers: str) -> dict[str, bool | None]:
        fake = service(podman_with(*controllers))
        return dict(
            DockerEngine(Endpoint(f"unix://{fake.path}"), PodmanDialect())
            .describe()
            .can_limit
        )

    assert limits("cpu", "memory", "pids") == {
        "memory": True,
        "swap": True,
        "pids": True,
        "cpus": True,
    }
    assert limits("memory", "pids") == {
        "memory": True,
        "swap": True,
        "pids": True,
        "cpus": False,
    }


def test_limits_that_rootless_podman_claims_on_cgroup_v1_are_not_believed(
    service: Callable[..., FakeEngine],
) -> None:
    """The test uses an answer of Podman 4.3."""
    promised = {
        "CgroupVersion": "1",
        "CpuCfsQuota": True,
        "SecurityOptions": ["name=rootless"],
    }
    fake = service(podman_with(**promised))
    found = (
        DockerEngine(Endpoint(f"unix://{fake.path}"), PodmanDialect())
        .describe()
        .can_limit
    )
    assert not any(found.values())


def test_the_error_names_the_user_s_own_service_before_root_s(
    service: Callable[..., FakeEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    own, other = service(lambda request: b""), service(lambda request: b"")
    refuse(monkeypatch, other.path)
    with pytest.raises(EngineUnavailable, match=own.path) as failed:
        first_that_answers(
            (f"unix://{own.path}", f"unix://{other.path}"), PodmanDialect()
        )
    assert not isinstance(failed.value, EngineRefused)


def test_a_user_refused_by_root_s_service_is_told_to_start_his_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, service: Callable[..., FakeEngine]
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    refuse(monkeypatch, "/run/podman/podman.sock")
    with pytest.raises(EngineRefused) as failed:
        podman.find()
    assert "usermod" not in str(failed.value)
    assert podman_start() in unavailable(failed.value)[0].fix


def refuse(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    """Refuse connections to this socket. File modes would not do: root may use every socket."""
    from belljar.engines.docker.client import Client

    connect = Client._connect

    def connected(self: Client, deadline: float) -> Any:
        if self.endpoint.path == path:
            raise PermissionError(13, "Permission denied")
        return connect(self, deadline)

    monkeypatch.setattr(Client, "_connect", connected)


@pytest.mark.parametrize("keeps_ids", [True, False])
def test_containers_that_keep_the_caller_s_id_are_created_one_at_a_time(
    service: Callable[..., FakeEngine],
    spec: SandboxSpec,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    keeps_ids: bool,
) -> None:
    """Podman's id lookup is not thread-safe: two calls at once got each other's ids, or none."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    both, met = threading.Barrier(2), []

    def answer(request: bytes) -> bytes:
        if b"/containers/create" not in request:
            return podman_with()(request)
        try:
            both.wait(0.5 if keeps_ids else 60)
            met.append(request)
        except threading.BrokenBarrierError:
            both.reset()
        return reply(201, {"Id": "a" * 64})

    if keeps_ids:
        spec = dataclasses.replace(
            spec, user=User(1001, 1001, (IdMap(1001, 1001),), (IdMap(1001, 1001),))
        )
    monkeypatch.setenv("BELLJAR_PATIENCE", "1")
    path = service(answer).path
    engines = [
        DockerEngine(Endpoint(f"unix://{path}"), PodmanDialect()) for _ in range(2)
    ]
    for each in engines:
        monkeypatch.setattr(each._image_links, "refuse", lambda spec: None)
    with ThreadPoolExecutor() as threads:
        ids = list(threads.map(lambda engine: engine.create(spec, "sandbox"), engines))
    assert ids == ["a" * 64] * 2
    assert len(met) == (0 if keeps_ids else 2)
