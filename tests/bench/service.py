"""The service beside direct use of the same engine: commands, creates, streams. As in the public ComputeSDK benchmark a
create counts until its first command is done."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import httpx
from tests.surfaces.http.serving import KEY, serving

from belljar import Session

from .table import Row, ms, p50, p99, quantile
from .throwaways import Start, cold, one, sequential, spread, staggered

COMMANDS = 200
CREATES = int(os.environ.get("BELLJAR_BENCH_SANDBOXES", "100"))
OUTPUT = 400 << 20
READERS, READ = 50, 4 << 20
MANY, EACH_SECOND, SECONDS = 200, 10, 30
OTHERS = "public figures of others: E2B 491/685/740 ms, Daytona 186 ms (their machines, their network)"


@contextlib.asynccontextmanager
async def client(*options: str, **env: str) -> AsyncIterator[httpx.AsyncClient]:
    with (
        tempfile.TemporaryDirectory(prefix="bj-bench-") as state,
        serving(Path(state), *options, env=env) as server,
    ):
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        headers = {"Authorization": f"Bearer {KEY}", "Prefer": "wait=60"}
        async with httpx.AsyncClient(
            base_url=server.url,
            headers=headers,
            limits=limits,
            timeout=400,
            trust_env=False,
        ) as made:
            first = await made.post(
                "/v1/sessions", json={}, headers={"Prefer": "wait=300"}
            )  # its image may be missing
            await end(made, [first.json()["id"]])
            yield made


async def create(http: httpx.AsyncClient) -> str:
    made = (await http.post("/v1/sessions", json={})).json()
    assert made["state"] == "ready", made
    return str(made["id"])


async def run(http: httpx.AsyncClient, session: str) -> None:
    done = (
        await http.post(f"/v1/sessions/{session}/commands", json={"command": "echo hi"})
    ).json()
    assert done["result"]["stdout"] == "hi\n", done


def interactive(http: httpx.AsyncClient, ended: list[str]) -> Start:
    async def start() -> None:
        session = await create(http)
        await run(http, session)
        ended.append(session)

    return start


async def end(http: httpx.AsyncClient, sessions: list[str]) -> None:
    async with anyio.create_task_group() as tasks:
        for session in sessions:
            tasks.start_soon(http.delete, f"/v1/sessions/{session}")
    sessions.clear()


async def commands(http: httpx.AsyncClient, workspace: Path) -> Row:
    session = await create(http)
    ours: list[float] = []
    direct: list[float] = []
    async with Session(workspace) as box:
        for _ in range(COMMANDS):  # alternately: both meet the same machine
            await one(lambda: run(http, session), ours)
            begun = time.perf_counter()
            assert (await box.run("echo hi")).stdout == "hi\n"
            direct.append(time.perf_counter() - begun)
    await end(http, [session])
    more = p50(ours) - p50(direct)
    return Row(
        "a command over HTTP (baseline: in process)", ms(p50(ours), p99(ours)), ms(p50(direct), p99(direct)),
        f"+{more * 1e3:.2f} ms", "≤ +3 ms", more <= 0.003,
    )  # fmt: skip


async def creates(
    http: httpx.AsyncClient, workspace: Path, what: str, goal: float, count: int
) -> Row:
    """One after the other, each ended before the next."""
    ended: list[str] = []
    times: list[float] = []
    for _ in range(count):
        await one(interactive(http, ended), times)
        await end(http, ended)
        await anyio.sleep(0.3)
    direct = await sequential(cold(workspace), 10)
    ratio = f"{p50(times) / p50(direct):.2f} ×"
    return Row(
        what,
        spread(times),
        spread(direct),
        ratio,
        f"p50 ≤ {goal * 1e3:.0f} ms",
        p50(times) <= goal,
    )


async def bursts(http: httpx.AsyncClient, *, warm: bool) -> list[Row]:
    rows = []
    for what, apart in (("burst", 0.0), ("staggered by 200 ms", 0.2)):
        if warm:
            await filled(http)
        ended: list[str] = []
        times = await staggered(interactive(http, ended), apart, CREATES)
        await end(http, ended)
        goal, met = (
            ("p50 ≤ 400 ms", p50(times) <= 0.4) if warm and not apart else ("–", None)
        )
        rows.append(
            Row(
                f"{CREATES} creates, {'from a pool' if warm else 'cold'}, {what}: p50/p95/p99",
                spread(times),
                OTHERS,
                "–",
                goal,
                met,
            )
        )
    return rows


async def filled(http: httpx.AsyncClient) -> None:
    """Wait until the pool has one for each."""
    with anyio.fail_after(120):
        ready = 0.0
        while ready < CREATES:
            await anyio.sleep(0.5)
            ready = await _number(http, "belljar_pool_ready")


async def output(http: httpx.AsyncClient) -> Row:
    session = await create(http)
    body = {"command": f"head -c {OUTPUT} /dev/zero", "on_full": "wait"}
    begun = time.perf_counter()
    path = f"/v1/sessions/{session}/commands"
    command = (await http.post(path, json=body, headers={"Prefer": "wait=0"})).json()[
        "id"
    ]
    at = 0
    while at < OUTPUT:
        query = f"offset={at}&limit={16 << 20}&wait=5"
        at += len((await http.get(f"{path}/{command}/output?{query}")).content)
    rate = OUTPUT / (time.perf_counter() - begun) / 1e6
    await end(http, [session])
    return Row(
        "output, read as it comes",
        f"{rate:.0f} MB/s",
        "–",
        "–",
        "≥ 200 MB/s",
        rate >= 200,
    )


async def readers(http: httpx.AsyncClient) -> Row:
    session = await create(http)
    path = f"/v1/sessions/{session}/commands"
    command = (
        await http.post(path, json={"command": f"head -c {READ} /dev/zero"})
    ).json()["id"]

    async def read() -> None:
        got = 0
        async with http.stream(
            "GET", f"{path}/{command}", headers={"Accept": "text/event-stream"}
        ) as answer:
            async for piece in answer.aiter_bytes():
                got += len(piece)
        assert got >= READ

    begun = time.perf_counter()
    await read()
    alone = time.perf_counter() - begun
    begun = time.perf_counter()
    async with anyio.create_task_group() as tasks:
        for _ in range(READERS):
            tasks.start_soon(read)
    together = time.perf_counter() - begun
    await end(http, [session])
    return Row(
        f"{READERS} readers of one stream of {READ >> 20} MiB (baseline: {READERS} × one)", ms(together),
        ms(alone * READERS), f"{together / alone / READERS:.2f} ×", "≤ 1.5 ×", together <= 1.5 * alone * READERS,
    )  # fmt: skip


async def many(http: httpx.AsyncClient) -> Row:
    sessions: list[str] = []

    async def add() -> None:
        sessions.append(await create(http))

    for _ in range(MANY // 10):
        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(add)
    times: list[float] = []
    async with anyio.create_task_group() as tasks:
        for number in range(EACH_SECOND * SECONDS):
            tasks.start_soon(
                one, lambda at=number % MANY: run(http, sessions[at]), times
            )
            await anyio.sleep(1 / EACH_SECOND)
    memory = int(await _number(http, "process_resident_memory_bytes")) >> 20
    await end(http, sessions)
    slowest = quantile(times, 0.99) / p50(times)
    return Row(
        f"{MANY} sessions, {EACH_SECOND} commands/s in all: p50/p99", ms(p50(times), p99(times)),
        f"server {memory} MiB", f"{slowest:.1f} ×", "p99 ≤ 5 × p50", slowest <= 5,
    )  # fmt: skip


async def _number(http: httpx.AsyncClient, name: str) -> float:
    """One of `/metrics`."""
    told = (await http.get("/metrics")).text
    line = next(line for line in told.splitlines() if line.startswith(f"{name} "))
    return float(line.split()[1])


async def rows(directory: Path) -> list[Row]:
    workspace = directory / "workspace"
    workspace.mkdir()
    found = []
    async with client("--warm", "2") as http:
        found.append(await commands(http, workspace))
        found.append(
            await creates(
                http, workspace, "create, warm, to the first result", 0.05, 30
            )
        )
        found.append(await many(http))
    async with client(BELLJAR_ENGINE="oci") as http:
        found.append(
            await creates(
                http, workspace, "create, cold on oci, to the first result", 0.2, 20
            )
        )
        found += await bursts(http, warm=False)
        found += [await output(http), await readers(http)]
    async with client("--warm", str(CREATES), BELLJAR_ENGINE="oci") as http:
        found += await bursts(http, warm=True)
    return found
