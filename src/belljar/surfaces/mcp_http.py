"""The MCP server over streamable HTTP: on a loopback address only, and only for who holds the token.

Any web page the user visits can make a browser send requests to loopback. So three things are asked of a
request: the token (compared in constant time), a Host that names this very address (DNS rebinding), and no
foreign Origin.
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
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import uvicorn
from mcp.server.transport_security import TransportSecuritySettings
from starlette.datastructures import Headers
from starlette.responses import JSONResponse

from belljar.errors import UsageError

if TYPE_CHECKING:
    from mcp.server.lowlevel.server import Server
    from starlette.types import ASGIApp, Receive, Scope, Send

DEFAULT_PORT = 8808
DEFAULT_ADDRESS = f"127.0.0.1:{DEFAULT_PORT}"
TOKEN_VARIABLE = "BELLJAR_MCP_TOKEN"
SHUTDOWN_SECONDS = 5
"""How long open streams may hold up the end; their commands are killed with the sandbox anyway."""


def serve_http(server: Server[Any], address: str, token: str | None) -> int:
    host, port = parse_address(address or DEFAULT_ADDRESS)
    token = given_token(token)
    secret = token or secrets.token_urlsafe(32)
    with _listen(host, port) as listener:
        port = listener.getsockname()[1]
        _say(f"MCP server on http://{f'[{host}]' if ':' in host else host}:{port}/mcp")
        if token is None:
            _say(f"send with every request: Authorization: Bearer {secret}")
        app = TokenGate(server.streamable_http_app(transport_security=_only_from(port), host=host), secret)
        config = uvicorn.Config(
            app, log_config=None, access_log=False, ws="none", timeout_graceful_shutdown=SHUTDOWN_SECONDS
        )
        with contextlib.suppress(KeyboardInterrupt):
            uvicorn.Server(config).run(sockets=[listener])
    return 0


def parse_address(address: str) -> tuple[str, int]:
    """`HOST:PORT`, where HOST is a loopback address; anything else is refused."""
    try:
        parts = urlsplit(f"//{address}")
        host, port = parts.hostname or "", parts.port
        host = "127.0.0.1" if host == "localhost" else host
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        raise UsageError(f"{address!r} is not an address; write for example {DEFAULT_ADDRESS}") from None
    if not loopback:
        raise UsageError(f"{host} is not a loopback address; listen on 127.0.0.1 or [::1]")
    return host, DEFAULT_PORT if port is None else port


def given_token(option: str | None) -> str | None:
    """From `--token` or the environment (an option can be read by everyone who may list processes)."""
    token = option if option is not None else os.environ.get(TOKEN_VARIABLE)
    if token is not None and not re.fullmatch(r"[!-~]+", token):
        raise UsageError("the token must be printable ASCII without spaces, and not empty")
    return token


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as refused:
        reason = f"cannot listen on {host} port {port}: {refused.strerror}"
        raise UsageError(f"{reason}; choose another port") from None


def _only_from(port: int) -> TransportSecuritySettings:
    names = [f"{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]")]
    origins = [f"http://{name}" for name in names]
    return TransportSecuritySettings(allowed_hosts=names, allowed_origins=origins)


def _say(line: str) -> None:
    sys.stderr.write(f"belljar: {line}\n")
    sys.stderr.flush()


class TokenGate:
    """Lets a request through to `app` only with the token."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._expected = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan" and not self._admits(Headers(scope=scope).get("authorization", "")):
            refusal = JSONResponse(
                {"error": "invalid_token", "message": "send the header Authorization: Bearer TOKEN"},
                status_code=401,
                headers={"WWW-Authenticate": "Bearer"},
            )
            await refusal(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _admits(self, header: str) -> bool:
        scheme, _, token = header.partition(" ")
        return hmac.compare_digest(f"{scheme.capitalize()} {token.strip()}".encode(), self._expected)
