"""How a request becomes a call, in the order that the contract sets:

    key → scope → existence → query and body → idempotency → the route's own work (quota …)

A route is a row of a table (`Route`): the types of its query, body and answer, the scope it needs, and one function
that takes a `Call` and gives an answer. `/openapi.json` is made from the same rows.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from belljar.errors import BelljarError
from belljar.surfaces.http import audit, storage
from belljar.surfaces.http.models import Body, NoQuery, Query
from belljar.surfaces.http.problems import Elsewhere, Problem, body_of, problem_of

if TYPE_CHECKING:
    from belljar.surfaces.http.commands import Command
    from belljar.surfaces.http.keys import Key
    from belljar.surfaces.http.service import Service
    from belljar.surfaces.http.sessions import LiveSession

LARGEST_BODY = 1 << 20
LARGEST_INPUT = 16 << 20  # of a POST whose body is not JSON
LONGEST_WAIT = 300.0
ID = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
_PREFER = re.compile(
    r"(?:^|[,;])\s*wait\s*=\s*\"?(\d{1,300}(?:\.\d+)?)\"?\s*(?:$|[,;])"
)
_IDEMPOTENCY = re.compile(r"[\x21-\x7e]{1,255}\Z")

Handler = Callable[["Call"], Awaitable[Any]]


@dataclass(frozen=True)
class Route:
    method: str
    path: str
    handler: Handler
    scope: str | None = "read"
    """None: any key, and `""`: no key."""
    query: type[Query] = NoQuery
    body: type[Body] | None = None
    raw: str = ""
    """The media type of a body that is not JSON."""
    answer: Any = None
    status: int = 200
    media: str = "application/json"
    streams: bool = False
    """It can answer as a stream of events."""
    finds: bool = True
    """Whether the session (and command) that the path names must be there."""

    @property
    def summary(self) -> str:
        return (self.handler.__doc__ or "").splitlines()[0].rstrip(".")


@dataclass
class Call:
    """One request to one route."""

    request: Request
    route: Route
    service: Service
    key: Key
    query: Any = None
    body: Any = None
    session: LiveSession = None  # type: ignore[assignment]
    command: Command = None  # type: ignore[assignment]
    claim: Claim | None = None
    more: dict[str, Any] = field(default_factory=dict)
    _content: bytes | None = None

    @property
    def ids(self) -> dict[str, str]:
        return self.request.path_params

    def needs(self, scope: str) -> None:
        if not self.key.may(scope):
            raise Problem("forbidden", f"this key has no scope {scope}", scope=scope)

    async def content(self) -> bytes:
        """The whole body of a POST that is not JSON."""
        if self._content is None:
            self._content = await _whole(self.request, LARGEST_INPUT, "one request")
        return self._content

    @property
    def wants_stream(self) -> bool:
        return (
            accepts(self.request, "text/event-stream", "application/json")
            == "text/event-stream"
        )

    def wait(self, usual: float) -> float:
        """How long the client prefers to wait."""
        found = _PREFER.search(self.request.headers.get("prefer", ""))
        return min(float(found[1]), LONGEST_WAIT) if found else usual

    @property
    def replayed(self) -> str:
        """The id of the object that an earlier request with this Idempotency-Key made."""
        return self.claim.made if self.claim is not None else ""

    def claims(self, id: str) -> tuple[storage.Statement, ...]:
        """To be written together with the object `id` that this request makes."""
        return self.claim.statements(id) if self.claim is not None else ()


def accepts(request: Request, *offered: str) -> str | None:
    """The offered media type that the client wants most; the last one if it does not say, None if it wants none."""
    header = request.headers.get("accept")
    if not header:
        return offered[-1]
    wanted = [part.strip() for part in header.split(",")]
    best = max((_liked(wanted, media), at, media) for at, media in enumerate(offered))
    return best[2] if best[0] > (0.0, False) else None


def _liked(wanted: list[str], media: str) -> tuple[float, bool]:
    """How much a client wants a media type, and whether it names it."""
    return max(
        (_quality(part, media), part.split(";")[0].strip().lower() == media)
        for part in wanted
    )


def _quality(part: str, media: str) -> float:
    name, *parameters = (piece.strip() for piece in part.split(";"))
    if name.lower() not in (media, media.split("/")[0] + "/*", "*/*"):
        return 0.0
    for parameter in parameters:
        key, _, value = parameter.partition("=")
        if key.strip() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0


async def serve(route: Route, request: Request) -> Response:
    """Answer one request; a Problem for everything that is wrong with it."""
    service: Service = request.app.state.service
    key: Key = request.state.key
    call = Call(request, route, service, key)
    if route.scope:
        call.needs(route.scope)
    try:
        await _find(call)
    except Elsewhere as elsewhere:
        return await service.replicas.passed(request, elsewhere.owner)
    call.query = _query(route, request)
    if route.body is not None:
        call.body = await _json(route.body, request)
    elif route.raw:
        _check_media(request, route.raw)
    if accepts(request, *_offered(route)) is None and not route.streams:
        raise Problem("not_acceptable", f"this answers {route.media}")
    if route.streams and accepts(request, "text/event-stream", route.media) is None:
        raise Problem(
            "not_acceptable", f"this answers {route.media} or text/event-stream"
        )
    try:
        return await _answered(call)
    except Elsewhere as elsewhere:  # what the body names is another server's
        content = (
            call.body.model_dump_json(by_alias=True, exclude_unset=True)
            if call.body is not None
            else ""
        )
        return await service.replicas.passed(request, elsewhere.owner, content.encode())


def _offered(route: Route) -> tuple[str, ...]:
    also = ("application/x-ndjson",) if route.path == "/v1/audit" else ()
    return (*also, "application/problem+json", route.media)


async def _find(call: Call) -> None:
    ids = call.ids
    for name, id in ids.items():
        if name in ("sid", "cid", "id", "aid", "kid") and not ID.match(id):
            raise Problem(
                "session_not_found" if name == "sid" else "not_found",
                "there is no such thing",
            )
    if "sid" in ids:
        call.session = await call.service.live_for(call.key, ids["sid"])
    if "cid" in ids and call.route.finds:
        call.command = await call.service.command_for(
            call.key, call.session, ids["cid"]
        )


def _query(route: Route, request: Request) -> Query:
    given: dict[str, Any] = {}
    for name in request.query_params:
        values = request.query_params.getlist(name)
        field = route.query.model_fields.get(name)
        if (
            field is None
            and name.startswith("metadata.")
            and route.path == "/v1/sessions"
        ):
            continue
        if field is not None and str(field.annotation).startswith("list"):
            given[name] = values
        elif len(values) > 1:
            raise Problem("usage", f"{name}: given more than once", field=name)
        else:
            given[name] = values[0]
    try:
        return route.query.model_validate(given)
    except ValidationError as error:
        raise _wrong(error) from None


def _wrong(error: ValidationError) -> Problem:
    """400, naming the field."""
    first = error.errors(include_url=False, include_context=False)[0]
    place = [
        str(part)
        for part in first["loc"]
        if not str(part)[:1].isupper() and "[" not in str(part)
    ]
    name = place[0] if place else ""
    told = (
        "there is no such field" if first["type"] == "extra_forbidden" else first["msg"]
    )
    return Problem("usage", f"{'.'.join(place)}: {told}" if place else told, field=name)


def _check_media(request: Request, *wanted: str) -> None:
    media = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if "*/*" not in wanted and media not in wanted:
        raise Problem("unsupported_media_type", f"send {wanted[0]}")


async def _json(model: type[Body], request: Request) -> Body:
    data = await _whole(request, LARGEST_BODY, "a body of JSON")
    if data or request.headers.get("content-type"):
        _check_media(request, "application/json")
    try:
        return model.model_validate_json(data or b"{}")
    except ValidationError as error:
        raise _wrong(error) from None


async def _whole(request: Request, most: int, what: str) -> bytes:
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length) > most:
        raise Problem("too_large", f"{what} may have {most} bytes")
    data = bytearray()
    async for part in body_of(request):
        data += part
        if len(data) > most:
            raise Problem("too_large", f"{what} may have {most} bytes")
    return bytes(data)


# Idempotency.


class Claim:
    """An Idempotency-Key that this request holds.

    Its row is written together with what the request makes, so a request that is repeated after a crash finds either
    both or neither. Requests that make nothing are remembered by their answer.
    """

    def __init__(self, id: str, body: str) -> None:
        self.id, self.body = id, body
        self.made = ""
        self.answer: dict[str, Any] | None = None
        self.is_written = False

    def statements(self, made: str) -> tuple[storage.Statement, ...]:
        self.is_written = True
        values = {
            "id": self.id,
            "body": self.body,
            "created": time.time(),
            "data": {"made": made, "answer": None},
        }
        return (sa.insert(storage.answers).values(**values),)


_open_claims: dict[str, asyncio.Event] = {}


async def _answered(call: Call) -> Response:
    given = call.request.headers.get("idempotency-key")
    if call.route.method != "POST" or given is None or call.route.scope == "":
        return await _handled(call)
    if not _IDEMPOTENCY.match(given):
        raise Problem(
            "usage",
            "Idempotency-Key: 1 to 255 visible ASCII characters",
            field="Idempotency-Key",
        )
    id = hashlib.sha256(
        "\n".join((call.key.id, call.request.url.path, given)).encode()
    ).hexdigest()
    while id in _open_claims:
        await _open_claims[id].wait()
    done = _open_claims[id] = asyncio.Event()
    try:
        return await _claimed(call, id)
    finally:
        _open_claims.pop(id, None)
        done.set()


async def _claimed(call: Call, id: str) -> Response:
    content = (
        call.body.model_dump_json(by_alias=True).encode()
        if call.body is not None
        else await call.content()
    )
    asked = f"{call.request.url.query}\n".encode()
    digest = hashlib.sha256(asked + content).hexdigest()
    call.claim = claim = Claim(id, digest)
    row = await call.service.store.get(storage.answers, id)
    if row is not None:
        if row["body"] != digest:
            raise Problem(
                "idempotency_mismatch",
                "this Idempotency-Key was used with another request",
            )
        claim.made = row["data"]["made"]
        if (stored := row["data"]["answer"]) is not None:
            response = _again(stored)
        else:
            response = await _handled(call)
        response.headers["Idempotency-Replayed"] = "true"
        return response
    try:
        response = await _handled(call)
    except storage.IntegrityError:
        if await call.service.store.get(storage.answers, id) is None:
            raise
        return await _claimed(call, id)  # another server was faster
    except BaseException:
        if claim.is_written:
            await call.service.store.delete(storage.answers, id)
        raise
    if not claim.is_written:
        body = (
            json.loads(bytes(response.body)) if getattr(response, "body", b"") else None
        )
        answer = {"made": "", "answer": {"status": response.status_code, "body": body}}
        await call.service.store.insert(
            storage.answers, id=id, body=digest, created=time.time(), data=answer
        )
    return response


def _again(stored: dict[str, Any]) -> Response:
    """The answer that was given before."""
    if stored["body"] is None:
        return Response(status_code=stored["status"])
    return JSONResponse(stored["body"], stored["status"])


async def _handled(call: Call) -> Response:
    known = (call.key.id, call.key.name) if call.route.scope != "" else ("", "")
    audit.set_cause(audit.Cause(*known, call.request.state.request_id))
    try:
        answer = await call.route.handler(call)
    except BelljarError as error:
        raise problem_of(error) from error
    if isinstance(answer, Response):
        return answer
    if answer is None:
        return Response(status_code=204)
    return JSONResponse(answer, call.route.status)
