"""One sandbox, or the host that it reaches, does all it can to keep the event loop busy; another one runs commands.

Each attack makes tiny units of work: an answer or a body in chunks of one byte, a flood of 103s, TLS records of one
byte, output in writes of one byte.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from belljar import Allow, Limits, Session
from belljar.network.allow import DoorLimits, host_of

from .table import Row, ms, p99, quantile

AT_ONCE = 48
SECONDS = 6.0
STALLED = 1000
SERVER = """
import asyncio, sys
CHUNKS = b"1\\r\\nx\\r\\n" * 20000
EARLY = b"HTTP/1.1 103 Early Hints\\r\\n\\r\\n" * 4000
async def serve(reader, writer):
    try:
        head = await reader.readuntil(b"\\r\\n\\r\\n")
        if b"/chunks" in head:
            writer.write(b"HTTP/1.1 200 OK\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n")
        while b"/sink" not in head:
            writer.write(CHUNKS if b"/chunks" in head else EARLY)
            await writer.drain()
        while await reader.read(1 << 18): pass
    except (OSError, asyncio.IncompleteReadError): pass
async def flood(reader, writer):
    try:
        while True:
            writer.write(bytes(1 << 18)); await writer.drain()
    except OSError: pass
async def stall(reader, writer):
    await asyncio.sleep(600)
async def main():
    servers = [await asyncio.start_server(each, "127.0.0.1", 0, backlog=4096) for each in (serve, flood, stall)]
    print(*(server.sockets[0].getsockname()[1] for server in servers), flush=True)
    await asyncio.sleep(3600)
asyncio.run(main())"""
CLIENT = """
import resource, selectors, socket, sys, time
what, port, count, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
connect = b"CONNECT api.test:%s HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n" % port.encode()
def plain(path, *headers):
    lines = (f"POST http://api.test:{port}{path} HTTP/1.1", f"Host: api.test:{port}", *headers, "", "")
    return "\\r\\n".join(lines).encode()
first, then = {
    "chunks": (plain("/chunks", "Content-Length: 0"), b""),
    "early": (plain("/early", "Content-Length: 0"), b""),
    "body": (plain("/sink", "Transfer-Encoding: chunked"), b"1\\r\\nx\\r\\n" * 10000),
    "records": (connect, b"\\x16\\x03\\x01\\0\\1\\1" + b"\\x16\\x03\\x01\\0\\1\\0" * 10000),
    "frames": (connect.replace(b"api.test", b"127.0.0.1"), b""),
    "unread": (connect.replace(b"api.test", b"127.0.0.1"), b""),
    "unsent": (connect.replace(b"api.test", b"127.0.0.1"), bytes(1 << 18)),
}[what]
chosen = selectors.DefaultSelector()
def dial():
    line = socket.create_connection(("127.0.0.1", 3128))
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    line.sendall(first)
    line.setblocking(False)
    chosen.register(line, selectors.EVENT_READ | (selectors.EVENT_WRITE if then or what == "frames" else 0))
for _ in range(count): dial()
print("up", flush=True)
end = time.monotonic() + seconds
while time.monotonic() < end:
    if what == "unread": time.sleep(0.5); continue
    for key, events in chosen.select(0.1):
        try:
            if events & selectors.EVENT_READ and not key.fileobj.recv(1 << 16): raise OSError
            if events & selectors.EVENT_WRITE: key.fileobj.send(then or b"x")
        except BlockingIOError: pass
        except OSError:
            chosen.unregister(key.fileobj); key.fileobj.close(); dial()
