"""The engine's timings on this cluster, beside plain Docker's in the same run (part `figures`)."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
from anyio import to_thread
from tests.kubernetes.build import Build
from tests.kubernetes.conftest import LIMITS, OPTIONS

from belljar import Pool, Session
from belljar.engines.kubernetes.engine import KubernetesEngine
from belljar.host import Host

COLD, WARM, MANY, KEPT, MEGABYTES = 5, 200, 100, 20, 128
Figures = Callable[[Host, Path], AsyncIterator[tuple[str, str]]]
SMALL = {**OPTIONS, "limits": replace(LIMITS, memory=64 << 20, cpus=0.25)}
"""Of the many at once: a hundred must fit on two nodes of two processors."""


async def main(work: Figures) -> None:
    with tempfile.TemporaryDirectory(prefix="bjk-figures-", dir="/var/tmp") as place:
        workspace = Path(place, "workspace")
        workspace.mkdir()
        workspace.chmod(0o777)
        hosts = {
            "kubernetes": Host(engine="kubernetes", state=Path(place, "k")),
            "docker": Host(engine="docker", runtime="", state=Path(place, "d")),
        }
        for name, host in hosts.items():
            async for what, figure in work(host, workspace):
                print(f"figures: {name:10} {what:46} {figure:>10}", flush=True)
        if work is _figures:
            await _requests(hosts["kubernetes"], workspace)
        for host in hosts.values():
            await to_thread.run_sync(host.close)


async def _figures(host: Host, workspace: Path) -> AsyncIterator[tuple[str, str]]:
    cold = [await _cold(host, workspace) for _ in range(COLD)]
    yield "cold: to the first result, p50", f"{statistics.median(cold):.2f} s"
    async with Session(workspace, host=host, **OPTIONS) as box:
        warm = [await _timed(lambda: box.run(["true"])) for _ in range(WARM)]
        yield "warm command, p50", f"{statistics.median(warm) * 1000:.2f} ms"
        yield "warm command, p95", f"{sorted(warm)[int(WARM * 0.95)] * 1000:.2f} ms"
        begun = time.perf_counter()
        await box.run(
            ["head", "-c", f"{MEGABYTES}M", "/dev/zero"],
            output_limit=256 << 20,
            timeout=300,
        )
        yield "output", f"{MEGABYTES / (time.perf_counter() - begun):.0f} MB/s"
        execs = [await to_thread.run_sync(_native, box) for _ in range(COLD)]
        p50 = f"{statistics.median(execs) * 1000:.0f} ms"
        yield "kubectl exec / docker exec of true, p50", p50
    claims = await _claims(host, workspace)
    p50 = f"{statistics.median(claims) * 1000:.1f} ms"
    yield "claim from a pool of this process, p50", p50
    memory, descriptors = await _held(host, workspace)
    yield "memory of the host's process per sandbox", f"{memory:.2f} MiB"
    yield "its descriptors per sandbox", f"{descriptors:.1f}"


async def _many(host: Host, workspace: Path) -> AsyncIterator[tuple[str, str]]:
    burst = await _burst(host, workspace)
    yield f"{MANY} sessions at once, until the last is done", f"{burst:.1f} s"


async def _cold(host: Host, workspace: Path) -> float:
    begun = time.perf_counter()
    async with Session(workspace, host=host, **OPTIONS) as box:
        await box.run("echo ok")
        return time.perf_counter() - begun


async def _timed(work: Callable[[], Awaitable[object]]) -> float:
    begun = time.perf_counter()
    await work()
    return time.perf_counter() - begun


async def _once(host: Host, workspace: Path, options: dict[str, Any] = OPTIONS) -> None:
    async with Session(workspace, host=host, **options) as box:
        assert (await box.run("echo ok")).stdout == "ok\n"


def _native(box: Session) -> float:
    id = box.sandbox.launched.id
    engine = box.sandbox.engine
    begun = time.perf_counter()
    if isinstance(engine, KubernetesEngine):
        kubectl = Build(Path(os.environ["BELLJAR_TEST_PROGRAMS"])).program("kubectl")
        command = [kubectl, f"--namespace={engine.api.namespace}", "exec", id]
        subprocess.run([*command, "-c", "sandbox", "--", "true"], check=True)
    else:
        subprocess.run(["docker", "exec", id, "true"], check=True)
    return time.perf_counter() - begun


async def _claims(host: Host, workspace: Path) -> list[float]:
    found = []
    async with Pool(workspace, size=3, host=host, **OPTIONS) as pool:
        for _ in range(COLD):
            await pool.ready()
            begun = time.perf_counter()
            async with pool.session() as box:
                found.append(time.perf_counter() - begun)
                await box.run(["true"])
    return found


async def _held(host: Host, workspace: Path) -> tuple[float, float]:
    """MiB and descriptors of this process for each open session."""
    await _once(host, workspace)
    before = _resident(), len(os.listdir("/proc/self/fd"))
    async with AsyncExitStack() as sessions:
        for _ in range(KEPT):
            box = await sessions.enter_async_context(
                Session(workspace, host=host, **SMALL)
            )
            await box.run("echo ok")
        after = _resident(), len(os.listdir("/proc/self/fd"))
    return (after[0] - before[0]) / KEPT, (after[1] - before[1]) / KEPT


def _resident() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) / 256


async def _burst(host: Host, workspace: Path) -> float:
    begun = time.perf_counter()
    async with anyio.create_task_group() as tasks:
        for _ in range(MANY):
            tasks.start_soon(_once, host, workspace, SMALL)
    return time.perf_counter() - begun


async def _requests(host: Host, workspace: Path) -> None:
    """How often the API server is asked for one sandbox's whole life, and while it is only used."""
    engine = await to_thread.run_sync(host.connect)
    assert isinstance(engine, KubernetesEngine)
    asked: list[str] = []
    transport = engine.api._transport
    handle = transport.handle_request

    def count(request: object) -> object:
        asked.append(f"{request.method} {request.url.path}")  # type: ignore[attr-defined]
        return handle(request)  # type: ignore[arg-type]

    transport.handle_request = count  # type: ignore[assignment,method-assign]
    async with Session(workspace, host=host, **OPTIONS) as box:
        opened = len(asked)
        begun = time.perf_counter()
        while time.perf_counter() - begun < 20:
            await box.run(["true"])
            await anyio.sleep(0.5)
        used = len(asked) - opened
        found = await to_thread.run_sync(engine.api.get, box.sandbox.launched.id)
        size = len(json.dumps(found, default=str))
    print(f"figures: API requests: {opened} to open, {used} in 20 s of use, {len(asked) - opened - used} to close, "
          f"and one exec stream; the Pod's object as JSON: {size} bytes")  # fmt: skip
    print(f"figures: to open and close: {', '.join(sorted(set(asked)))}")


if __name__ == "__main__":
    anyio.run(main, _many if sys.argv[1:] == ["many"] else _figures)
