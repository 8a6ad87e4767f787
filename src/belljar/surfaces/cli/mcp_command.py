"""`belljar mcp`: serves the tools to an MCP client, over stdio or over HTTP on a loopback address."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING

import anyio

from belljar import resources
from belljar.errors import UsageError
from belljar.surfaces.cli import console, staged_offer
from belljar.surfaces.cli.open_session import planned
from belljar.workspace.pinned import Workspace

if TYPE_CHECKING:
    from argparse import Namespace

    from belljar.surfaces.mcp.server import Service

WAITING = (
    "waiting for an MCP client on stdin, and this is a terminal: a client starts `belljar mcp` itself "
    "(for example: claude mcp add belljar -- belljar mcp). Ctrl+C ends it; --http serves one that is started already"
)


def serve(args: Namespace) -> int:
    """Serve until the client is gone. Commands that still run then are killed."""
    service = build(args)
    if args.http is None:
        if sys.stdin is not None and sys.stdin.isatty():
            console.note(WAITING)
        from belljar.surfaces.mcp.stdio import serve_stdio

        return anyio.run(serve_stdio, service)
    from belljar.surfaces.mcp.http import serve_http

    return serve_http(service.server, args.http, args.token)


def build(args: Namespace) -> Service:
    try:
        from belljar.surfaces.mcp.server import Service, of_the_user
    except ModuleNotFoundError as missing:
        if (missing.name or "").startswith("belljar"):
            raise
        raise UsageError(
            f"the MCP server needs {missing.name}: {resources.extra('mcp')}"
        ) from None
    from belljar.tools.registry import chosen_families

    with Workspace.open(args.workspace, allow_home=args.allow_home) as workspace:
        directory = workspace.path
    ended = partial(staged_offer.conclude, ask=False)
    chosen = chosen_families(args.tools, staged=args.changes == "staged")
    return Service(partial(planned, args), of_the_user(directory), chosen, ended)