"""
OUTPUT = "import os\nwhile True: os.write(1, b'x'); os.write(2, b'y')"


async def rows(directory: Path) -> list[Row]:
    async with (
        _server() as ports,
        _hostile(directory, ports) as hostile,
        Session(directory, policy="permissive") as victim,
    ):
        for _ in range(50):
            await victim.run("true")
        idle, _ = await _measured(victim)
        found = [Row("warm true, nothing else", ms(p99(idle)), "", "", "p99")]
        for what, name in (
            ("chunks", "answers in chunks of a byte"), ("early", "floods of 103s"),
            ("body", "bodies in chunks of a byte"), ("records", "TLS records of a byte"),
            ("frames", "tunnels fed byte by byte"),
        ):  # fmt: skip
            async with hostile.stream(
                _command(what, ports), timeout=SECONDS + 60
            ) as running:
                await anext(running)
                await asyncio.sleep(1)
                found.append(_row(name, idle, *await _measured(victim)))
        async with hostile.stream(["python3", "-c", OUTPUT]) as running:
            following = asyncio.ensure_future(_drop(running))
            found.append(
                _row("output in writes of a byte", idle, *await _measured(victim))
            )
            following.cancel()
    memory = json.loads(await _own(directory))
    for what, kilobytes in memory.items():
        more = kilobytes / 1024
        found.append(
            Row(
                f"{STALLED} tunnels, {what}",
                f"{more:.0f} MB",
                "",
                "",
                "<= 64 MB",
                more <= 64,
            )
        )
    return found


def _command(
    what: str, ports: list[int], count: int = AT_ONCE, seconds: float = SECONDS
) -> list[str]:
    port = {"frames": ports[2], "unread": ports[1], "unsent": ports[2]}.get(
        what, ports[0]
    )
    return ["python3", "-c", CLIENT, what, str(port), str(count), str(seconds)]


async def _drop(running: object) -> None:
    async for _ in running:  # type: ignore[attr-defined]
        pass


def _row(name: str, idle: list[float], times: list[float], late: float) -> Row:
    ratio = p99(times) / p99(idle)
    return Row(
        f"  beside {name}", ms(p99(times)), f"loop late by {ms(late)}", f"{ratio:.2f}", "late <= 50 ms, p99 <= x 2",
        late <= 0.050 and ratio <= 2,
    )  # fmt: skip


async def _measured(
    victim: Session, seconds: float = SECONDS - 2
) -> tuple[list[float], float]:
    """How long `true` takes, and by how much the loop was late at most."""
    late, times, end = [0.0], list[float](), time.monotonic() + seconds

    async def watch() -> None:
        while True:
            begun = time.perf_counter()
            await asyncio.sleep(0.002)
            late.append(time.perf_counter() - begun - 0.002)

    watching = asyncio.ensure_future(watch())
    while time.monotonic() < end:
        begun = time.perf_counter()
        await victim.run("true")
        times.append(time.perf_counter() - begun)
        await asyncio.sleep(0.005)
    watching.cancel()
    print(
        f"    {len(times)} commands, p50 {ms(quantile(times, 0.5))}, loop late p99 {ms(p99(late))}",
        file=sys.stderr,
    )
    return times, max(late)


@asynccontextmanager
async def _server() -> AsyncIterator[list[int]]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SERVER, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout
    try:
        yield [int(port) for port in (await process.stdout.readline()).split()]
    finally:
        process.kill()
        await process.wait()


@asynccontextmanager
async def _hostile(directory: Path, ports: list[int]) -> AsyncIterator[Session]:
    hosts = [
        host
        for port in ports
        for host in (f"api.test:{port}=127.0.0.1", f"127.0.0.1:{port}")
    ]
    limits = DoorLimits(connections=STALLED + 100, per_minute=1_000_000)
    async with Session(
        directory,
        network=Allow(*hosts, limits=limits),
        limits=Limits(memory="2g"),
        policy="permissive",
    ) as box:
        assert box.door.proxy is not None
        box.door.proxy._resolve = _loopback  # type: ignore[assignment]
        yield box


async def _loopback(name: str, port: int) -> list[object]:
    return [host_of("127.0.0.1")]


async def _own(directory: Path) -> bytes:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.bench.hostile",
        str(directory),
        stdout=asyncio.subprocess.PIPE,
    )
    said, _ = await process.communicate()
    assert process.returncode == 0
    return said


async def _weighed(directory: Path) -> None:
    grown = {}
    async with _server() as ports:
        for what, name in (
            ("unread", "that nobody reads inside"),
            ("unsent", "that nobody reads outside"),
        ):
            async with _hostile(directory, ports) as box:
                await box.run("true")
                before = _resident()
                async with box.stream(
                    _command(what, ports, STALLED, 60), timeout=90
                ) as running:
                    async for _ in running:
                        break
                    await asyncio.sleep(12)
                    grown[name] = _resident() - before
    print(json.dumps(grown))


def _resident() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1])


if __name__ == "__main__":
    import anyio

    anyio.run(_weighed, Path(sys.argv[1]))
