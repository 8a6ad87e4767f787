"""A session's network door: its relay and its port."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from pathlib import Path
from typing import Any

import anyio
import pytest

from belljar import Allow, Session
from belljar.errors import ProtectionMissing, UsageError
from belljar.network import sockets
from belljar.network.client_settings import PORT
from belljar.network.mux import HEAD, OPEN, READY, Mux
from belljar.network.sockets import Share
from belljar.session.network_door import ACCEPTED, Forwarded, NetworkDoor

LISTENER = f"""
import socket
taken = socket.create_server(("127.0.0.1", {PORT}))
print("up", flush=True)
taken.accept()
"""


async def test_a_proxy_whose_port_is_taken_does_not_start(
    base_image: str, workspace: Path
) -> None:
    """Clients would take the program that listens there for the proxy."""
    async with Session(workspace) as box:
        await box.files.write("listen.py", LISTENER)
        shell = await box.start("python3 listen.py")
        while "up" not in (await shell.read(offset=0, wait=5)).stdout:
            pass
        with pytest.raises(ProtectionMissing, match="could not be opened"):
            await NetworkDoor(box.init_tools, lambda _: None).open(Allow("api.test"))


class Holding:
    """Replaces the multiplexer. Holds each connection open, and counts how many arrive in each turn of the loop."""

    def __init__(self, full: int) -> None:
        self.seen = Counter[int]()
        self.go, self.full = asyncio.Event(), asyncio.Event()
        self._most, self._turn = full, 0
        self._loop = asyncio.get_running_loop()
        self._next()

    def _next(self) -> None:
        self._turn += 1
        if not self.go.is_set():
            self._loop.call_soon(self._next)

    async def open(self, port: int) -> Any:
        await self.serve(None)
        raise ConnectionError

    async def serve(self, stream: object) -> None:
        self.seen[self._turn] += 1
        if self.seen.total() == self._most:
            self.full.set()
        await self.go.wait()


async def test_a_flood_of_connections_to_a_forwarded_port_does_not_block_the_loop() -> (
    None
):
    holding = Holding(600)
    door = NetworkDoor(None, lambda _: None)  # type: ignore[arg-type]
    door.mux = holding  # type: ignore[assignment]
    forwarded = Forwarded(door, 8000)
    await forwarded.open()
    callers = [
        socket.create_connection(("127.0.0.1", forwarded.port)) for _ in range(600)
    ]
    await holding.full.wait()
    assert max(holding.seen.values()) <= ACCEPTED
    holding.go.set()
    for each in callers:
        each.setblocking(False)
        assert await asyncio.get_running_loop().sock_recv(each, 1) == b""
        each.close()
    forwarded.close()


async def test_a_forwarded_port_takes_no_more_than_its_share_of_descriptors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every user of this machine may connect to it, as often as they like."""
    holding, most = Holding(10), Share.all_open + 20
    monkeypatch.setattr(sockets, "max_connections", lambda: most)
    door = NetworkDoor(None, lambda _: None)  # type: ignore[arg-type]
    door.mux = holding  # type: ignore[assignment]
    forwarded = Forwarded(door, 8000)
    await forwarded.open()
    callers = [
        socket.create_connection(("127.0.0.1", forwarded.port)) for _ in range(30)
    ]
    await holding.full.wait()
    for each in callers[10:]:
        each.setblocking(False)
        assert await asyncio.get_running_loop().sock_recv(each, 1) == b"", "hung up on"
    assert holding.seen.total() == 10
    holding.go.set()
    for each in callers:
        each.close()
    forwarded.close()


async def test_a_flood_of_connections_from_inside_does_not_block_the_loop() -> None:
    holding = Holding(2000)
    door = NetworkDoor(None, lambda _: None)  # type: ignore[arg-type]
    door.door = holding  # type: ignore[assignment]
    door.mux = Mux(_nowhere, door._accept)
    door.admit_callers()
    ready = HEAD.pack(0, READY, 2) + b"\0\0"
    door.mux.feed(
        ready + b"".join(HEAD.pack(id, OPEN, 2) + b"\0\0" for id in range(1, 4001, 2))
    )
    await holding.full.wait()
    assert max(holding.seen.values()) <= ACCEPTED
    holding.go.set()
    door.door = None
    door.close()
    await anyio.wait_all_tasks_blocked()


async def _nowhere(data: bytes) -> None:
    pass


async def test_a_port_that_is_taken_here_is_one_clear_error(
    base_image: str, workspace: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        async with Session(workspace) as box:
            with pytest.raises(
                UsageError,
                match=f"port {port} of this machine is taken; choose another, or none",
            ):
                await box.forward(8000, at=port)
