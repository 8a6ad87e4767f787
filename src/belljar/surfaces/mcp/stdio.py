"""Serves one MCP client over stdin and stdout."""

from __future__ import annotations

import os
import signal
import sys

import anyio
from anyio.abc import TaskStatus

from belljar.surfaces.mcp.server import Service


async def serve_stdio(service: Service) -> int:
    """Serve until the client is gone. Commands that still run then are killed."""
    from mcp.server.stdio import stdio_server

    server = service.server
    async with anyio.create_task_group() as tasks:
        await tasks.start(
            _end_on_signal, service
        )  # must be ready before the thread that reads stdin starts
        async with stdio_server() as (incoming, outgoing):
            sys.stdout = sys.stderr  # a stray print must not reach the protocol's pipe
            await server.run(incoming, outgoing, server.create_initialization_options())
        tasks.cancel_scope.cancel()
    return 0


async def _end_on_signal(service: Service, *, task_status: TaskStatus[None]) -> None:
    """Close the session and exit at once: a thread waits in read(0), and nothing can wake it."""
    with anyio.open_signal_receiver(
        signal.SIGTERM, signal.SIGINT, signal.SIGHUP
    ) as signals:
        task_status.started()
        async for number in signals:
            await service.sandboxed.close()
            sys.stderr.flush()
            os._exit(128 + number)
