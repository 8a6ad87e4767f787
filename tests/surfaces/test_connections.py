"""Connections that send nothing, or do not read."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import pytest
import uvicorn
import websockets
from tests.surfaces.mcp.test_http import TOKEN, serving
from tests.surfaces.mcp.test_http import served as served

from belljar.surfaces import connections
from belljar.surfaces.mcp.http import TokenGate

LONG = bytes(32 << 20)
"""More than the kernel buffers for a client that does not read."""
Address = tuple[str, int]


def request(token: str) -> bytes:
    return (
        f"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
    )


UNREAD = 400_000 * request("another")
"""More than the kernel buffers when the server stops reading because its answers are not read."""


def test_half_sent_requests_do_not_lock_out_other_clients(workspace: Path) -> None:
    with serving(
        workspace, wrapper=("prlimit", "--nofile=256:256"), BELLJAR_MCP_TOKEN=TOKEN
    ) as served:
        address = urlsplit(served.url)
        half = [
            socket.create_connection((address.hostname, address.port), timeout=60)
            for _ in range(400)
        ]
        for each in half:
            with suppress(OSError):  # the server has closed it to make room
                each.sendall(b"POST /mcp HTTP/1.1\r\nHost: x\r\nX-Slow: ")
        assert served.post(Authorization=f"Bearer {TOKEN}") == 400
        for each in half:
            each.close()


def test_an_unfinished_request_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections.Guarded, "patience", 0.2)
    monkeypatch.setattr(connections.Guarded, "idle", 0.2)

    async def scenario(address: Address) -> None:
        for token in (TOKEN, "another"):
            async with connection(address) as (reader, writer):
                writer.write(request(token))
                await reader.readuntil(b"\r\n\r\n")
                writer.write(b"GET / HTTP/1.1\r\nX-Slow: ")
                await ended(reader)

    run(scenario, answering(b""))


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(UNREAD, id="unread refusals"),
        pytest.param(
            b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n", id="no body"
        ),
    ],
)
def test_clients_without_the_token_do_not_lock_out_others(
    sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections.Guarded, "most", 4)
    monkeypatch.setattr(connections.Guarded, "patience", 600)

    async def scenario(address: Address) -> None:
        loop = asyncio.get_running_loop()
        with ExitStack() as stack:
            deaf = [stack.enter_context(socket.socket()) for _ in range(8)]
            for each in deaf:
                each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
                each.setblocking(False)
                await loop.sock_connect(each, address)
            sending = [loop.sock_sendall(each, sent) for each in deaf]
            await asyncio.gather(
                *sending, return_exceptions=True
            )  # until all is sent, or the server has closed
            async with connection(address) as (reader, writer):
                writer.write(request(TOKEN))
                assert b" 200 " in await reader.readline()

    run(scenario, answering(b""))


def test_clients_with_the_token_that_idle_make_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "most_admitted", lambda: 3)

    async def scenario(address: Address) -> None:
        async with AsyncExitStack() as opened:
            streams = []
            for _ in range(5):
                streams.append(await opened.enter_async_context(connection(address)))
                reader, writer = streams[-1]
                writer.write(request(TOKEN))
                assert b" 200 " in await reader.readline()
                await reader.readuntil(b"\r\n\r\n")
            for reader, _ in streams[:2]:  # the oldest two
                await ended(reader)
            reader, writer = streams[2]
            writer.write(request(TOKEN))
            assert b" 200 " in await reader.readline()
        assert len(connections.Guarded.admitted) <= 3

    run(scenario, answering(b""))


def test_a_slow_reader_with_the_token_gets_its_whole_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections.Guarded, "patience", 0.2)
    monkeypatch.setattr(connections.Guarded, "idle", 0.2)

    async def scenario(address: Address) -> None:
        async with connection(address) as (reader, writer):
            writer.write(request(TOKEN))
            await reader.readuntil(b"\r\n\r\n")
            async with connection(address) as (silent, _):
                await ended(silent)  # now `patience` is over for the slow reader too
            await reader.readexactly(len(LONG))

    run(scenario, answering(LONG))


def test_an_answer_that_is_never_read_ends_its_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "UNREAD_SECONDS", 0.2)
    disconnected = asyncio.Event()

    async def endless(_: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": LONG, "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass
        disconnected.set()

    async def scenario(address: Address) -> None:
        async with connection(address) as (_, writer):
            writer.write(request(TOKEN))
            await disconnected.wait()

    run(scenario, endless)


def test_a_connection_that_became_a_websocket_is_its_application_s(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections.Guarded, "patience", 0.2)

    async def echoing(_: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] == "websocket.receive":
            await send({"type": "websocket.send", "text": message["text"]})

    async def scenario(address: Address) -> None:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with websockets.connect(
            f"ws://{address[0]}:{address[1]}/", additional_headers=headers
        ) as socket:
            async with connection(address) as (silent, _):
                await ended(silent)  # now `patience` is over for the websocket too
            await socket.send("still there")
            assert await socket.recv() == "still there"

    run(scenario, echoing)


def answering(body: bytes) -> Any:
    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        length = (b"content-length", b"%d" % len(body))
        await send({"type": "http.response.start", "status": 200, "headers": [length]})
        await send({"type": "http.response.body", "body": body})

    return app


@asynccontextmanager
async def connection(
    address: Address,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(*address)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def ended(reader: asyncio.StreamReader) -> None:
    with suppress(ConnectionError):
        await reader.read()


def run(scenario: Callable[[Address], Awaitable[None]], app: Any) -> None:
    async def serve() -> None:
        gate = TokenGate(app, TOKEN)
        options: Any = {
            "ws": "websockets-sansio",
            "log_config": None,
            "lifespan": "off",
            "timeout_graceful_shutdown": 5,
        }
        server = uvicorn.Server(
            uvicorn.Config(gate, http=connections.Guarded, **options)
        )
        with socket.create_server(("127.0.0.1", 0)) as listener:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(server.serve, [listener])
                try:
                    await asyncio.wait_for(scenario(listener.getsockname()), 60)
                finally:
                    server.should_exit = True

    asyncio.run(serve())
