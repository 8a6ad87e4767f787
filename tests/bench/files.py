"""Copying files in and out of a sandbox, and forwarding one of its ports."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

from belljar import Limits, Session, engines
from belljar.engines.base import image_store
from belljar.images import catalog

from .core import timed, timed_async
from .table import Row, ms, p50

BIG = 256 << 20
SMALL_ROUNDS = 100
BIG_ROUNDS = 3
MANY, MANY_ROUNDS = 10_000, 5
CONNECTIONS = 1000
SERVER = """python3 -c '
import asyncio
async def serve(reader, writer):
    wanted = int(await reader.readline())
    while wanted > 0:
        writer.write(bytes(min(wanted, 1 << 20))); wanted -= 1 << 20
        await writer.drain()
    writer.close()
async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 8000, backlog=1024)
    print("up", flush=True)
    await server.serve_forever()
asyncio.run(main())'"""


async def rows(directory: Path) -> list[Row]:
    async with Session(directory, limits=Limits(memory="1g", fsize="1g")) as box:
        return [
            *await _small(box),
            *await _many(box, directory),
            *await _big(box, directory),
            *await _forwarded(box),
        ]


async def _small(box: Session) -> list[Row]:
    written = [
        await timed_async(lambda: box.files.write("small", b"x" * 1000))
        for _ in range(SMALL_ROUNDS)
    ]
    read = [
        await timed_async(lambda: box.files.read("small")) for _ in range(SMALL_ROUNDS)
    ]
    return [
        Row(
            "write a small file",
            ms(p50(written)),
            "",
            "",
            "<= 3 ms",
            p50(written) <= 0.003,
        ),
        Row("read a small file", ms(p50(read)), "", "", "<= 3 ms", p50(read) <= 0.003),
    ]


async def _many(box: Session, directory: Path) -> list[Row]:
    """Beside `docker cp` into a container that was created and never started."""
    source = directory.parent / f"{directory.name}.many"
    for folder in range(MANY // 100):
        (source / f"d{folder}").mkdir(parents=True)
        for number in range(100):
            (source / f"d{folder}" / f"f{number}").write_text(f"{number}\n" * 50)
    image = catalog.ensure(image_store(engines.connect("docker")), "base")
    container = _docker("create", image, "true")
    ours, theirs = [], []
    try:
        for turn in range(MANY_ROUNDS):
            ours.append(
                await timed_async(
                    lambda at=turn: box.files.upload(source, f"/tmp/{at}")
                )
            )
            theirs.append(
                timed(lambda at=turn: _docker("cp", str(source), f"{container}:/{at}"))
            )
        found = await box.run("find /tmp/0 -type f | wc -l")
        assert int(found.stdout) == MANY
    finally:
        _docker("rm", container)
        shutil.rmtree(source)
    ratio = p50(ours) / p50(theirs)
    return [
        Row(
            f"{MANY:,} small files up",
            ms(p50(ours)),
            f"docker cp {ms(p50(theirs))}",
            f"{ratio:.2f}",
            "<= 1.0",
            ratio <= 1.0,
        )
    ]


def _docker(*words: str) -> str:
    done = subprocess.run(
        ["docker", *words], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


async def _big(box: Session, directory: Path) -> list[Row]:
    source, back = (
        directory.parent / f"{directory.name}.big",
        directory.parent / f"{directory.name}.back",
    )
    source.write_bytes(os.urandom(1 << 20) * (BIG >> 20))
    try:
        up = [
            await timed_async(lambda: box.files.upload(source, "big"))
            for _ in range(BIG_ROUNDS)
        ]
        down = [
            await timed_async(lambda: box.files.download("big", back))
            for _ in range(BIG_ROUNDS)
        ]
    finally:
        source.unlink()
        back.unlink(missing_ok=True)
    return [
        _speed("upload a big file", up, BIG, 500),
        _speed("download a big file", down, BIG, 500),
    ]


async def _forwarded(box: Session) -> list[Row]:
    shell = await box.start(SERVER)
    await shell.read(wait=60)
    port = urlsplit(await box.forward(8000)).port or 0
    flood = [await timed_async(lambda: _fetch(port, BIG)) for _ in range(BIG_ROUNDS)]
    single = [await timed_async(lambda: _fetch(port, 1)) for _ in range(SMALL_ROUNDS)]
    many = await timed_async(
        lambda: asyncio.gather(*(_fetch(port, 1) for _ in range(CONNECTIONS)))
    )
    await shell.kill()
    return [
        _speed("forwarded port", flood, BIG, 200),
        Row(
            "  one connection", ms(p50(single)), "", "", "<= 5 ms", p50(single) <= 0.005
        ),
        Row(
            f"  {CONNECTIONS} connections at once",
            f"{many:.2f} s",
            "",
            "",
            "all served",
            True,
        ),
    ]


async def _fetch(port: int, size: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(b"%d\n" % size)
        left = size
        while data := await reader.read(1 << 20):
            left -= len(data)
        assert left <= 0, f"{left} bytes are missing"
    finally:
        writer.close()


def _speed(what: str, seconds: list[float], size: int, goal: int) -> Row:
    found = size / p50(seconds) / 1e6
    return Row(what, f"{found:.0f} MB/s", "", "", f">= {goal} MB/s", found >= goal)
