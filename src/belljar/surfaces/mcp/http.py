"""The MCP server over streamable HTTP: on a loopback address only; requires a bearer token, rejects browser requests.

Any web page that the user visits can make the browser send requests to loopback. So a request needs the token (compared
in constant time), a Host header with this address (against DNS rebinding), and no foreign Origin.
"""

from __future__ import annotations

import contextlib
import hmac
import ipaddress
import os
import re
import secrets
import socket
import sys
from typing import Any
from urllib.parse import urlsplit

import uvicorn
from mcp.server.lowlevel.server import Server
from mcp.server.transport_security import TransportSecuritySettings
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from belljar.errors import UsageError
from belljar.surfaces.connections import BACKLOG, Guarded, admit

TOKEN_VARIABLE = "BELLJAR_MCP_TOKEN"
SHORTEST_TOKEN = 16
"""A shorter token can be guessed: every user of this machine may try as often as they like."""
SHUTDOWN_SECONDS = 5
"""How long the end waits for open streams; their commands are killed with the sandbox."""


def serve_http(server: Server[Any], address: str, token: str | None) -> int:
    host, port = parse_address(address)
    given = given_token(token)
    secret = given or secrets.token_urlsafe(32)
    with _listen(host, port) as listener:
        name, port = f"[{host}]" if ":" in host else host, listener.getsockname()[1]
        sys.stderr.write(f"belljar: MCP server on http://{name}:{port}/mcp\n")
        if given is None:
            sys.stderr.write(
                f"belljar: send with every request: Authorization: Bearer {secret}\n"
            )
        sys.stderr.flush()
        app = server.streamable_http_app(transport_security=_only_from(name, port))
        config = uvicorn.Config(
            TokenGate(app, secret),
            log_config=None,
            access_log=False,
            log_level="error",  # no line for each refused request: anybody could fill a log or a pipe with them
            http=Guarded,
            ws="none",
            backlog=BACKLOG,
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        )
        with contextlib.suppress(KeyboardInterrupt):
            uvicorn.Server(config).run(sockets=[listener])
    return 0


def parse_address(address: str) -> tuple[str, int]:
    """`HOST[:PORT]` as a loopback address and a port, where 0 is any free one. Other addresses are refused."""
    try:
        parts = urlsplit(f"//{address}")
        host, port = parts.hostname or "", parts.port or 0
        host = "127.0.0.1" if host == "localhost" else host
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        raise UsageError(
            f"{address!r} is not an address; write for example 127.0.0.1:8808"
        ) from None
    if not loopback:
        raise UsageError(
            f"{host} is not a loopback address; listen on 127.0.0.1 or [::1]"
        )
    return host, port


def given_token(option: str | None) -> str | None:
    """The token from `--token` or the environment. Everyone who can list processes can read an option."""
    token = option if option is not None else os.environ.get(TOKEN_VARIABLE)
    if token is not None and not re.fullmatch(rf"[!-~]{{{SHORTEST_TOKEN},}}", token):
        raise UsageError(
            f"the token must be at least {SHORTEST_TOKEN} characters of printable ASCII without spaces"
        )
    return token


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as refused:
        raise UsageError(
            f"cannot listen on {host} port {port}: {refused.strerror}; choose another"
        ) from None


def _only_from(name: str, port: int) -> TransportSecuritySettings:
    hosts = [f"{name}:{port}", f"localhost:{port}"]
    return TransportSecuritySettings(
        allowed_hosts=hosts, allowed_origins=[f"http://{host}" for host in hosts]
    )


class TokenGate:
    """Lets a request through to `app` only with the token."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._expected = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif self._admits(Headers(scope=scope).get("authorization", "")):
            admit(scope)
            await self._app(scope, receive, send)
        else:
            while (await receive()).get("more_body"):
                pass  # if we closed with data unread, the reset might reach the client before the answer
            headers = {"WWW-Authenticate": "Bearer", "Connection": "close"}
            await PlainTextResponse("send Authorization: Bearer TOKEN\n", 401, headers)(
                scope, receive, send
            )

    def _admits(self, header: str) -> bool:
        scheme, _, token = header.partition(" ")
        return hmac.compare_digest(
            f"{scheme.capitalize()} {token.strip()}".encode(), self._expected
        )
