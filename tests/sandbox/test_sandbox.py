"""A sandbox that stops answering."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
from tests.session.test_session import box as box

import belljar
from belljar.engines.docker import create_body, engine
from belljar.errors import ProtectionMissing
from belljar.host import Host


async def test_a_paused_container_counts_as_a_lost_sandbox(
    workspace: Path, docker_client: object
) -> None:
    async with belljar.Session(workspace) as box:
        container = docker_client.containers.get(box.sandbox.launched.id)  # type: ignore[attr-defined]
        await anyio.to_thread.run_sync(container.pause)
        with anyio.fail_after(120):
            assert (await box.run("true")).cause == "sandbox_lost"


@pytest.fixture
def bridged(monkeypatch: pytest.MonkeyPatch) -> Host:
    monkeypatch.setenv("BELLJAR_LINK", "bridge")
    return Host(engine="docker")


@pytest.mark.docker
async def test_the_init_testifies_where_this_machine_cannot_look_into_the_sandbox(
    bridged: Host, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with belljar.Session(workspace, host=bridged) as box:
        assert box.sandbox.witnesses["memory"] == "init, engine"
        assert box.sandbox.witnesses["seccomp"] == "engine"
    monkeypatch.delenv("BELLJAR_LINK")
    async with belljar.Session(workspace, host=Host(engine="docker")) as box:
        assert box.sandbox.witnesses["memory"] == "kernel"


@pytest.mark.docker
@pytest.mark.parametrize(
    ("dropped", "named"),
    [({"Memory": 0, "MemorySwap": 0}, "memory limit"), ({"ReadonlyRootfs": False}, "read-only root"),
     ({"NetworkMode": "bridge"}, "no network"), ({"MaskedPaths": []}, "masked"), ({"CapDrop": []}, "capabilities")],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
async def test_an_engine_elsewhere_that_lies_is_found_out_by_the_init(
    bridged: Host,
    workspace: Path,
    monkeypatch: pytest.MonkeyPatch,
    dropped: dict[str, Any],
    named: str,
) -> None:
    """The engine starts the sandbox without a protection, and claims that it is there."""
    honest = create_body.create_body
    asked: list[Any] = []

    def without(spec: Any, dialect: Any) -> dict[str, Any]:
        asked.append(spec)
        body = honest(spec, dialect)
        return {
            **body,
            "NetworkDisabled": False,
            "HostConfig": {**body["HostConfig"], **dropped},
        }

    monkeypatch.setattr(engine, "create_body", without)
    monkeypatch.setattr(engine, "claims", lambda *_: replace(asked[-1].protections))
    with pytest.raises(ProtectionMissing, match=named):
        async with belljar.Session(workspace, host=bridged):
            pass
