"""The ASGI application: what every request passes on its way to a route, and the routes.

    request id → Host → Origin → key (or cookie) → calls.py → the answer's headers

What a client may not even ask is refused before anything is read of its body.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route as StarletteRoute
from starlette.routing import WebSocketRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from belljar.surfaces import connections
from belljar.surfaces.http import (
    calls,
    files,
    mcp,
    observing,
    openapi,
    ports,
    review,
    routes,
    snapshots,
    tracing,
)
from belljar.surfaces.http.calls import Route
from belljar.surfaces.http.dashboard import routes as pages
from belljar.surfaces.http.problems import Problem
from belljar.surfaces.http.replicas import FORWARDED
from belljar.surfaces.http.routes import COOKIE, SECURE_COOKIE

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from belljar.surfaces.http.keys import Key
    from belljar.surfaces.http.service import Service

HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
}
_PORT = "/v1/sessions/{sid}/ports/{port}/{path:path}"
_ATTACH = "/v1/sessions/{sid}/commands/{cid}/attach"
OPEN = ("/healthz", "/readyz")
"""Nobody needs a key or our name for these."""
PROBLEM = "application/problem+json"
SAFE = ("GET", "HEAD", "OPTIONS")
_CODES = {404: "not_found", 405: "method_not_allowed"}

_requests = logging.getLogger(
    "belljar.requests"
)  # with the route, never the path: a link's path is its key

ROUTES: list[Route] = [
    *routes.ROUTES,
    *files.ROUTES,
    *review.ROUTES,
    *snapshots.ROUTES,
    *ports.ROUTES,
    *observing.ROUTES,
]


def make(
    service: Service,
    *,
    hosts: Iterable[str],
    origins: Iterable[str],
    secure: bool = False,
) -> FastAPI:
    """The application. `hosts` and `origins`: by which names and from which pages it may be called."""
    app = FastAPI(
        title="Belljar",
        version="1",
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.service, app.state.is_secure = service, secure
    app.state.shows_links = True  # unless they have an address of their own
    app.state.hosts, app.state.origins = (
        {host.lower() for host in hosts},
        {origin.lower() for origin in origins},
    )
    for path, ways in _by_path(ROUTES).items():
        app.add_route(path, _endpoint(ways), [*ways], include_in_schema=False)
    for pattern, answer in ((_PORT, ports.by_key), (ports.LINK, ports.by_link)):
        app.add_route(pattern, answer, [*ports.METHODS], include_in_schema=False)
    for pattern, socket in (
        (_PORT, ports.socket_by_key),
        (ports.LINK, ports.socket_by_link),
        (_ATTACH, ports.attach),
    ):
        app.router.routes.append(WebSocketRoute(pattern, socket))
    app.router.routes.append(
        StarletteRoute("/mcp", mcp.Endpoint(service), methods=["GET", "POST", "DELETE"])
    )
    app.add_route("/healthz", _alive, ["GET"], include_in_schema=False)
    app.add_route("/readyz", _ready, ["GET"], include_in_schema=False)
    pages.mount(app)
    app.add_exception_handler(Problem, on_problem)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(Exception, on_error)
    app.openapi = lambda: openapi.document(ROUTES)  # type: ignore[method-assign]
    app.add_middleware(Gate, app=app)
    return app


def _by_path(table: Iterable[Route]) -> dict[str, dict[str, Route]]:
    """Path → method → route: so `Allow` names all methods of a path."""
    found: dict[str, dict[str, Route]] = {}
    for route in table:
        found.setdefault(route.path, {})[route.method] = route
    return found


def _endpoint(ways: dict[str, Route]) -> Any:
    async def endpoint(request: Request) -> Response:
        route = ways["GET" if request.method == "HEAD" else request.method]
        request.state.route = route.path
        return await calls.serve(route, request)

    return endpoint


async def _alive(_: Request) -> Response:
    return JSONResponse({"status": "ok"})


async def _ready(request: Request) -> Response:
    status = await request.app.state.service.readiness()
    return JSONResponse({"status": status}, 200 if status == "ready" else 503)


async def on_problem(request: Request, error: Any) -> Response:
    return told(request, error)


def told(request: Request, problem: Problem) -> Response:
    body = problem.as_dict(getattr(request.state, "request_id", ""))
    return JSONResponse(body, problem.status, problem.headers, media_type=PROBLEM)


async def _on_http(request: Request, error: Any) -> Response:
    if error.status_code == 404 and pages.is_for_a_person(request):
        return await pages.not_found(request)
    code = _CODES.get(error.status_code, "usage")
    detail = "there is no such thing" if code == "not_found" else str(error.detail)
    return told(
        request,
        Problem(
            code, detail, status=error.status_code, headers=dict(error.headers or {})
        ),
    )


async def on_error(request: Request, error: Any) -> Response:
    request.app.state.service.report(error)
    return told(request, Problem("failed", "the service failed to answer"))


class Gate:
    """Refuses what comes under a wrong name, from a foreign page or without a key; marks every answer."""

    def __init__(self, inner: ASGIApp, app: FastAPI) -> None:
        self._inner, self._app = inner, app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._inner(scope, receive, send)
            return
        request = Request(scope) if scope["type"] == "http" else _Asked(scope)
        scope.setdefault("state", {})
        state = request.state
        state.request_id = _request_id(request.headers.get("x-request-id", ""))
        state.key, state.cookie, state.route, state.is_vouched = None, None, "", False
        state.is_proxied = False
        with tracing.request(
            request.scope.get("method", "WEBSOCKET"), request.headers
        ) as span:
            marked = _Marked(send, request, self._app.state, span)
            try:
                await self._admit(request)
            except Problem as problem:
                await refuse(problem, scope, receive, marked)
                return
            if state.key is None:
                await self._inner(scope, receive, marked)
                return
            state.key.requests += 1
            try:
                await self._inner(scope, receive, marked)
            finally:
                state.key.requests -= 1

    async def _admit(self, request: Any) -> None:
        path = request.url.path
        vouched = request.headers.get(FORWARDED)
        request.state.is_vouched = (
            vouched is not None and self._app.state.service.replicas.vouches(vouched)
        )
        if not request.state.is_vouched:
            if path not in OPEN:
                self._check_host(request)
            self._check_origin(request)
        if _is_api(path):
            request.state.key = await self._key(request)
        key = request.state.key
        if key is not None or request.state.is_vouched:
            connections.admit(request.scope)
        if key is not None and key.requests >= connections.most_of_one():
            raise Problem(
                "quota_exceeded",
                "too many open requests",
                quota="requests",
                headers={"Retry-After": "1"},
            )

    def _check_host(self, request: Any) -> None:
        if request.headers.get("host", "").lower() not in self._app.state.hosts:
            raise Problem("host_refused", "this server is not called by that name")

    def _check_origin(self, request: Any) -> None:
        origin = request.headers.get("origin")
        if origin is not None and origin.lower() not in self._app.state.origins:
            raise Problem("origin_refused", "pages of other origins may not ask")

    async def _key(self, request: Any) -> Key | None:
        service: Service = self._app.state.service
        method, path = request.scope.get("method", "GET"), request.url.path
        if (method, path) == ("POST", "/v1/login"):
            return None
        header = request.headers.get("authorization")
        if header is not None:
            scheme, _, secret = header.partition(" ")
            key = (
                await service.keys.by_secret(secret.strip())
                if scheme.lower() == "bearer"
                else None
            )
        else:
            key = await self._by_cookie(request, service, method, path)
        if key is None:
            raise Problem(
                "unauthenticated",
                "send Authorization: Bearer bj_…",
                headers={"WWW-Authenticate": "Bearer"},
            )
        return key

    async def _by_cookie(
        self, request: Any, service: Service, method: str, path: str
    ) -> Key | None:
        cookie = request.cookies.get(
            SECURE_COOKIE if self._app.state.is_secure else COOKIE
        )
        if cookie is None or _is_port(path):
            return None
        if request.scope["type"] == "websocket" and "origin" not in request.headers:
            raise Problem("origin_refused", "a page's WebSocket names its origin")
        request.state.cookie = cookie
        key = await service.keys.by_cookie(cookie)
        if (
            key is not None
            and method not in SAFE
            and request.headers.get("belljar-request") != "1"
        ):
            raise Problem(
                "forbidden", "a page's request needs the header Belljar-Request: 1"
            )
        return key


def _is_api(path: str) -> bool:
    """What programs ask, always with a key; the rest are pages."""
    return path.startswith("/v1") or path in ("/metrics", "/openapi.json", "/mcp")


def _is_port(path: str) -> bool:
    """What a sandbox serves never gets the rights of our pages."""
    parts = path.split("/")
    return len(parts) > 4 and parts[1:3] == ["v1", "sessions"] and parts[4] == "ports"


class _Asked(Request):
    """A WebSocket's request, before it is accepted."""

    def __init__(self, scope: Scope) -> None:
        super().__init__({**scope, "type": "http", "method": "GET"})
        self.scope = scope


