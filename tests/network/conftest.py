"""A real relay, a real door and real servers, all on this machine's loopback."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import anyio
import anyio.lowlevel
import pytest
from anyio.abc import SocketStream
from anyio.streams.tls import TLSStream
from tests.init import compiled

from belljar.network import sockets
from belljar.network.addresses import Unresolved
from belljar.network.allow import Address, Allow, host_of
from belljar.network.authority import Authority
from belljar.network.door import Door
from belljar.network.mux import Mux, MuxStream


@pytest.fixture(scope="session")
def relay_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled.relay(tmp_path_factory.mktemp("relay"))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Names:
    """A resolver with a table that a test may change between two lookups."""

    known: dict[str, list[str]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    async def __call__(self, name: str, port: int) -> list[Address]:
        self.asked.append(name)
        if name not in self.known:
            raise Unresolved(f"{name} has no address")
        return [host_of(each) for each in self.known[name]]  # type: ignore[misc]


@dataclass
class RunningDoor:
    port: int
    door: Door
    mux: Mux
    records: list[dict[str, Any]]
    process: asyncio.subprocess.Process

    async def dial(self) -> SocketStream:
        return await anyio.connect_tcp("127.0.0.1", self.port)

    async def exchange(self, *parts: bytes, until: int = 1 << 20) -> bytes:
        """Send the parts, and return all that comes back until the connection is closed."""
        received = b""
        async with await self.dial() as stream:
            for part in parts:
                await stream.send(part)
            with (
                suppress(anyio.EndOfStream, anyio.BrokenResourceError),
                anyio.fail_after(120),
            ):
                while len(received) < until:
                    received += await stream.receive()
        return received


OpenDoor = Callable[..., Any]


@pytest.fixture
def open_door(relay_program: Path) -> OpenDoor:
    """`async with open_door(Allow(...), names) as opened`: a door, reached through a real relay."""

    @asynccontextmanager
    async def opening(
        allow: Allow, names: Names | None = None, **options: Any
    ) -> AsyncIterator[RunningDoor]:
        port, records = free_port(), list[dict[str, Any]]()
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            str(relay_program), str(port), stdin=pipe, stdout=pipe
        )
        assert process.stdin
        assert process.stdout
        door = Door(allow, record=records.append, resolve=names or Names(), **options)

        async def write(data: bytes) -> None:
            assert process.stdin
            process.stdin.write(data)
            await process.stdin.drain()

        async with anyio.create_task_group() as tasks:
            mux = Mux(write, lambda stream: tasks.start_soon(door.serve, stream))

            async def read() -> None:
                assert process.stdout
                while data := await process.stdout.read(1 << 18):
                    mux.feed(data)
                mux.lose()

            tasks.start_soon(read)
            tasks.start_soon(mux.run)
            await mux.ready.wait()
            try:
                yield RunningDoor(port, door, mux, records, process)
            finally:
                tasks.cancel_scope.cancel()
                if process.returncode is None:
                    process.kill()
                with anyio.CancelScope(shield=True):
                    await process.wait()
                    with suppress(
                        OSError
                    ):  # else Python 3.11.2 warns about an unclosed pipe
                        await process.stdin.wait_closed()

    return opening


@asynccontextmanager
async def server(
    handle: Callable[[SocketStream], Awaitable[None]],
    port: int = 0,
    host: str = "127.0.0.1",
) -> AsyncIterator[int]:
    """Run a TCP server on loopback, and yield its port."""

    async def one(stream: SocketStream) -> None:
        async with stream:
            with suppress(
                anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError
            ):
                await handle(stream)

    listener = await anyio.create_tcp_listener(local_host=host, local_port=port)
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, one)
        yield listener.extra(anyio.abc.SocketAttribute.local_port)
        tasks.cancel_scope.cancel()


async def echo(stream: SocketStream) -> None:
    while True:
        await stream.send(await stream.receive())


__all__ = ["MuxStream", "Names", "RunningDoor", "echo", "free_port", "server"]


LOCAL = {"api.test": ["127.0.0.1"], "other.test": ["127.0.0.1"]}


async def web(stream: SocketStream) -> None:
    """Answer each request with the request itself, `|` for line ends."""
    data = b""
    while True:
        while b"\r\n\r\n" not in data:
            data += await stream.receive()
        head, _, data = data.partition(b"\r\n\r\n")
        body = head.replace(b"\r\n", b"|")
        await stream.send(
            b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        )


class Index(BaseHTTPRequestHandler):
    asked: ClassVar[list[str]] = []
    leads_to: ClassVar[str] = ""

    def do_GET(self) -> None:
        pages = {
            "/simple/pip/": json.dumps(
                {"files": [{"url": "https://files.example/a.whl"}, {"url": "../b.whl"}]}
            ),
            "/old/pip/": '<a href="https://old-files.example/x.whl#sha256=1">x</a>',
            "/npm/npm/latest": json.dumps(
                {"dist": {"tarball": "https://tarballs.example/npm.tgz"}}
            ),
        }
        self.asked.append(self.path)
        if self.path == "/leads":
            self.send_response(302)
            self.send_header("Location", self.leads_to)
            self.end_headers()
            return
        body = pages.get(self.path, "").encode()
        self.send_response(200 if body else 404)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def index() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Index) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


NAMES = {"api.test": ["127.0.0.1"]}


def connect(port: int) -> bytes:
    return f"CONNECT api.test:{port} HTTP/1.1\r\nHost: api.test:{port}\r\n\r\n".encode()


@pytest.fixture
def to_443(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Redirects connections to port 443 to `["port"]`, since a test may not listen on 443."""
    where: dict[str, int] = {}
    real = sockets.connected

    async def connect(host: str, port: int) -> sockets.TcpStream:
        return await real(host, where.get("port", port) if port == 443 else port)

    monkeypatch.setattr("belljar.network.door.sockets.connected", connect)
    return where


