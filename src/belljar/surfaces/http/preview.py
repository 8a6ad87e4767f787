"""Where links to a sandbox's ports lead when they have an origin of their own (`--preview-listen`).

What a sandbox serves must not share an origin with the dashboard. Without names, all links lead to one other port, and
their pages still run sandboxed (ports.py). With `--preview-url https://*.preview.example.com` each link has a host of
its own: its pages are whole web apps, with absolute paths, cookies and storage, and reach nothing but themselves.

A host's name stands for `/p/TOKEN`: the request is rewritten so, and from then on both forms are one.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.routing import Route, WebSocketRoute

from belljar.errors import UsageError
from belljar.surfaces.http import app as main
from belljar.surfaces.http import ports
from belljar.surfaces.http.problems import Problem

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from belljar.surfaces.http.service import Service

MARKS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "x-robots-tag": "noindex",
}


@dataclass(frozen=True)
class Previews:
    """The addresses of links."""

    base: str
    """`https://*.HOST`: a host for each link; else one address for all of them."""

    @classmethod
    def at(cls, pattern: str | None, listening: str) -> Previews:
        """By `--preview-url`, or at the address where we listen."""
        if pattern is None:
            return cls(listening)
        parts = urlsplit(pattern)
        name = parts.netloc.removeprefix("*.")
        if (
            parts.scheme not in ("http", "https")
            or parts.path not in ("", "/")
            or not name.strip(".")
            or "*" in name
        ):
            raise UsageError(
                "--preview-url: write for example https://*.preview.example.com"
            )
        return cls(f"{parts.scheme}://{parts.netloc.lower()}")

    @property
    def is_own(self) -> bool:
        """Whether each link has an origin of its own."""
        return "://*." in self.base

    def url(self, token: str) -> str:
        return (
            self.base.replace("*", token, 1) + "/"
            if self.is_own
            else f"{self.base}/p/{token}/"
        )

    def token(self, host: str) -> str | None:
        """The link that this host stands for."""
        first, _, rest = host.lower().partition(".")
        return (
            first if self.is_own and f"*.{rest}" == urlsplit(self.base).netloc else None
        )


def make(service: Service, previews: Previews, hosts: set[str]) -> ASGIApp:
    """The application of the second address: links, and nothing else. `hosts`: by which names it may be called."""
    app = Starlette(
        routes=[
            Route(ports.LINK, ports.by_link, methods=[*ports.METHODS]),
            WebSocketRoute(ports.LINK, ports.socket_by_link),
        ],
        exception_handlers={Problem: main.on_problem, Exception: main.on_error},
    )
    app.state.service, app.state.previews, app.state.shows_links = (
        service,
        previews,
        True,
    )
    return _ByHost(
        app,
        previews,
        {host.lower() for host in hosts} | {urlsplit(previews.base).netloc},
    )


class _ByHost:
    """Makes a path of the host's name, and marks every answer."""

    def __init__(self, inner: Starlette, previews: Previews, hosts: set[str]) -> None:
        self._inner, self._previews, self._hosts = inner, previews, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            return
        scope.setdefault("state", {})["request_id"] = secrets.token_hex(8)
        scope["app"] = self._inner
        host = next(
            (
                value.decode("latin-1")
                for name, value in scope["headers"]
                if name == b"host"
            ),
            "",
        )
        token = self._previews.token(host)
        if token is not None:
            start = f"/p/{token}"
            scope = {
                **scope,
                "path": start + scope["path"],
                "raw_path": start.encode() + scope["raw_path"],
            }
        elif self._previews.is_own or host.lower() not in self._hosts:
            problem = Problem("host_refused", "this server is not called by that name")
            await main.refuse(problem, scope, receive, send)
            return
        await self._inner(scope, receive, _marked(send))


def _marked(send: Send) -> Send:
    async def marked(message: Message) -> None:
        if message["type"] in ("http.response.start", "websocket.http.response.start"):
            ours = {name.encode(): value.encode() for name, value in MARKS.items()}
            headers = [
                (name, value)
                for name, value in message["headers"]
                if name.lower() not in ours
            ]
            message = {**message, "headers": [*headers, *ours.items()]}
        await send(message)

    return marked
