"""A visit asks the API in the visitor's name, and in nobody else's."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response

from belljar.surfaces.http.dashboard.visit import Refused, SignedOut, Visit


def asked(status: int, body: Any = None) -> tuple[Visit, list[Request]]:
    app, seen = FastAPI(), []

    @app.get("/v1/thing")
    async def thing(request: Request) -> Response:
        seen.append(request)
        return JSONResponse(body, status)

    headers = [
        (b"host", b"belljar.example:8808"),
        (b"cookie", b"belljar=mine"),
        (b"authorization", b"Bearer other"),
        (b"origin", b"https://evil"),
    ]
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/",
        "headers": headers,
        "query_string": b"",
        "scheme": "https",
        "server": ("x", 1),
        "client": ("192.0.2.7", 5),
        "app": app,
    }
    return Visit(Request(scope)), seen


async def test_it_brings_the_cookie_the_host_and_the_address() -> None:
    visit, seen = asked(200, {"a": 1})
    assert await visit.get("/thing", x=None, y="1") == {"a": 1}
    (request,) = seen
    assert request.headers["cookie"] == "belljar=mine"
    assert request.headers["host"] == "belljar.example:8808"
    assert request.url.scheme == "https"
    assert request.client is not None
    assert request.client.host == "192.0.2.7"
    assert "authorization" not in request.headers
    assert "origin" not in request.headers
    assert request.url.query == "y=1"


async def test_refusals_are_told_apart() -> None:
    with pytest.raises(SignedOut):
        await asked(401)[0].get("/thing")
    with pytest.raises(Refused, match="no such") as refused:
        await asked(404, {"detail": "no such thing"})[0].get("/thing")
    assert refused.value.status == 404
