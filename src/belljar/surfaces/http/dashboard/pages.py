"""What every page has: the templates, the headers, the way in, and errors that are pages too."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cache
from typing import Any
from urllib.parse import quote

from fastapi import Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from jinja2 import ChainableUndefined, Environment, PackageLoader

from . import assets, present
from .visit import Refused, SignedOut, Visit


def _policy(styles: str, scripts: str = "") -> str:
    return (
        f"default-src 'none'; script-src 'self'; style-src {styles}; img-src 'self'; connect-src 'self'; "
        f"form-action 'self'; base-uri 'none'; frame-ancestors 'none'{scripts}"
    )


CSP = _policy("'self'", "; require-trusted-types-for 'script'; trusted-types stream")
TERMINAL_CSP = _policy("'self' 'unsafe-inline'")
HEADERS = {
    "Content-Security-Policy": CSP,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}

Page = Callable[[Visit], Awaitable[Response]]


@cache
def _templates() -> Environment:
    made = Environment(
        loader=PackageLoader(__package__, "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=ChainableUndefined,
    )
    made.filters.update(
        shown=present.shown,
        one_line=present.one_line,
        number=present.number,
        bytes=present.in_bytes,
        moment=present.moment,
    )
    made.globals.update(asset=assets.url)
    return made


def render(template: str, status: int = 200, /, **values: Any) -> HTMLResponse:
    return HTMLResponse(
        _templates().get_template(template).render(**values), status, HEADERS
    )


async def show(
    visit: Visit, template: str, bare_title: str, /, *, status: int = 200, **values: Any
) -> HTMLResponse:
    """A page with the navigation, its title and what is waiting."""
    me = await visit.me()
    waiting = values.get("waiting")
    if waiting is None:
        waiting = await visit.items("/approvals", state="waiting")
    title = f"({len(waiting)}) {bare_title}" if waiting else bare_title
    page = template.removesuffix(".html")
    common = {
        "page": page,
        "script": f"{page}.js",
        "here": visit.request.url.path,
        "me": me,
        "now": visit.now,
        "title": title,
        "bare_title": bare_title,
        "waiting": waiting,
        "can_decide": await visit.may("approve"),
    }
    return render(template, status, **{**common, **values, "waiting": waiting})


def page(build: Page) -> Callable[[Request], Awaitable[Response]]:
    """A page's route: whoever is not signed in goes to the sign-in first, and a refusal is a page."""

    async def answer(request: Request) -> Response:
        visit = Visit(request)
        try:
            return await build(visit)
        except SignedOut:
            return to_sign_in(request)
        except Refused as refused:
            return await problem(visit, refused)

    return answer


def to_sign_in(request: Request) -> Response:
    there = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return RedirectResponse(f"/login?next={quote(there, safe='')}", 303, HEADERS)


async def problem(visit: Visit, refused: Refused) -> Response:
    try:
        if refused.status in (404, 410):
            return await _problem(
                visit,
                404,
                "Not found",
                "There is nothing at this address, or it is not yours to see.",
            )
        return await _problem(
            visit, refused.status, "Not possible", present.one_line(refused)
        )
    except SignedOut:
        return to_sign_in(visit.request)


async def _problem(visit: Visit, status: int, heading: str, text: str) -> Response:
    # Without the time: what is another tenant's and what is not there answer with the same bytes.
    values = {
        "page": "problem",
        "now": None,
        "script": "policy.js",
        "here": "",
        "heading": heading,
        "text": text,
    }
    return await show(
        visit, "problem.html", f"{heading} · Belljar", status=status, **values
    )
