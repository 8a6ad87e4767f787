"""A command in a running sandbox, compared with native bash and docker-py's exec_run in turns."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import docker

from belljar import Limits, Session
from belljar.session.result import Output

from .table import Row, ms, p50, p95

ROUNDS = 300
EXEC_ROUNDS = 30
GIGABYTE = 1_000_000_000
FLOOD = f"head -c {GIGABYTE} /dev/zero"


def native(text: str = "echo hi") -> None:
    assert subprocess.run(["bash", "-c", text], capture_output=True).stdout == b"hi\n"


def timed(call: Callable[[], object]) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


async def timed_async(call: Callable[[], Awaitable[object]]) -> float:
    begun = time.perf_counter()
    await call()
    return time.perf_counter() - begun


async def warm_command(box: Session) -> list[Row]:
    container = docker.from_env().containers.get(box.sandbox.launched.id)
    ours, theirs, execs = [], [], []
    for number in range(ROUNDS):
        spell, within = divmod(number, ROUNDS // EXEC_ROUNDS)
        if within == 0:
            execs.append(timed(lambda: container.exec_run(["bash", "-c", "echo hi"])))
        if (
            spell % 2
        ):  # change the order: the engine is still busy with the last exec when the next command begins
            theirs.append(timed(native))
        ours.append(await warm(box))
        if not spell % 2:
            theirs.append(timed(native))
    ratio, tail = p50(ours) / p50(theirs), p95(ours) / p95(theirs)
    return [
        Row("warm `echo hi`, p50 / p95", ms(p50(ours), p95(ours)), f"native {ms(p50(theirs), p95(theirs))}",
            f"{ratio:.2f} / {tail:.2f}", "<= 0.4 / 1.0", ratio <= 0.4 and tail <= 1.0),
        Row("  against exec_run, p50", ms(p50(ours)), f"exec_run {ms(p50(execs))}",
            f"{p50(execs) / p50(ours):.0f} x faster", ">= 60 x", p50(execs) / p50(ours) >= 60),
    ]  # fmt: skip


async def warm(box: Session) -> float:
    begun = time.perf_counter()
    result = await box.run("echo hi")
    taken = time.perf_counter() - begun
    assert result.stdout == "hi\n"
    return taken


KINDS = {"plain": "echo hi", "quoted": "echo 'hi'", "compound": 'x=hi; echo "$x"'}
DIRECTORIES = 600


def git_workspace(place: Path) -> None:
    place.mkdir()
    subprocess.run(["git", "init", "-q", place], check=True)
    for number in range(DIRECTORIES):
        (place / f"part{number}").mkdir()
    if os.geteuid() == 0:
        subprocess.run(["chown", "-R", "1000:1000", place], check=True)


async def real_workspace(place: Path) -> list[Row]:
    """The same in a git workspace of many directories: plain, quoted and compound, each beside the same in bash."""
    git_workspace(place)
    found = []
    async with sessions(place, 1) as (box,):
        for kind, text in KINDS.items():
            ours, theirs = [], []
            for _ in range(ROUNDS):
                theirs.append(timed(partial(native, text)))
                ours.append(await timed_async(partial(box.run, text)))
            ratio = p50(ours) / p50(theirs)
            found.append(
                Row(f"  {kind}, git workspace of {DIRECTORIES} directories", ms(p50(ours)), f"native {ms(p50(theirs))}",
                    f"{ratio:.2f}", "<= 0.45", ratio <= 0.45)
            )  # fmt: skip
    return found


async def streamed(box: Session) -> list[Row]:
    whole, first = [], []
    for _ in range(ROUNDS):
        whole.append(await warm(box))
        first.append(await first_byte(box))
    ratio = p50(first) / p50(whole)
    return [
        Row("first byte of a streamed command, p50", ms(p50(first)), f"warm {ms(p50(whole))}", f"{ratio:.2f}", "<= 1",
            ratio <= 1),
    ]  # fmt: skip


async def first_byte(box: Session) -> float:
    begun = time.perf_counter()
    taken = 0.0
    async with box.stream("echo hi") as run:
        async for event in run:
            if isinstance(event, Output):
                taken = time.perf_counter() - begun
    assert taken
    return taken


async def poll(box: Session) -> list[Row]:
    shell = await box.start("sleep 600")
    times = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        await shell.poll()
        times.append(time.perf_counter() - begun)
    await shell.kill(0)
    return [
        Row(
            "poll of a background command, p50",
            ms(p50(times)),
            "",
            "",
            "<= 0.5 ms",
            p50(times) <= 0.0005,
        )
    ]


CAPTURED = """
import subprocess, sys, time
begun = time.perf_counter()
made = subprocess.run(["bash", "-c", sys.argv[1]], capture_output=True)
print(len(made.stdout) / 1e6 / (time.perf_counter() - begun))
"""


async def throughput(box: Session) -> list[Row]:
    ours, captured, bare = [], [], []
    await box.run(FLOOD)
    before = memory()
    for _ in range(5):
        begun = time.perf_counter()
        assert (await box.run(FLOOD)).bytes_produced == GIGABYTE
        ours.append(GIGABYTE / 1e6 / (time.perf_counter() - begun))
        captured.append(
            float(
                subprocess.run(
                    [sys.executable, "-c", CAPTURED, FLOOD], capture_output=True
                ).stdout
            )
        )
        bare.append(read_and_drop())
    ratio, grown = p50(ours) / p50(captured), (memory() - before) / 1e6
    return [
        Row("1 GB of output to the caller", f"{p50(ours):.0f} MB/s", f"subprocess.run {p50(captured):.0f} MB/s",
            f"{ratio:.2f}", ">= 1.0", ratio >= 1.0),
        Row("  against a loop that reads a pipe and drops it", f"{p50(ours):.0f} MB/s", f"{p50(bare):.0f} MB/s",
            f"{p50(ours) / p50(bare):.2f}", ""),
        Row("  host memory grown by", f"{grown:.1f} MB", "", "", "flat", grown < 20),
    ]  # fmt: skip


def read_and_drop() -> float:
    begun = time.perf_counter()
    with subprocess.Popen(["bash", "-c", FLOOD], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        count = 0
        while part := process.stdout.read(64 << 10):
            count += len(part)
    assert count == GIGABYTE
    return GIGABYTE / 1e6 / (time.perf_counter() - begun)


def memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


async def sixteen_at_once(boxes: list[Session]) -> list[Row]:
    """16 commands at a time in 4 sessions, compared with 16 threads that run native bash."""
    per_round, rounds, ours, theirs = 16, 6, 0.0, 0.0
    for _ in range(rounds):
        begun = time.perf_counter()
        async with anyio.create_task_group() as tasks:
            for number in range(per_round):
                tasks.start_soon(own_output, boxes[number % len(boxes)], number)
        ours += time.perf_counter() - begun
        with ThreadPoolExecutor(per_round) as threads:
            theirs += timed(
                lambda threads=threads: list(
                    threads.map(
                        lambda _: [native() for _ in range(8)], range(per_round)
                    )
                )
            )
    ratio = theirs / ours
    total = per_round * rounds * 8
    return [
        Row("16 at once over 4 sessions", f"{total / ours:.0f} commands/s", f"native {total / theirs:.0f} commands/s",
            f"{ratio:.2f}", ">= 1.3", ratio >= 1.3),
    ]  # fmt: skip


async def own_output(box: Session, number: int) -> None:
    for turn in range(8):
        result = await box.run(f"echo {number}.{turn}")
        assert result.stdout == f"{number}.{turn}\n", "lost or mixed up"


async def init_memory(box: Session) -> list[Row]:
    status = Path(f"/proc/{box.sandbox.launched.pid}/status").read_text()
    used = int(status.split("VmRSS:")[1].split()[0]) / 1024
    return [
        Row(
            "the init's own memory, idle",
            f"{used:.2f} MiB",
            "",
            "",
            "< 1 MiB",
            used < 1,
        )
    ]


@asynccontextmanager
async def sessions(workspace: Path, count: int) -> AsyncIterator[list[Session]]:
    boxes = [
        Session(workspace, limits=Limits(cpus=os.cpu_count() or 1))
        for _ in range(count)
    ]
    try:
        for box in boxes:
            await box.open()
            await box.run("true")
        yield boxes
    finally:
        for box in boxes:
            await box.close()


async def rows(workspace: Path) -> list[Row]:
    async with sessions(workspace, 1) as (box,):
        found = (
            await init_memory(box)
            + await warm_command(box)
            + await streamed(box)
            + await poll(box)
            + await throughput(box)
        )
    found += await real_workspace(workspace / "real")
    async with sessions(workspace, 4) as boxes:
        return found + await sixteen_at_once(boxes)
