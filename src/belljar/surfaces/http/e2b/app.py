"""Who asks, and the routes: one address for E2B's API and for the daemon of every sandbox.

A call to a sandbox names it in the header `E2b-Sandbox-Id`, or in the host's name (`49983-ID.domain`), and shows the
token that the client got when the sandbox was made. An address of a file may be signed with that token instead.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from belljar.surfaces import connections
from belljar.surfaces.http import audit
from belljar.surfaces.http.e2b import filesystem
from belljar.surfaces.http.e2b.connect import STATUSES, ConnectError
from belljar.surfaces.http.e2b.connect import refusal as connect_refusal
from belljar.surfaces.http.e2b.control import API, refusal
from belljar.surfaces.http.e2b.processes import PROCESSES
from belljar.surfaces.http.e2b.sandboxes import Refused, Sandboxes

if TYPE_CHECKING:
    from belljar.surfaces.http.sessions import LiveSession

Endpoint = Callable[[Request], Awaitable[Response]]
_NAMED = re.compile(r"[0-9]{1,5}-([A-Za-z0-9_-]{1,64})\.")


def make(sandboxes: Sandboxes) -> Starlette:
    inside = [
        Route(each.path, _inside(each.endpoint), methods=["POST"])
        for each in [*PROCESSES, *filesystem.FILESYSTEM]
    ]
    files = [
        Route("/files", _file(filesystem.read, "read"), methods=["GET"]),
        Route("/files", _file(filesystem.write, "write"), methods=["POST"]),
        Route("/health", _health, methods=["GET"]),
    ]
    app = Starlette(routes=[*inside, *files, *API])
    app.state.sandboxes = sandboxes
    return app


def _id(request: Request) -> str:
    given = request.headers.get("e2b-sandbox-id")
    named = _NAMED.match(request.headers.get("host", ""))
    return given or (named[1] if named else "")


def _session(request: Request) -> LiveSession:
    """The sandbox that a call means, if it may."""
    sandboxes: Sandboxes = request.app.state.sandboxes
    id = _id(request)
    if not sandboxes.is_token(id, request.headers.get("x-access-token", "")):
        raise Refused(401, "unauthorized: X-Access-Token is missing or wrong")
    return _enter(request, sandboxes.named(id))


def _enter(request: Request, session: LiveSession) -> LiveSession:
    connections.admit(request.scope)
    request.state.session, request.state.user = session, _user(request)
    name = request.app.state.sandboxes.service.keys.name_of(session.data["key"])
    audit.set_cause(audit.Cause(session.data["key"], name, ""))
    return session


def _user(request: Request) -> str:
    """Whom the client wants to be, as the name of HTTP's basic authentication."""
    scheme, _, encoded = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return request.query_params.get("username", "")
    try:
        return base64.b64decode(encoded).decode().partition(":")[0]
    except (ValueError, binascii.Error):
        return ""


def _inside(endpoint: Endpoint) -> Endpoint:
    async def route(request: Request) -> Response:
        try:
            _session(request)
        except Refused as refused:
            if refused.code == 502:
                return refusal(refused)
            code = next(
                (code for code, status in STATUSES.items() if status == refused.code),
                "internal",
            )
            return connect_refusal(ConnectError(code, refused.message))
        return await endpoint(request)

    return route


def _file(endpoint: Endpoint, operation: str) -> Endpoint:
    async def route(request: Request) -> Response:
        sandboxes: Sandboxes = request.app.state.sandboxes
        try:
            if "signature" in request.query_params:
                _enter(request, sandboxes.signed(request, operation))
            else:
                _session(request)
            return await endpoint(request)
        except Refused as refused:
            return refusal(refused)

    return route


async def _health(request: Request) -> Response:
    """Of the server, or of the sandbox that the call names."""
    if id := _id(request):
        try:
            request.app.state.sandboxes.named(id)
        except Refused as refused:
            return JSONResponse(
                {"code": refused.code, "message": refused.message}, refused.code
            )
    return Response(status_code=204)
