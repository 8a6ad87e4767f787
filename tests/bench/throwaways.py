"""Time to interactive as in the public ComputeSDK benchmark (create → first command done), and growth."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
from anyio import to_thread

from belljar import Limits, Pool, Session, engines
from belljar.engines.base import image_store
from belljar.images import catalog

from .table import Row, ms, p50, p95, p99

COUNT = int(os.environ.get("BELLJAR_BENCH_SANDBOXES", "100"))
STAGGER = 0.2
BURSTS = 5

Start = Callable[[], Awaitable[None]]


async def one(start: Start, times: list[float]) -> None:
    begun = time.perf_counter()
    await start()
    times.append(time.perf_counter() - begun)


async def sequential(start: Start, count: int = COUNT) -> list[float]:
    times: list[float] = []
    for _ in range(count):
        await one(start, times)
    return times


async def staggered(start: Start, apart: float, count: int = COUNT) -> list[float]:
    times: list[float] = []
    async with anyio.create_task_group() as tasks:
        for _ in range(count):
            tasks.start_soon(one, start, times)
            await anyio.sleep(apart)
    return times


def docker_run(image: str) -> Start:
    argv = [
        "docker",
        "run",
        "--rm",
        "--network",
        "none",
        image,
        "bash",
        "-c",
        "echo hi",
    ]

    async def start() -> None:
        done = await to_thread.run_sync(
            lambda: subprocess.run(argv, capture_output=True, check=True)
        )
        assert done.stdout == b"hi\n"

    return start


def from_pool(pool: Pool) -> Start:
    async def start() -> None:
        async with pool.session() as box:
            assert (await box.run("echo hi")).stdout == "hi\n"

    return start


def cold(workspace: Path) -> Start:
    async def start() -> None:
        async with Session(workspace) as box:
            assert (await box.run("echo hi")).stdout == "hi\n"

    return start


def spread(times: list[float]) -> str:
    return ms(p50(times), p95(times), p99(times))


async def tti(workspace: Path, image: str) -> list[Row]:
    docker = docker_run(image)
    async with Pool(workspace, size=8) as pool:
        await pool.ready()
        ours, theirs = [], []
        for _ in range(COUNT):
            await one(from_pool(pool), ours)
            await one(docker, theirs)
        apart = await staggered(from_pool(pool), STAGGER)
    faster = p50(theirs) / p50(ours)
    return [
        Row("sequential, warm pool, p50 / p95 / p99", spread(ours), f"docker run {spread(theirs)}",
            f"{faster:.0f} x faster", "<= 15 / 40 ms, >= 20 x",
            p50(ours) <= 0.015 and p95(ours) <= 0.040 and faster >= 20),
        Row(f"staggered by {STAGGER} s, warm pool", spread(apart), "", "", "p50 <= 20, p95 <= 60 ms",
            p50(apart) <= 0.020 and p95(apart) <= 0.060),
    ]  # fmt: skip


async def burst(workspace: Path) -> list[float]:
    async with Pool(
        workspace, size=COUNT, limits=Limits(memory="64m", tmp="16m", home="16m")
    ) as pool:
        await pool.ready()
        return await staggered(from_pool(pool), 0)


async def bursts(workspace: Path, image: str) -> list[Row]:
    warm = max([await burst(workspace) for _ in range(BURSTS)], key=p95)
    fresh = await staggered(cold(workspace), 0)
    theirs = await staggered(docker_run(image), 0)
    ratio = p50(fresh) / p50(theirs)
    return [
        Row(f"burst of {COUNT}, pool of {COUNT}, worst of {BURSTS}", spread(warm), "", f"{len(warm)} of {COUNT} worked",
            "p95 <= 350 ms, all", p95(warm) <= 0.350 and len(warm) == COUNT),
        Row(f"burst of {COUNT}, cold", spread(fresh), f"docker run {spread(theirs)}", f"{ratio:.2f}", "<= 1.0, all",
            ratio <= 1.0 and len(fresh) == COUNT),
    ]  # fmt: skip


async def growth(workspace: Path) -> list[Row]:
    """Warm command time and memory with 1, 10, 50 and 100 live sandboxes."""
    boxes: list[Session] = []
    medians: dict[int, float] = {}
    before = available()
    try:
        for count in (1, 10, 50, 100):
            while len(boxes) < count:
                boxes.append(await Session(workspace).open())
            await boxes[0].run("true")
            times = await sequential(lambda: checked(boxes[0]), 100)
            medians[count] = p50(times)
        outside = (before - available()) / len(boxes) / 2**20
        inside = sum(box.usage()["memory"] for box in boxes) / len(boxes) / 2**20
    finally:
        for box in boxes:
            await box.close()
    ratio = medians[100] / medians[1]
    figures = ", ".join(
        f"{count}: {median * 1e3:.2f}" for count, median in medians.items()
    )
    return [
        Row(
            "warm command with N live sandboxes",
            f"{figures} ms",
            "",
            f"{ratio:.2f}",
            "<= 1.3",
            ratio <= 1.3,
        ),
        Row(
            "memory per idle sandbox, inside / on the host",
            f"{inside:.1f} / {outside:.1f} MiB",
            "",
            "",
            "",
        ),
    ]


async def checked(box: Session) -> None:
    assert (await box.run("echo hi")).stdout == "hi\n"


def available() -> int:
    table = Path("/proc/meminfo").read_text()
    return int(table.split("MemAvailable:")[1].split()[0]) << 10


async def cold_start(workspace: Path) -> list[Row]:
    times = await sequential(cold(workspace), 10)
    return [
        Row("cold session: create, first command, destroy", ms(p50(times)), "", "", "")
    ]


async def rows(workspace: Path) -> list[Row]:
    image = catalog.ensure(image_store(engines.connect()), "base")
    return [
        *await cold_start(workspace),
        *await tti(workspace, image),
        *await bursts(workspace, image),
        *await growth(workspace),
    ]
