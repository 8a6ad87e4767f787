"""A real relay, a real door and real servers, all on this machine's loopback."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import SocketStream

from belljar.network.allow import Address, Allow, host_of
from belljar.network.door import Door
from belljar.network.mux import Mux, MuxStream
from belljar.network.resolver import Unresolved

INIT = Path(__file__).parents[2] / "sandbox-images" / "init"
MAIN = '#include "relay.h"\nint main(int argc, char **argv) { return relay_main(argc, argv); }\n'


@pytest.fixture(scope="session")
def relay_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The relay alone, without the init around it."""
    place = tmp_path_factory.mktemp("relay")
    (place / "main.c").write_text(MAIN)
    built = place / "relay"
    command = ["cc", "-std=gnu11", "-O1", f"-I{INIT}", "-o", str(built), str(place / "main.c"), str(INIT / "relay.c")]
    subprocess.run([sys.executable, "-m", "ziglang", *command], check=True)
    return built


def free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Names:
    """A resolver of our own: names to addresses, changeable between two questions."""

    known: dict[str, list[str]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    async def __call__(self, name: str, port: int) -> list[Address]:
        self.asked.append(name)
        if name not in self.known:
            raise Unresolved(f"{name} has no address")
        return [host_of(each) for each in self.known[name]]  # type: ignore[misc]


@dataclass
class Doorway:
    port: int
    door: Door
    mux: Mux
    records: list[dict[str, Any]]
    process: asyncio.subprocess.Process

    async def dial(self) -> SocketStream:
        return await anyio.connect_tcp("127.0.0.1", self.port)

    async def say(self, *parts: bytes, until: int = 1 << 20) -> bytes:
        """Send, and read all that is answered until the door hangs up."""
        heard = b""
        async with await self.dial() as stream:
            for part in parts:
                await stream.send(part)
            with suppress(anyio.EndOfStream, anyio.BrokenResourceError), anyio.fail_after(120):
                while len(heard) < until:
                    heard += await stream.receive()
        return heard


Opening = Callable[..., Any]


@pytest.fixture
def open_door(relay_program: Path) -> Opening:
    """`async with open_door(Allow(...), names) as doorway`: a door, reached through a real relay."""

    @asynccontextmanager
    async def opening(allow: Allow, names: Names | None = None, **options: Any) -> AsyncIterator[Doorway]:
        port, records = free_port(), list[dict[str, Any]]()
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(str(relay_program), str(port), stdin=pipe, stdout=pipe)
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
                yield Doorway(port, door, mux, records, process)
            finally:
                tasks.cancel_scope.cancel()
                if process.returncode is None:
                    process.kill()
                with anyio.CancelScope(shield=True):
                    await process.wait()

    return opening


@asynccontextmanager
async def server(handle: Callable[[SocketStream], Awaitable[None]], port: int = 0) -> AsyncIterator[int]:
    """A TCP server on loopback; its port."""

    async def one(stream: SocketStream) -> None:
        async with stream:
            with suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                await handle(stream)

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=port)
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, one)
        yield listener.extra(anyio.abc.SocketAttribute.local_port)
        tasks.cancel_scope.cancel()


async def echo(stream: SocketStream) -> None:
    while True:
        await stream.send(await stream.receive())


__all__ = ["Doorway", "MuxStream", "Names", "echo", "free_port", "server"]
