"""TCP connections that read no more than they are asked for."""

from __future__ import annotations

import socket

import anyio
import pytest
from anyio.abc import SocketStream
from tests.network.conftest import NAMES, Names, OpenDoor, connect, echo, server

from belljar.network.allow import Allow
from belljar.network.mux import MuxStream
from belljar.network.sockets import connected


async def test_what_nobody_asked_for_stays_in_the_kernel() -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    stream = await connected("127.0.0.1", listening.getsockname()[1])
    other, _ = listening.accept()
    other.sendall(b"0123456789")
    assert await stream.receive(4) == b"0123"
    assert stream._socket.recv(100) == b"456789"
    await stream.send(b"back")
    assert other.recv(4) == b"back"
    await stream.send_eof()
    assert other.recv(1) == b""
    other.close()
    with pytest.raises(anyio.EndOfStream):
        await stream.receive()
    await stream.aclose()
    listening.close()


async def test_closing_wakes_who_waits_for_it() -> None:
    async with server(echo) as port:
        stream = await connected("127.0.0.1", port)
        async with anyio.create_task_group() as tasks:

            async def wait() -> None:
                with pytest.raises(anyio.ClosedResourceError):
                    await stream.receive()

            tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            await stream.aclose()


async def test_what_is_not_read_inside_is_not_read_from_the_server(
    open_door: OpenDoor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would wait in our memory: a thousand such tunnels once cost 300 MB."""
    passed_on, real = 0, MuxStream.send

    async def counted(stream: MuxStream, item: bytes) -> None:
        nonlocal passed_on
        await real(stream, item)
        passed_on += 0 if item.startswith(b"HTTP/1.1 200") else len(item)

    async def flood(stream: SocketStream) -> None:
        while True:
            await stream.send(bytes(65536))

    monkeypatch.setattr(MuxStream, "send", counted)
    async with (
        server(flood) as port,
        open_door(Allow(f"tcp://api.test:{port}=127.0.0.1"), Names(NAMES)) as door,
        await door.dial() as tunnel,
    ):
        await tunnel.send(connect(port))
        unchanged = 0
        while unchanged < 20:
            before = passed_on
            await anyio.sleep(0.05)
            unchanged = unchanged + 1 if before == passed_on > 0 else 0
        assert door.door.visits[0].received == passed_on
