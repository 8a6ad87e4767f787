"""E2B's API: sandboxes, their deadlines, pauses, forks and snapshots. `API` has the routes.

What is not there answers in E2B's own shape: `{"code": 404, "message": "…"}`.
"""

from __future__ import annotations

import json
import secrets
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from belljar.errors import BelljarError
from belljar.surfaces.http import audit, routes, snapshots
from belljar.surfaces.http import models as m
from belljar.surfaces.http.calls import Call
from belljar.surfaces.http.e2b.sandboxes import (
    OURS,
    Refused,
    Sandboxes,
    moment,
    seconds_of,
)
from belljar.surfaces.http.problems import Problem, problem_of

if TYPE_CHECKING:
    from belljar.surfaces.http.keys import Key
    from belljar.surfaces.http.sessions import LiveSession

READY_SECONDS = 60.0
MOST_FORKS = 20
LARGEST_BODY = 1 << 20
PIECE = 256 << 10
ACCOUNT = "user"
SNAPSHOT = "snapshot/"
"""Names of templates begin so that are snapshots."""
Handler = Callable[[Sandboxes, "Key", Request], Awaitable[Any]]


def route(
    handler: Handler, status: int = 200
) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        sandboxes: Sandboxes = request.app.state.sandboxes
        try:
            key = await sandboxes.key(request)
            audit.set_cause(
                audit.Cause(
                    key.id, key.name, request.headers.get("x-request-id", "")[:64]
                )
            )
            answer = await handler(sandboxes, key, request)
        except Problem as problem:
            return refusal(Refused(problem.status, problem.detail), problem.headers)
        except BelljarError as error:
            told = problem_of(error)
            return refusal(Refused(told.status, told.detail))
        except Refused as refused:
            return refusal(refused)
        if isinstance(answer, Response):
            return answer
        return (
            Response(status_code=204)
            if answer is None
            else JSONResponse(answer, status)
        )

    return endpoint


