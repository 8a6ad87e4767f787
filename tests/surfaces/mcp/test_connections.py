"""Connections that say nothing."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import pytest
import uvicorn
from tests.surfaces.mcp.test_http import TOKEN, serving
from tests.surfaces.mcp.test_http import served as served

from belljar.surfaces.mcp import connections


def test_half_sent_requests_lock_nobody_out(workspace: Path) -> None:
    with serving(workspace, wrapper=("prlimit", "--nofile=256:256"), BELLJAR_MCP_TOKEN=TOKEN) as served:
        address = urlsplit(served.url)
        half = [socket.create_connection((address.hostname, address.port), timeout=60) for _ in range(400)]
        for each in half:
            with suppress(OSError):  # closed already, to make room
                each.sendall(b"POST /mcp HTTP/1.1\r\nHost: x\r\nX-Slow: ")
        assert served.post(Authorization=f"Bearer {TOKEN}") == 400
        for each in half:
            each.close()


def test_a_request_that_never_comes_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> bytes:
        monkeypatch.setattr(connections, "HEADER_SECONDS", 0.2)
        server = uvicorn.Server(uvicorn.Config(app, http=connections.Guarded, log_config=None, lifespan="off"))
        listener = socket.create_server(("127.0.0.1", 0))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.serve, [listener])
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            answered = await reader.readuntil(b"\r\n\r\n")
            writer.write(b"GET / HTTP/1.1\r\nX-Slow: ")
            with suppress(ConnectionError):
                await reader.read()  # ends when the server gives up
            writer.close()
            server.should_exit = True
        listener.close()
        return answered

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    assert b"204" in asyncio.run(asyncio.wait_for(scenario(), 60))
