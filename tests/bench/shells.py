"""The persistent shell and background shells."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import anyio

from belljar import Session, ToolRegistry

from .core import DIRECTORIES, git_workspace, memory, native, sessions, timed
from .table import Row, ms, p50

ROUNDS = 200


async def persistent(box: Session, where: str, goal: float) -> Row:
    ours, theirs = [], []
    await box.persistent.run("true")
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        result = await box.persistent.run("echo hi")
        ours.append(time.perf_counter() - begun)
        assert result.stdout == "hi\n"
        theirs.append(timed(native))
    ratio = p50(ours) / p50(theirs)
    return Row(
        f"persistent shell{where}, p50",
        ms(p50(ours)),
        f"native {ms(p50(theirs))}",
        f"{ratio:.2f}",
        f"<= {goal}",
        ratio <= goal,
    )


async def background(box: Session) -> list[Row]:
    tools = ToolRegistry(box)
    starts, idle, news = [], [], []
    for _ in range(30):
        begun = time.perf_counter()
        shell = await box.start("sleep 600")
        starts.append(time.perf_counter() - begun)
        begun = time.perf_counter()
        await tools.call("BashOutput", {"bash_id": shell.id})
        idle.append(time.perf_counter() - begun)
        await shell.kill(0)
    for _ in range(10):
        shell = await box.start("head -c 1000000 /dev/zero | tr '\\0' x")
        await shell.wait()
        begun = time.perf_counter()
        result = await tools.call("BashOutput", {"bash_id": shell.id})
        news.append(time.perf_counter() - begun)
        assert result.success
    await box.cleanup()
    return [
        Row(
            "start of a background shell, p50",
            ms(p50(starts)),
            "",
            "",
            "<= 5 ms",
            p50(starts) <= 0.005,
        ),
        Row(
            "BashOutput, nothing new, p50",
            ms(p50(idle)),
            "",
            "",
            "<= 1 ms",
            p50(idle) <= 0.001,
        ),
        Row(
            "BashOutput, 1 MB new, p50",
            ms(p50(news)),
            "",
            "",
            "<= 20 ms",
            p50(news) <= 0.020,
        ),
    ]


async def two_hundred(box: Session) -> list[Row]:
    before, kept = memory(), 0
    shells = [
        await box.start("head -c 500000 /dev/zero | tr '\\0' x", ring=1 << 20)
        for _ in range(200)
    ]
    for shell in shells:
        with anyio.fail_after(120):
            await shell.wait()
        kept += len((await shell.read()).stdout_bytes)
    await box.cleanup()
    grown = (memory() - before) / 1e6
    return [
        Row(
            "200 ended shells, 500 kB each: kept",
            f"{kept / 1e6:.0f} MB",
            "",
            "",
            "<= 16 MiB",
            0 < kept <= 16 << 20,
        ),
        Row(
            "  host memory grown by", f"{grown:.1f} MB", "", "", "bounded", grown < 200
        ),
    ]


async def rows(workspace: Path) -> list[Row]:
    git = workspace / "git"
    git_workspace(git)
    async with sessions(git, 1) as (box,):
        real = await persistent(
            box, f", git workspace of {DIRECTORIES} directories", 0.42
        )
    shutil.rmtree(git)
    async with sessions(workspace, 1) as (box,):
        empty = await persistent(box, "", 0.35)
        return [empty, real, *await background(box), *await two_hundred(box)]
