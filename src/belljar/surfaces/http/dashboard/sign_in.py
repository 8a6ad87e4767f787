"""`/login` and `/logout`: a key for a cookie, and back."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

from fastapi import Request
from fastapi.responses import RedirectResponse, Response

from .pages import HEADERS, render
from .visit import Visit

MOST_FORM = 16_384


def safe_next(wanted: str) -> str:
    """A path of this origin, else the overview."""
    plain = (
        wanted.startswith("/")
        and not wanted.startswith("//")
        and "\\" not in wanted
        and wanted.isprintable()
    )
    return wanted if plain else "/"


def sign_in_page(
    wanted: str, problem: str = "", status: int = 200, *, try_cookie: bool = False
) -> Response:
    return render(
        "login.html",
        status,
        next=safe_next(wanted),
        problem=problem,
        try_cookie=try_cookie,
    )


async def show_sign_in(request: Request) -> Response:
    """Somebody who followed a link from elsewhere may be signed in: the cookie, being Strict, did not come along."""
    from_elsewhere = request.headers.get("sec-fetch-site", "cross-site") not in (
        "none",
        "same-origin",
    )
    return sign_in_page(
        request.query_params.get("next", "/"), try_cookie=from_elsewhere
    )


def foreign(request: Request) -> bool:
    """Whether another origin sent this."""
    origin = request.headers.get("origin")
    return origin is not None and urlsplit(origin).netloc != request.headers.get("host")


async def sign_in(request: Request) -> Response:
    if foreign(request):
        return sign_in_page("/", "This form came from another site.", 403)
    form = parse_qs(
        (await _body(request)).decode("utf-8", "replace"), keep_blank_values=True
    )
    key, wanted = form.get("key", [""])[0], form.get("next", ["/"])[0]
    made = await Visit(request).ask(
        "POST",
        "/v1/login",
        {"Belljar-Request": "1", "cookie": ""},
        json={"key": key.strip()},
    )
    if made.status == 204:
        answer: Response = RedirectResponse(safe_next(wanted), 303, HEADERS)
        for cookie in made.headers.get_list("set-cookie"):
            answer.headers.append("set-cookie", cookie)
        return answer
    if made.status == 429:
        wait = made.headers.get("retry-after", "60")
        answer = sign_in_page(
            wanted, f"Too many wrong keys. Try again in {wait} s.", 429
        )
        answer.headers["Retry-After"] = wait
        return answer
    return sign_in_page(wanted, "This key is not valid.", 401)


async def _body(request: Request) -> bytes:
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > MOST_FORM:
            return b""
    return body


async def sign_out(request: Request) -> Response:
    """Ends the sign-in on the server too; it takes the header that a foreign page cannot send."""
    made = await Visit(request).ask(
        "DELETE",
        "/v1/login",
        {"Belljar-Request": request.headers.get("belljar-request", "")},
    )
    answer = Response(status_code=made.status, headers=HEADERS)
    for cookie in made.headers.get_list("set-cookie"):
        answer.headers.append("set-cookie", cookie)
    return answer
