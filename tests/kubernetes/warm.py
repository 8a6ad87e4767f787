"""Pods that wait in the namespace (part `warm`): taken by several hosts, each once, and made anew."""

# ruff: noqa: ASYNC110  (what is waited for happens in the cluster, which sets no event)

from __future__ import annotations

import statistics
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from anyio import to_thread
from tests.kubernetes.conftest import LIMITS, OPTIONS

from belljar import Session
from belljar.engines.kubernetes import waiting
from belljar.engines.kubernetes.engine import KubernetesEngine
from belljar.host import Host
from belljar.options import SandboxOptions
from belljar.sandbox.keep_waiting import keep_waiting

SIZE = 4


@asynccontextmanager
async def kept(workspace: Path, place: Path) -> AsyncIterator[str]:
    """Sandboxes wait; their kind."""
    host = Host(engine="kubernetes", state=place / "keeper", run=place / "keeper-run")
    options = SandboxOptions(str(workspace), changes="staged", limits=LIMITS)
    told: list[str] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(keep_waiting, options, SIZE, host, told.append)
        while not told:
            await anyio.sleep(0.05)
        kind = told[0].split()[3]
        await full(host, kind)
        yield kind
        tasks.cancel_scope.cancel()
    for name in await to_thread.run_sync(there, host, kind):
        await to_thread.run_sync(host.connect().destroy, name)
    await to_thread.run_sync(host.close)


def there(host: Host, kind: str) -> set[str]:
    engine = host.connect()
    assert isinstance(engine, KubernetesEngine)
    found = waiting.listed(engine.api, {waiting.KIND: kind})
    return {str(each["metadata"]["name"]) for each in found}


async def full(host: Host, kind: str) -> None:
    engine = await to_thread.run_sync(host.connect)
    assert isinstance(engine, KubernetesEngine)
    with anyio.fail_after(120):
        while await to_thread.run_sync(engine.count_waiting, kind) < SIZE:
            await anyio.sleep(0.2)


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Host]]:
    monkeypatch.setenv("BELLJAR_KUBERNETES_WARM", "1")
    made = [
        Host(engine="kubernetes", state=tmp_path / name, run=tmp_path / f"run-{name}")
        for name in ("a", "b")
    ]
    yield made
    for each in made:
        each.close()


async def test_two_hosts_share_what_waits_and_never_the_same_one(
    hosts: list[Host], workspace: Path, tmp_path: Path
) -> None:
    async with kept(workspace, tmp_path) as kind:
        own = await to_thread.run_sync(there, hosts[0], kind)
        seen: list[str] = []
        opened: list[float] = []

        async def use(host: Host) -> None:
            begun = time.perf_counter()
            async with Session(workspace, host=host, **OPTIONS) as box:
                opened.append(time.perf_counter() - begun)
                seen.append(box.sandbox.launched.id)
                said = "cat /tmp/mark 2>/dev/null; touch /tmp/mark; echo ok"
                assert (await box.run(said)).stdout == "ok\n"
                assert box.sandbox.witnesses["network"] == "init, engine"
                mine = await to_thread.run_sync(host.connect().list)
                assert box.sandbox.launched.id in {each.id for each in mine}

        async with anyio.create_task_group() as tasks:
            for host in (*hosts, *hosts):
                tasks.start_soon(use, host)
        assert len(set(seen)) == 4
        assert len(own & set(seen)) >= 3, "what waited was taken"
        await full(hosts[0], kind)
        print(f"warm: opened from what waits, 4 at once: {max(opened) * 1000:.0f} ms")
    for host in hosts:
        assert await to_thread.run_sync(host.connect().list) == []


async def test_a_claim_takes_milliseconds(
    hosts: list[Host], workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims: list[float] = []
    take = KubernetesEngine.take

    def timed(engine: KubernetesEngine, spec: object) -> object:
        begun = time.perf_counter()
        taken = take(engine, spec)  # type: ignore[arg-type]
        claims.append(time.perf_counter() - begun)
        assert taken is not None, "one waited"
        return taken

    opened = []
    async with kept(workspace, tmp_path) as kind:
        monkeypatch.setattr(
            KubernetesEngine,
            "take",
            # The keeper's own launches are not claims.
            lambda engine, spec: timed(engine, spec) if engine.takes else None,
        )
        for _ in range(6):
            await full(hosts[0], kind)
            begun = time.perf_counter()
            async with Session(workspace, host=hosts[1], **OPTIONS) as box:
                opened.append(time.perf_counter() - begun)
                await box.run("true")
    print(
        f"warm: claim p50 {statistics.median(claims) * 1000:.1f} ms, "
        f"session open p50 {statistics.median(opened) * 1000:.0f} ms"
    )
    assert len(claims) == 6
