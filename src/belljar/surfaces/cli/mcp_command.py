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
        from belljar.surfaces.mcp.server import Service
    except ModuleNotFoundError as missing:
        if (missing.name or "").startswith("belljar"):
            raise
        raise UsageError(f"the MCP server needs {missing.name}: {resources.extra('mcp')}") from None
    with Workspace.open(args.workspace, allow_home=args.allow_home) as workspace:
        directory = workspace.path
    ended = partial(staged_offer.conclude, ask=False)
    return Service(partial(planned, args), directory, families(args.tools, args.changes == "staged"), ended)


def families(option: str | None, staged: bool = False) -> tuple[str, ...]:
    """The families named in `--tools a,b`, by default the Bash family. A staged session adds its own."""
    from belljar.tools.registry import FAMILIES, ON_REQUEST

    known = [*FAMILIES, *ON_REQUEST]
    names = [name.strip() for name in (option or "bash").split(",")]
    if unknown := [name for name in names if name not in (*known, "all")]:
        raise UsageError(f"--tools: unknown: {', '.join(unknown)}; choose from {', '.join(known)}, all")
    if "staged" in names and not staged:
        raise UsageError("--tools staged: these are the tools of a staged session; add --staged")
    if "all" in names:
        names = [name for name in known if name != "staged"]
    return tuple(dict.fromkeys((*names, "staged") if staged else names))