def refusal(refused: Refused, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse(
        {"code": refused.code, "message": refused.message}, refused.code, headers
    )


async def _body(request: Request) -> dict[str, Any]:
    data = bytearray()
    async for piece in request.stream():
        data += piece
        if len(data) > LARGEST_BODY:
            raise Refused(413, "the body is too large")
    try:
        body = json.loads(bytes(data) or b"{}")
    except (ValueError, RecursionError):
        raise Refused(400, "the body is not JSON") from None
    if not isinstance(body, dict):
        raise Refused(400, "the body is not a JSON object")
    return body


# Making and ending them.


async def create(sandboxes: Sandboxes, key: Key, request: Request) -> Any:
    _needs_run(key)
    body = await _body(request)
    session = await _made(sandboxes, key, request, body)
    return sandboxes.created(session)


async def _made(
    sandboxes: Sandboxes, key: Key, request: Request, body: dict[str, Any]
) -> LiveSession:
    seconds = seconds_of(body)
    lifecycle = {f"{OURS}auto_pause": "1"} if body.get("autoPause") is True else {}
    resume = body.get("autoResume")
    if isinstance(resume, dict) and resume.get("enabled") is True:
        lifecycle[f"{OURS}auto_resume"] = "1"
    name = str(body.get("templateID") or "base")
    given = {
        "metadata": {
            **_texts("metadata", body.get("metadata")),
            **lifecycle,
            f"{OURS}template": name,
            f"{OURS}end": str(time.time() + seconds),
        },
        "env": _texts("envVars", body.get("envVars")),
        "lease": float(max(1, seconds)),
        "approval_seconds": 0.0,
        "network": _network(body),
        **_source(name),
    }
    try:
        wanted = m.SessionBody.model_validate(given)
    except ValidationError as error:
        raise Refused(400, str(error.errors(include_url=False)[0]["msg"])) from None
    call = Call(request, None, sandboxes.service, key, body=wanted)  # type: ignore[arg-type]
    session = await routes.new_session(call, account=ACCOUNT)
    await _started(session)
    await sandboxes.set_timeout(session, seconds)
    return session


async def _started(session: LiveSession) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while (
        session.state not in ("ready", "ended")
        and (left := deadline - time.monotonic()) > 0
    ):
        await session.changed.wait(left)
    if session.state == "ready":
        return
    error = session.data["error"] or {}
    if error.get("code") == "image_missing":
        raise Refused(404, f"template {session.data['image']!r} was not found")
    raise Refused(500, str(error.get("detail") or "the sandbox did not start in time"))


def _source(name: str) -> dict[str, Any]:
    """A template is an image, or a snapshot: `snapshot/NAME`."""
    if name.startswith(SNAPSHOT):
        return {"snapshot": name.removeprefix(SNAPSHOT).partition(":")[0]}
    return {"image": name}


def _network(body: dict[str, Any]) -> Any:
    """Off, unless the client asks for it: for all of it, or for some hosts."""
    wanted = body.get("network")
    allowed = wanted.get("allowOut") if isinstance(wanted, dict) else None
    if (
        isinstance(allowed, list)
        and allowed
        and body.get("allow_internet_access") is not True
    ):
        return {"allow": [str(host) for host in allowed]}
    denied = wanted.get("denyOut") if isinstance(wanted, dict) else None
    return (
        "full" if body.get("allow_internet_access") is True and not denied else "none"
    )


def _texts(name: str, value: Any) -> dict[str, str]:
    value = value or {}
    if not isinstance(value, dict) or not all(
        isinstance(text, str) for text in value.values()
    ):
        raise Refused(400, f"{name}: an object of texts expected")
    if wrong := [each for each in value if each.startswith(OURS)]:
        raise Refused(
            400,
            f"{name}: names that begin with {OURS} are the server's own ({wrong[0]})",
        )
    return value


async def kill(sandboxes: Sandboxes, key: Key, request: Request) -> Any:
    _needs_run(key)
    session = await sandboxes.live(key, request.path_params["id"])
    await session.end("deleted")


def _needs_run(key: Key) -> None:
    if not key.may("run"):
        raise Refused(403, "this key has no scope run")


# Looking at them.


async def list_all(sandboxes: Sandboxes, key: Key, request: Request) -> Any:
    query = request.query_params
    states = {state for state in query.get("state", "").split(",") if state} or {
        "running",
        "paused",
    }
    wanted = {
        name: unquote(text) for name, text in parse_qsl(query.get("metadata", ""))
    }
    items = [
        sandboxes.listed(shown)
        for shown in await sandboxes.service.sessions_for(key)
        if shown["state"] != "ended" and f"{OURS}template" in shown["metadata"]
    ]
    found = [
        item
        for item in items
        if item["state"] in states
        and all(item["metadata"].get(name) == text for name, text in wanted.items())
        and query.get("template", item["templateID"]) == item["templateID"]
        and query.get("startedAfter", "") <= item["startedAt"]
    ]
    found.sort(
        key=lambda item: (item["startedAt"], item["sandboxID"]),
        reverse=query.get("order") != "asc",
    )
    return _page(found, query, "sandboxID")


def _page(items: list[dict[str, Any]], query: Any, name: str) -> Response:
    """A page of a list; the token for the next one is the id where it begins."""
    limit = query.get("limit", "100")
    most = int(limit) if limit.isdigit() and 1 <= int(limit) <= 100 else 100
    ids = [item[name] for item in items]
    start = ids.index(query["nextToken"]) if query.get("nextToken") in ids else 0
    more = ids[start + most] if start + most < len(ids) else None
    return JSONResponse(
        items[start : start + most], headers={"X-Next-Token": more} if more else None
    )


async def info(sandboxes: Sandboxes, key: Key, request: Request) -> Any:
    return sandboxes.detail(await sandboxes.live(key, request.path_params["id"]))


async def metrics(sandboxes: Sandboxes, key: Key, request: Request) -> Any:
    session = await sandboxes.live(key, request.path_params["id"])
    used = (
        session.box.usage()
        if session.box is not None and session.state == "ready"
        else {}
    )
    lately = session.vitals.usage or {}
    limits, now = session.data["limits"], time.time()
    return [
        {
            "timestamp": moment(now),
            "timestampUnix": int(now),
            "cpuCount": max(1, round(limits["cpus"] or 1)),
            "cpuUsedPct": round(100 * lately.get("cpu", 0.0), 1),
            "memUsed": used.get("memory", 0),
            "memTotal": limits["memory"] or 0,
            "memCache": 0,
            "diskUsed": 0,
            "diskTotal": limits["disk"] or limits["home"] or 0,
        }
    ]


async def logs(sandboxes: Sandboxes, key: Key, request: Request) -> Any:
    await sandboxes.live(key, request.path_params["id"])
    return {"logs": [], "logEntries": []}


# Changing them.


async def timeout(sandboxes: Sandboxes, key: Key, request: Request) -> Any:
    _needs_run(key)
    session = await sandboxes.live(key, request.path_params["id"])
    await sandboxes.set_timeout(session, seconds_of(await _body(request)))


async def refresh(sandboxes: Sandboxes, key: Key, request: Request) -> Any:
    _needs_run(key)
    session = await sandboxes.live(key, request.path_params["id"])
    await sandboxes.set_timeout(
        session, seconds_of(await _body(request), "duration", 60), only_longer=True
    )


async def pause(sandboxes: Sandboxes, key: Key, request: Request) -> Any:
    _needs_run(key)
    await sandboxes.pause(await sandboxes.live(key, request.path_params["id"]))


async def connect(sandboxes: Sandboxes, key: Key, request: Request) -> Any:
    _needs_run(key)
    session = await sandboxes.live(key, request.path_params["id"])
    await sandboxes.resume(session, seconds_of(await _body(request)))
    return sandboxes.created(session)


async def fork(sandboxes: Sandboxes, key: Key, request: Request) -> Any:
    """Copies of a sandbox's files. Processes are not copied."""
    _needs_run(key)
    origin = await sandboxes.live(key, request.path_params["id"])
    body = await _body(request)
    count = body.get("count", 1)
    if type(count) is not int or not 1 <= count <= MOST_FORKS:
        raise Refused(400, f"count: 1 to {MOST_FORKS} expected")
    results = []
    for _ in range(count):
        try:
            results.append(
                {
                    "sandbox": sandboxes.created(
                        await _forked(sandboxes, key, request, origin, body)
                    )
                }
            )
        except (Refused, Problem) as error:
            code, text = (
                (error.code, error.message)
                if isinstance(error, Refused)
                else (error.status, error.detail)
            )
            results.append({"error": {"code": code, "message": text}})
    return results


async def _forked(
    sandboxes: Sandboxes,
    key: Key,
    request: Request,
    origin: LiveSession,
    body: dict[str, Any],
) -> LiveSession:
    shown = sandboxes.detail(origin)
    made = await _made(
        sandboxes,
        key,
        request,
        {
            "templateID": shown["templateID"],
            "metadata": shown["metadata"],
            "envVars": origin.data["env"],
            "timeout": body.get("timeout"),
            "autoPause": shown["lifecycle"]["onTimeout"] == "pause",
        },
    )
    source, target = await origin.usable(), await made.usable()
    for root in (f"/home/{ACCOUNT}", "/tmp", "/workspace"):
        with tempfile.TemporaryFile() as archive:
            await source.files.pack(root, archive)
            archive.seek(0)
            await target.files.unpack(iter(partial(archive.read, PIECE), b""), root)
    return made


async def snapshot(sandboxes: Sandboxes, key: Key, request: Request) -> Any:
    """Keep its files. Processes and memory are not kept, also where a client asks for them."""
    _needs_run(key)
    session = await sandboxes.live(key, request.path_params["id"])
    name = (await _body(request)).get("name")
    try:
        body = m.SnapshotBody(session=session.id, name=name or secrets.token_hex(6))
    except ValidationError:
        raise Refused(
            400, "name: lower-case letters, digits, dots and dashes expected"
        ) from None
    await snapshots.keep(sandboxes.service, key, session, body.name, replace=True)
    return _snapshot(body.name)


def _snapshot(name: str) -> dict[str, Any]:
    return {
        "snapshotID": f"{SNAPSHOT}{name}:default",
        "names": [f"{SNAPSHOT}{name}:default"],
    }


async def list_snapshots(sandboxes: Sandboxes, key: Key, request: Request) -> Any:
    query = request.query_params
    rows = sorted(
        await snapshots.visible(sandboxes.service, key),
        key=lambda row: -float(row["created"]),
    )
    found = [
        _snapshot(row["name"])
        for row in rows
        if query.get("sandboxID") in (None, row["data"]["session"])
        and query.get("name") in (None, row["name"])
    ]
    return _page(found, query, "snapshotID")


async def remove_template(sandboxes: Sandboxes, key: Key, request: Request) -> Any:
    _needs_run(key)
    name = _source(unquote(request.path_params["name"])).get("snapshot")
    if name is None:
        raise Refused(404, "there is no such snapshot")
    await snapshots.drop(sandboxes.service, key, name)


async def network(sandboxes: Sandboxes, key: Key, request: Request) -> Any:
    await sandboxes.live(key, request.path_params["id"])
    raise Refused(
        400,
        "the network of a running sandbox cannot be changed here; say what is allowed when it is made",
    )


async def unknown(sandboxes: Sandboxes, key: Key, request: Request) -> Any:
    raise Refused(404, f"this server has no {request.url.path}")


_ONE = "/sandboxes/{id}"
API = [
    Route("/sandboxes", route(create, 201), methods=["POST"]),
    Route("/v2/sandboxes", route(create, 201), methods=["POST"]),
    Route("/sandboxes", route(list_all), methods=["GET"]),
    Route("/v2/sandboxes", route(list_all), methods=["GET"]),
    Route(_ONE, route(info), methods=["GET"]),
    Route(_ONE, route(kill), methods=["DELETE"]),
    Route(f"{_ONE}/metrics", route(metrics), methods=["GET"]),
    Route(f"{_ONE}/logs", route(logs), methods=["GET"]),
    Route(f"/v2{_ONE}/logs", route(logs), methods=["GET"]),
    Route(f"{_ONE}/timeout", route(timeout), methods=["POST"]),
    Route(f"{_ONE}/refreshes", route(refresh), methods=["POST"]),
    Route(f"{_ONE}/pause", route(pause), methods=["POST"]),
    Route(f"{_ONE}/resume", route(connect, 201), methods=["POST"]),
    Route(f"{_ONE}/connect", route(connect), methods=["POST"]),
    Route(f"/v2{_ONE}/connect", route(connect), methods=["POST"]),
    Route(f"{_ONE}/snapshots", route(snapshot, 201), methods=["POST"]),
    Route("/snapshots", route(list_snapshots), methods=["GET"]),
    Route("/templates/{name:path}", route(remove_template), methods=["DELETE"]),
    Route(f"{_ONE}/fork", route(fork, 201), methods=["POST"]),
    Route(f"{_ONE}/network", route(network), methods=["PUT"]),
    Route(
        "/{rest:path}",
        route(unknown),
        methods=["GET", "POST", "PUT", "PATCH", "DELETE"],
    ),
]