def _request_id(given: str) -> str:
    return given if calls.ID.match(given) else secrets.token_hex(8)


async def refuse(problem: Problem, scope: Scope, receive: Receive, send: Any) -> None:
    """The problem as the answer, also to who asked for a WebSocket."""
    response = told(Request({**scope, "type": "http"}), problem)
    if scope["type"] == "websocket":
        await response(
            {
                **scope,
                "type": "websocket",
                "extensions": {"websocket.http.response": {}},
            },
            receive,
            send,
        )
        return
    await response(scope, receive, send)


class _Marked:
    """Sends the answer, with the headers that every answer has, and counts it."""

    def __init__(self, send: Send, request: Any, state: Any, span: Span) -> None:
        self._send, self._request, self._is_secure, self._span = (
            send,
            request,
            state.is_secure,
            span,
        )
        self._service: Service = state.service
        self._began, self._method = (
            time.monotonic(),
            request.scope.get("method", "WEBSOCKET"),
        )

    async def __call__(self, message: Message) -> None:
        if message["type"] in ("http.response.start", "websocket.http.response.start"):
            headers = [
                (name, value)
                for name, value in message["headers"]
                if name.lower() != b"server"
            ]
            present = {name.lower() for name, _ in headers}
            path = self._request.url.path
            more = {} if self._request.state.is_proxied else self._own(path)
            headers += [
                (n.encode(), v.encode())
                for n, v in more.items()
                if n.encode() not in present
            ]
            message = {**message, "headers": headers}
            self._count(message["status"])
        await self._send(message)

    def _own(self, path: str) -> dict[str, str]:
        """The headers of every answer but those that come out of a sandbox."""
        own = {**HEADERS, "x-request-id": self._request.state.request_id}
        if _is_api(path):
            own["cache-control"] = "no-store"
        if self._is_secure:
            own["strict-transport-security"] = "max-age=31536000"
        return own

    def _count(self, status: int) -> None:
        state, method, took = (
            self._request.state,
            self._method,
            time.monotonic() - self._began,
        )
        self._service.metrics.request(method, state.route, status, took)
        tracing.answered(
            self._span, method, state.route, status, took, state.request_id
        )
        if _requests.isEnabledFor(logging.INFO):
            key = (
                {"key": state.key.id, "tenant": state.key.tenant}
                if state.key is not None
                else {}
            )
            facts = {
                "request_id": state.request_id,
                "status": status,
                "seconds": round(took, 4),
                **key,
            }
            _requests.info("%s %s", method, state.route or "(no route)", extra=facts)


def own_origins(url: str) -> tuple[str, str]:
    """Host and origin of an address."""
    parts = urlsplit(url)
    return parts.netloc, f"{parts.scheme}://{parts.netloc}"
