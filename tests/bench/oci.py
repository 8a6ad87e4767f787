"""The engine `oci`, compared with `docker run` and the Docker engine in turns."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from belljar import Limits, Pool, Session
from belljar.engines.base import image_store
from belljar.host import Host
from belljar.images import catalog

from .cli import served
from .core import timed
from .table import Row, ms, p50
from .throwaways import (
    Start,
    available,
    checked,
    docker_run,
    from_pool,
    one,
    sequential,
    spread,
    staggered,
)

ROUNDS = 20
COUNT = int(os.environ.get("BELLJAR_BENCH_SANDBOXES", "100"))
BELLJAR = str(Path(sys.executable).with_name("belljar"))


def cold(workspace: Path, host: Host) -> Start:
    async def start() -> None:
        async with Session(workspace, host=host) as box:
            assert (await box.run("echo hi")).stdout == "hi\n"

    return start


async def to_first_result(workspace: Path, host: Host, times: list[float]) -> None:
    begun = time.perf_counter()
    async with Session(workspace, host=host) as box:
        await checked(box)
        times.append(time.perf_counter() - begun)


def belljar_run(workspace: Path, engine: str) -> None:
    environment = {**os.environ, "BELLJAR_ENGINE": engine}
    argv = [BELLJAR, "run", "--workspace", str(workspace), "--", "true"]
    subprocess.run(
        argv, check=True, capture_output=True, stdin=subprocess.DEVNULL, env=environment
    )


async def starts(workspace: Path, oci: Host, docker: Host, image: str) -> list[Row]:
    run = docker_run(image)
    cli, sessions, others, theirs = [], [], [], []
    for _ in range(ROUNDS):
        cli.append(timed(lambda: belljar_run(workspace, "oci")))
        await one(run, theirs)
        await to_first_result(workspace, oci, sessions)
        await to_first_result(workspace, docker, others)
    command, session = p50(cli) / p50(theirs), p50(sessions) / p50(theirs)
    baseline = f"docker run {ms(p50(theirs))}"
    return [
        Row(
            "belljar run -- true",
            ms(p50(cli)),
            baseline,
            f"{command:.2f}",
            "<= 0.35",
            command <= 0.35,
        ),
        Row(
            "cold session to first result",
            ms(p50(sessions)),
            baseline,
            f"{session:.2f}",
            "<= 0.2",
            session <= 0.2,
        ),
        Row(
            "  the Docker engine",
            ms(p50(others)),
            baseline,
            f"{p50(others) / p50(theirs):.2f}",
            "",
        ),
    ]


async def warm(workspace: Path, oci: Host, docker: Host) -> list[Row]:
    ours, theirs = [], []
    async with (
        Session(workspace, host=oci) as box,
        Session(workspace, host=docker) as other,
    ):
        for turn in range(
            200
        ):  # change the order: the second command runs while the first sandbox preforks its next shell
            pair = [(box, ours), (other, theirs)]
            for each, times in pair if turn % 2 else reversed(pair):
                await one(lambda each=each: checked(each), times)
    ratio = p50(ours) / p50(theirs)
    return [
        Row(
            "warm `echo hi`",
            ms(p50(ours)),
            f"Docker engine {ms(p50(theirs))}",
            f"{ratio:.2f}",
            "<= 1.1",
            ratio <= 1.1,
        )
    ]


async def many(workspace: Path, oci: Host, docker: Host, image: str) -> list[Row]:
    fresh = await staggered(cold(workspace, oci), 0, COUNT)
    theirs = await staggered(docker_run(image), 0, COUNT)
    ratio = p50(fresh) / p50(theirs)
    claims = {}
    for host in (oci, docker):
        async with Pool(workspace, size=8, host=host) as pool:
            await pool.ready()
            claims[host] = await sequential(from_pool(pool), 50)
    claim = p50(claims[oci]) / p50(claims[docker])
    return [
        Row(f"burst of {COUNT}, cold", spread(fresh), f"docker run {spread(theirs)}", f"{ratio:.2f}", "<= 0.22, all",
            ratio <= 0.22 and len(fresh) == COUNT),
        Row("sequential, warm pool", spread(claims[oci]), f"Docker engine {spread(claims[docker])}", f"{claim:.2f}",
            "<= 1.1", claim <= 1.1),
    ]  # fmt: skip


async def idle(workspace: Path, hosts: dict[str, Host]) -> list[Row]:
    """Memory of many idle sandboxes, the same number with each engine."""
    rows = []
    for name, host in hosts.items():
        boxes: list[Session] = []
        before = available()
        try:
            while len(boxes) < COUNT:
                boxes.append(
                    await Session(
                        workspace, host=host, limits=Limits(memory="64m")
                    ).open()
                )
            outside = (before - available()) / len(boxes) / 2**20
        finally:
            for box in boxes:
                await box.close()
        rows.append(
            Row(
                f"memory per idle sandbox of {COUNT}, {name}",
                f"{outside:.1f} MiB",
                "",
                "",
                "",
            )
        )
    return rows


async def rows(workspace: Path) -> list[Row]:
    oci, docker = Host(engine="oci"), Host(engine="docker")
    catalog.ensure(image_store(oci.connect()), "base")
    image = catalog.ensure(image_store(docker.connect()), "base")
    return [
        *await starts(workspace, oci, docker, image),
        *served(workspace, image, "oci"),
        *await warm(workspace, oci, docker),
        *await many(workspace, oci, docker, image),
        *await idle(workspace, {"oci": oci, "docker": docker}),
    ]
