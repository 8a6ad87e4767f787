"""The dashboard's addresses. `mount(app)` adds them to the service's application."""

from __future__ import annotations

from fastapi import FastAPI, Request
from fastapi.responses import Response

from . import assets
from .books import audit_page, keys_page, policy_page, usage_page
from .overview import overview
from .pages import HEADERS, Page, page, problem
from .session import VIEWS, session_page
from .sign_in import show_sign_in, sign_in, sign_out
from .visit import Refused, SignedOut, Visit

_STILL = {name: value for name, value in HEADERS.items() if name != "Cache-Control"}


def mount(app: FastAPI) -> None:
    def add(path: str, build: Page) -> None:
        app.add_api_route(path, page(build), methods=["GET"], include_in_schema=False)

    add("/", overview)
    for path, build in (
        ("/audit", audit_page),
        ("/policy", policy_page),
        ("/usage", usage_page),
        ("/keys", keys_page),
    ):
        add(path, build)
    add("/sessions/{id}", _session)
    add("/sessions/{id}/commands/{command}", _session)
    add("/sessions/{id}/{view}", _session)
    for path, answer, method in (
        ("/login", show_sign_in, "GET"),
        ("/login", sign_in, "POST"),
        ("/logout", sign_out, "POST"),
        ("/favicon.svg", _favicon, "GET"),
        ("/static/{name}", _static, "GET"),
    ):
        app.add_api_route(path, answer, methods=[method], include_in_schema=False)


async def _session(visit: Visit) -> Response:
    given = visit.request.path_params
    view = given.get("view", "commands")
    if view not in ("commands", *VIEWS):
        raise Refused(404, {})
    return await session_page(visit, given["id"], view, given.get("command"))


async def _favicon(request: Request) -> Response:
    asked = request.query_params
    waiting = (
        int(asked["waiting"])
        if asked.get("waiting", "").isdecimal() and len(asked["waiting"]) < 7
        else 0
    )
    return Response(
        assets.favicon(waiting, "lost" in asked),
        media_type="image/svg+xml",
        headers={**HEADERS, "Cache-Control": "max-age=3600"},
    )


async def _static(request: Request) -> Response:
    asset = assets.all_assets().get(request.path_params["name"])
    if asset is None:
        return await not_found(request)
    return Response(
        asset.body,
        media_type=asset.type,
        headers={**_STILL, "Cache-Control": assets.FOREVER},
    )


def is_for_a_person(request: Request) -> bool:
    """Whether a browser asked for a page."""
    return not request.url.path.startswith(
        "/v1"
    ) and "text/html" in request.headers.get("accept", "")


async def not_found(request: Request) -> Response:
    """What an unknown address answers to a browser."""
    visit = Visit(request)
    try:
        return await problem(visit, Refused(404, {}))
    except SignedOut:
        return Response(status_code=404, headers=HEADERS)