ALLOW = ("api.test", "127.0.0.1:443")


@pytest.fixture(scope="module")
def world() -> Authority:
    """The authority that signs the test servers' certificates."""
    return Authority()


@pytest.fixture(scope="module")
def trust(world: Authority, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("trust") / "world.pem"
    path.write_bytes(world.pem)
    return str(path)


@contextlib.asynccontextmanager
async def secure(
    world: Authority, host: str, serve: Callable[[SocketStream], Awaitable[None]] = web
) -> AsyncIterator[int]:
    async def handle(stream: SocketStream) -> None:
        with contextlib.suppress(ssl.SSLError):
            wrapped = await TLSStream.wrap(
                stream,
                server_side=True,
                ssl_context=world.server_context(host),
                standard_compatible=False,
            )
            await serve(wrapped)  # type: ignore[arg-type]
            await wrapped.aclose()

    async with server(handle) as port:
        yield port


async def ask(
    door: Door,
    stream: SocketStream,
    name: str,
    context: ssl.SSLContext,
    sni: str | None,
) -> bytes:
    await stream.send(f"CONNECT {name}:443 HTTP/1.1\r\nHost: {name}\r\n\r\n".encode())
    assert (await stream.receive()).startswith(b"HTTP/1.1 200")
    context.check_hostname = False
    inner = await TLSStream.wrap(
        stream,
        server_side=False,
        hostname=sni,
        ssl_context=context,
        standard_compatible=False,
    )
    await inner.send(
        f"GET /x HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n".encode()
    )
    received = b""
    with contextlib.suppress(anyio.EndOfStream, anyio.BrokenResourceError):
        while b"|" not in received:
            received += await inner.receive()
    if not received:
        raise anyio.EndOfStream
    return received


def pip_says(*urls: str) -> Callable[[list[str]], str]:
    names = ("index-url", "extra-index-url")
    settings = "".join(
        f"global.{name}='{url}'\n" for name, url in zip(names, urls, strict=False)
    )
    return lambda command: settings if "config" in command else ""


@pytest.fixture
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "PIP_INDEX_URL",
        "PIP_EXTRA_INDEX_URL",
        "UV_DEFAULT_INDEX",
        "UV_INDEX_URL",
        "UV_EXTRA_INDEX_URL",
        "GOPROXY",
    ):
        monkeypatch.delenv(name, raising=False)


class Hello(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "6")
        self.end_headers()
        self.wfile.write(b"hello\n")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def greeting_port() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Hello) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


@pytest.fixture(scope="module")
def fetch(greeting_port: int) -> str:
    """A command that fetches from this machine by address: a name that resolves to loopback is refused."""
    return f"curl -s --noproxy '' http://127.0.0.1:{greeting_port}/?token=s3cretvalue"
