"""The network proxy: a server of this machine, reached from a sandbox through the proxy, and directly."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from belljar import Allow, Limits, Session
from belljar.network.allow import DoorLimits

from .table import Row, ms, p50

BIG = 512 << 20
ROUNDS = 3
SINGLE = 200
AT_ONCE = 1000
COMMANDS = 200
SERVER = """
import asyncio
async def serve(reader, writer):
    while line := await reader.readline():
        wanted = int(line)
        while wanted > 0:
            writer.write(bytes(min(wanted, 1 << 18))); wanted -= 1 << 18
            await writer.drain()
    writer.close()
async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
asyncio.run(main())"""
CLIENT = """
import json, resource, socket, sys, time
port, door, what, count = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
def dial():
    line = socket.create_connection(("127.0.0.1", door or port))
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if door:
        line.sendall(b"CONNECT 127.0.0.1:%d HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n" % port)
    return line
def head(line):
    got = b""
    while door and b"\\r\\n\\r\\n" not in got:
        got += line.recv(1) or sys.exit("hung up on")
def take(line, size, buffer=bytearray(1 << 20)):
    line.sendall(b"%d\\n" % size)
    while size > 0:
        size -= line.recv_into(buffer)
def one():
    begun = time.perf_counter()
    line = dial(); head(line); take(line, 1); line.close()
    return time.perf_counter() - begun
begun = time.perf_counter()
if what == "flood":
    line = dial(); head(line)
    begun = time.perf_counter(); take(line, count)
    print(json.dumps([time.perf_counter() - begun]))
elif what == "single":
    print(json.dumps([one() for _ in range(count)]))
else:
    lines = [dial() for _ in range(count)]
    for line in lines: head(line)
    for line in lines: take(line, 1)
    print(json.dumps([time.perf_counter() - begun]))
"""


async def rows(directory: Path) -> list[Row]:
    async with _server() as port, _session(directory, port) as box:
        flood, direct_flood = await _both(box, port, "flood", BIG, ROUNDS)
        single, direct_single = await _both(box, port, "single", SINGLE, 1)
        many = await _inside(box, port, "many", AT_ONCE)
    more, speed = p50(single) - p50(direct_single), BIG / p50(flood) / 1e6
    directly, connecting = (
        f"directly {BIG / p50(direct_flood) / 1e6:.0f} MB/s",
        f"directly {ms(p50(direct_single))}",
    )
    return [
        Row(
            "through the door",
            f"{speed:.0f} MB/s",
            directly,
            "",
            ">= 200 MB/s",
            speed >= 200,
        ),
        Row(
            "  a new connection",
            ms(p50(single)),
            connecting,
            "",
            "+ <= 2 ms",
            more <= 0.002,
        ),
        Row(
            f"  {AT_ONCE} connections at once",
            f"{many[0]:.2f} s",
            "",
            "",
            "all served",
            True,
        ),
        await _memory(directory),
        await _commands(directory),
    ]


@asynccontextmanager
async def _server() -> AsyncIterator[int]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SERVER, stdout=pipe
    )
    assert process.stdout
    try:
        yield int(await process.stdout.readline())
    finally:
        process.kill()
        await process.wait()


def _session(directory: Path, port: int) -> Session:
    allow = Allow(f"127.0.0.1:{port}", limits=DoorLimits(connections=AT_ONCE + SINGLE))
    return Session(directory, network=allow, limits=Limits(memory="1g"))


async def _inside(box: Session, port: int, what: str, count: int) -> list[float]:
    await box.files.write("client.py", CLIENT)
    ended = await box.run(
        ["python3", "client.py", str(port), "3128", what, str(count)], timeout=120
    )
    assert ended.ok, ended.stderr
    found: list[float] = json.loads(ended.stdout)
    return found


async def _both(
    box: Session, port: int, what: str, count: int, rounds: int
) -> tuple[list[float], list[float]]:
    """In the sandbox and on this machine, in turns."""
    ours, theirs = list[float](), list[float]()
    for _ in range(rounds):
        ours += await _inside(box, port, what, count)
        theirs += json.loads(await _own("-c", CLIENT, str(port), "0", what, str(count)))
    return ours, theirs


async def _own(*argv: str) -> bytes:
    process = await asyncio.create_subprocess_exec(
        sys.executable, *argv, stdout=asyncio.subprocess.PIPE
    )
    said, _ = await process.communicate()
    assert process.returncode == 0
    return said


async def _memory(directory: Path) -> Row:
    """The most by which a process with a session grows when its proxy is busy."""
    without, idle, busy = json.loads(
        await _own("-m", "tests.bench.door", str(directory))
    )
    more = f"{(busy - without) / 1024:.1f} MB"
    return Row("memory of the proxy, at most", more, f"idle {(idle - without) / 1024:.1f} MB", "", "<= 30 MB",
               busy - without <= 30 << 10)  # fmt: skip


async def _weighed(directory: Path) -> None:
    async with Session(directory) as box:
        await box.run("true")
        without = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    async with _server() as port, _session(directory, port) as box:
        await box.run("true")
        idle = _status("VmHWM")
        for what, count in (("flood", BIG), ("many", AT_ONCE), ("single", SINGLE)):
            await _inside(box, port, what, count)
        print(json.dumps([without, idle, _status("VmHWM")]))


def _status(name: str) -> int:
    line = next(
        line
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith(name)
    )
    return int(line.split()[1])


async def _commands(directory: Path) -> Row:
    times: dict[Any, list[float]] = {}
    async with Session(directory) as plain, _session(directory, 9) as with_door:
        for _ in range(COMMANDS):
            for box in (plain, with_door):
                begun = time.perf_counter()
                await box.run("echo hi")
                times.setdefault(box, []).append(time.perf_counter() - begun)
    theirs, ours = (p50(each) for each in times.values())
    ratio = ours / theirs
    return Row(
        "warm echo hi beside a door",
        ms(ours),
        f"without {ms(theirs)}",
        f"{ratio:.2f}",
        "<= 1.1",
        ratio <= 1.1,
    )


if __name__ == "__main__":
    import anyio

    anyio.run(_weighed, Path(sys.argv[1]))
