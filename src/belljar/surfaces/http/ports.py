"""Ports of a sandbox and terminals: HTTP and WebSockets to what listens inside, and a command's streams as frames.

What a sandbox serves is hostile to whoever opens it in a browser, so the cookie never counts here, headers that would
give its pages rights on our origin are taken away, and they run as if from an origin of their own. Only behind a link
that really has its own (preview.py) a web app keeps its cookies and its own rules.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import time
from collections.abc import AsyncIterator, Awaitable
from typing import TYPE_CHECKING, Any, TypeVar

import httpx
from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.websockets import WebSocket, WebSocketDisconnect

from belljar.errors import BelljarError
from belljar.surfaces import connections
from belljar.surfaces.http import models as m
from belljar.surfaces.http.calls import Call, Route
from belljar.surfaces.http.problems import Elsewhere, Problem, body_of, problem_of
from belljar.surfaces.http.replicas import FORWARDED
from belljar.surfaces.http.streams import Open

if TYPE_CHECKING:
    from belljar.surfaces.http.commands import Command
    from belljar.surfaces.http.keys import Key
    from belljar.surfaces.http.service import Service
    from belljar.surfaces.http.sessions import LiveSession

T = TypeVar("T")
SANDBOXED = "sandbox allow-scripts allow-forms"
_HOP_BY_HOP = frozenset(
    (
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "proxy-connection",
    )
)
_OURS = frozenset(("authorization", "cookie", "host", "content-length"))
_RIGHTS = frozenset(
    (
        "set-cookie",
        "clear-site-data",
        "service-worker-allowed",
        "content-security-policy",
    )
)
CONNECT_SECONDS = 10.0
PIECE = 64 << 10
REVOKED, MALFORMED = 4401, 4400
LINK = "/p/{token}/{path:path}"
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


# HTTP.


async def by_key(request: Request) -> Response:
    """`/v1/sessions/{sid}/ports/{port}/{path}`, with a key."""
    service, key = request.app.state.service, request.state.key
    if not key.may("run"):
        raise Problem("forbidden", "this key has no scope run", scope="run")
    try:
        session = await service.live_for(key, request.path_params["sid"])
    except Elsewhere as elsewhere:
        answer: Response = await service.replicas.passed(request, elsewhere.owner)
        request.state.is_proxied = True  # by the other server, which has marked it
        return answer
    return await _passed(request, session, _port(request.path_params["port"]))


async def by_link(request: Request) -> Response:
    """`/p/{token}/{path}`, without a key."""
    try:
        session, port = await linked(request)
    except Elsewhere as elsewhere:
        answer: Response = await request.app.state.service.replicas.passed(
            request, elsewhere.owner
        )
        request.state.is_proxied = True
        return answer
    return await _passed(
        request, session, port, is_own=request.app.state.previews.is_own
    )


async def linked(request: Request | WebSocket) -> tuple[LiveSession, int]:
    """Session and port of a link, at the address where links are served."""
    service: Service = request.app.state.service
    if not request.app.state.shows_links and not request.state.is_vouched:
        raise Problem("not_found", "there is no such link here")
    found = await service.links.find(request.path_params["token"])
    session = service.live(found[0]) if found is not None else None
    key = service.keys.get(found[2]) if found is not None else None
    if (
        found is not None
        and session is None
        and (owner := await service.owner_elsewhere(found[0]))
    ):
        raise Elsewhere(owner)
    if (
        found is None
        or session is None
        or session.is_over
        or key is None
        or key.is_over
    ):
        raise Problem("not_found", "there is no such link")
    connections.admit(request.scope)
    return session, found[1]


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:6]) <= 65535:
        raise Problem("usage", "port: a number from 1 to 65535", field="port")
    return int(text)


async def _base(session: LiveSession, port: int) -> str:
    box = await session.usable()
    try:
        return await box.forward(port)
    except BelljarError as error:
        raise problem_of(error) from error


def _sent(headers: Any, is_own: bool) -> list[tuple[str, str]]:
    """The headers that go on into the sandbox. Cookies do where they are the sandbox's own."""
    named = {name.strip().lower() for name in headers.get("connection", "").split(",")}
    dropped = (_HOP_BY_HOP | _OURS | named) - ({"cookie"} if is_own else set())
    return [
        (name, value)
        for name, value in headers.items()
        if name.lower() not in dropped
        and not name.lower().startswith(("belljar-", "sec-websocket-"))
    ]


def _received(headers: httpx.Headers) -> list[tuple[bytes, bytes]]:
    """The headers that come back out."""
    dropped = _HOP_BY_HOP | _RIGHTS
    kept = [
        (name.lower(), value)
        for name, value in headers.raw
        if name.decode("latin-1").lower() not in dropped
        and not name.lower().startswith(b"access-control-")
    ]
    return [*kept, (b"content-security-policy", SANDBOXED.encode())]


def _received_as_own(headers: httpx.Headers, port: int) -> list[tuple[bytes, bytes]]:
    """The headers that come back to an origin of its own: a redirect stays there, a cookie is for this host alone."""
    found = []
    for name, value in headers.raw:
        key = name.decode("latin-1").lower()
        if key == "location":
            value = (
                re.sub(
                    rb"\Ahttps?://(127\.0\.0\.1|localhost):%d(?=/|\Z)" % port,
                    b"",
                    value,
                )
                or b"/"
            )
        elif key == "set-cookie":
            value = re.sub(rb"(?i);\s*domain=[^;]*", b"", value)
        if key not in _HOP_BY_HOP:
            found.append((name.lower(), value))
    return found


async def _passed(
    request: Request, session: LiveSession, port: int, *, is_own: bool = False
) -> Response:
    base = await _base(session, port)
    path = (
        request.scope["raw_path"]
        .decode("latin-1")
        .split("/", 6 if request.url.path.startswith("/v1") else 3)[-1]
    )
    query = request.scope["query_string"].decode("latin-1")
    url = httpx.URL(f"{base}/{path.split('?')[0]}{'?' + query if query else ''}")
    # `base` is plain HTTP on this machine; reading the machine's certificates would cost more than the request.
    client = httpx.AsyncClient(
        timeout=httpx.Timeout(None, connect=CONNECT_SECONDS),
        trust_env=False,
        verify=False,
    )
    headers = [("host", f"127.0.0.1:{port}"), *_sent(request.headers, is_own)]
    if (length := request.headers.get("content-length")) is not None:
        headers.append(("content-length", length))
    has_body = length is not None or "transfer-encoding" in request.headers
    content = body_of(request) if has_body else None
    try:
        asked = client.build_request(
            request.method, url, headers=headers, content=content
        )
        answer = await client.send(asked, stream=True)
    except (httpx.TransportError, httpx.InvalidURL):
        await client.aclose()
        raise Problem("port_closed", f"nothing answers on port {port}") from None
    request.state.is_proxied = True
    return _Proxied(
        answer,
        client,
        _received_as_own(answer.headers, port) if is_own else _received(answer.headers),
    )


class _Proxied(StreamingResponse):
    """An answer from inside, with these headers of its own."""

    def __init__(
        self,
        answer: httpx.Response,
        client: httpx.AsyncClient,
        headers: list[tuple[bytes, bytes]],
    ) -> None:
        super().__init__(self._body(answer, client), answer.status_code)
        self.raw_headers = headers

    @staticmethod
    async def _body(
        answer: httpx.Response, client: httpx.AsyncClient
    ) -> AsyncIterator[bytes]:
        try:
            async for part in answer.aiter_raw(PIECE):
                yield part
        except httpx.TransportError:
            return
        finally:
            await answer.aclose()
            await client.aclose()


async def make_link(call: Call) -> Any:
    """A link to a port, for who has no key."""
    if call.replayed:
        raise Problem("not_found", "a link is shown only once")
    session, body = call.session, call.body
    await session.usable()
    expires = time.time() + body.seconds
    if call.key.expires is not None:
        expires = min(expires, call.key.expires)
    token = await call.service.links.make(session.id, body.port, call.key.id, expires)
    return {"url": call.request.app.state.previews.url(token), "expires": expires}


# WebSockets.


async def refuse(socket: WebSocket, problem: Problem) -> None:
    """An HTTP problem before the upgrade."""
    body = json.dumps(problem.as_dict(socket.state.request_id)).encode()
    response = Response(
        body, problem.status, problem.headers, media_type="application/problem+json"
    )
    await socket.send_denial_response(response)


async def socket_by_key(socket: WebSocket) -> None:
    if (base := await _unless_refused(socket, _base_by_key(socket))) is not None:
        await _bridge(socket, base, 6, [])


async def _base_by_key(socket: WebSocket) -> str:
    session = await socket.app.state.service.live_for(
        _running_key(socket), socket.path_params["sid"]
    )
    return await _base(session, _port(socket.path_params["port"]))


def _running_key(socket: WebSocket) -> Key:
    key: Key = socket.state.key
    if not key.may("run"):
        raise Problem("forbidden", "this key has no scope run", scope="run")
    return key


async def socket_by_link(socket: WebSocket) -> None:
    if (base := await _unless_refused(socket, _base_by_link(socket))) is not None:
        cookie = (
            socket.headers.get("cookie") if socket.app.state.previews.is_own else None
        )
        await _bridge(socket, base, 3, [("cookie", cookie)] if cookie else [])


async def _base_by_link(socket: WebSocket) -> str:
    session, port = await linked(socket)
    return await _base(session, port)


async def _unless_refused(socket: WebSocket, found: Awaitable[T]) -> T | None:
    """What a socket is for; None if it was refused, or if another server has the session and took the socket over."""
    try:
        return await found
    except Elsewhere as elsewhere:
        await _elsewhere(socket, elsewhere.owner)
    except Problem as problem:
        await refuse(socket, problem)
    return None


async def _bridge(
    socket: WebSocket, base: str, parts: int, headers: list[tuple[str, str]]
) -> None:
    path = (
        socket.scope["raw_path"].decode("latin-1").split("/", parts)[-1].split("?")[0]
    )
    query = socket.scope["query_string"].decode("latin-1")
    await _joined(
        socket,
        f"{base.replace('http', 'ws', 1)}/{path}{'?' + query if query else ''}",
        headers,
    )


async def _elsewhere(socket: WebSocket, owner: str) -> None:
    """The WebSocket of the server that has the session."""
    replicas, query = (
        socket.app.state.service.replicas,
        socket.scope["query_string"].decode("latin-1"),
    )
    path = socket.scope["raw_path"].decode("latin-1").split("?")[0]
    sent = [
        (name, value)
        for name, value in socket.headers.items()
        if name in ("authorization", "cookie")
    ]
    try:
        url = replicas.socket_url(owner, f"{path}{'?' + query if query else ''}")
    except Problem as problem:
        await refuse(socket, problem)
        return
    await _joined(socket, url, [*sent, (FORWARDED, replicas.secret)])


async def _joined(socket: WebSocket, url: str, headers: list[tuple[str, str]]) -> None:
    import websockets

    wanted = socket.scope.get("subprotocols") or None
    try:
        inside = await websockets.connect(
            url,
            subprotocols=wanted,
            max_size=None,
            open_timeout=CONNECT_SECONDS,
            proxy=None,
            compression=None,
            additional_headers=headers,
        )
    except (OSError, websockets.WebSocketException, TimeoutError):
        await refuse(
            socket, Problem("port_closed", "nothing answers a WebSocket there")
        )
        return
    async with inside:
        await socket.accept(inside.subprotocol)
        await _either(_out(socket, inside), _in(socket, inside))


async def _out(socket: WebSocket, inside: Any) -> None:
    import websockets

    try:
        async for message in inside:
            await (
                socket.send_text(message)
                if isinstance(message, str)
                else socket.send_bytes(message)
            )
        code = inside.close_code or 1000
    except websockets.ConnectionClosed as closed:
        code = closed.rcvd.code if closed.rcvd else 1011
    with contextlib.suppress(RuntimeError):
        await socket.close(
            code if 1000 <= code < 5000 and code not in (1005, 1006, 1015) else 1000
        )


async def _in(socket: WebSocket, inside: Any) -> None:
    while (message := await socket.receive())["type"] == "websocket.receive":
        text = message.get("text")
        await inside.send(text if text is not None else message["bytes"])


async def _either(*works: Any) -> None:
    """Until one of them is done; the others end."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


# A command's streams as frames.


async def attach(socket: WebSocket) -> None:
    """`…/commands/{cid}/attach?offset=0`: output as binary frames, input likewise; closing kills nothing."""
    if (found := await _unless_refused(socket, _attached(socket))) is None:
        return
    command, offset, place = found
    try:
        await socket.accept()
        await _either(
            _shown(socket, command, offset),
            _typed(socket, command),
            _revoked(socket, socket.state.key, socket.app.state.service),
        )
    finally:
        place.close()


async def _attached(socket: WebSocket) -> tuple[Command, int, Open]:
    service, key = socket.app.state.service, _running_key(socket)
    session = await service.live_for(key, socket.path_params["sid"])
    command = await service.command_for(key, session, socket.path_params["cid"])
    for name in socket.query_params:
        if name != "offset":
            raise Problem("usage", f"{name}: there is no such field", field=name)
    given = socket.query_params.get("offset", "0")
    if (
        not given.isascii()
        or not given.isdigit()
        or len(given) > 18
        or int(given) > command.log.end
    ):
        raise Problem(
            "usage", "offset: beyond what the command has printed", field="offset"
        )
    return command, int(given), Open(service, key, command).take()


async def _shown(socket: WebSocket, command: Command, position: int) -> None:
    with contextlib.suppress(WebSocketDisconnect, RuntimeError):
        while True:
            over = command.is_over
            if position < command.log.start:
                dropped = {"offset": position, "bytes": command.log.start - position}
                await socket.send_text(json.dumps({"dropped": dropped}))
                position = command.log.start
            for piece in await to_thread.run_sync(command.log.read, position, PIECE):
                await socket.send_bytes(piece.data)
                position = piece.end
                command.was_sent(position)
            if over and position >= command.log.end:
                await socket.send_text(json.dumps({"ended": command.as_dict()}))
                await socket.close(1000)
                return
            if position >= command.log.end:
                await command.changed.wait()


async def _typed(socket: WebSocket, command: Command) -> None:
    while (message := await socket.receive())["type"] == "websocket.receive":
        try:
            if message.get("bytes") is not None:
                await command.write(message["bytes"], close=False)
            else:
                await _control(command, json.loads(message["text"]))
        except (ValueError, TypeError, KeyError, RecursionError):
            await socket.close(MALFORMED)
            return
        except (Problem, BelljarError):
            continue  # the command has no input any more; its end is told by its own frame


async def _control(command: Command, asked: Any) -> None:
    if not isinstance(asked, dict) or len(asked) != 1:
        raise ValueError("one member")
    if asked.get("close_stdin") is True:
        await command.write(b"", close=True)
    elif isinstance(size := asked.get("resize"), list) and len(size) == 2:
        if not all(type(number) is int and 0 < number < 1 << 16 for number in size):
            raise ValueError("resize")
        (await command.held()).resize(*size)
    else:
        raise ValueError("unknown")


async def _revoked(socket: WebSocket, key: Key, service: Service) -> None:
    stopping = asyncio.ensure_future(service.stopping.wait())
    revoked = asyncio.ensure_future(key.revoked.wait())
    try:
        await asyncio.wait({stopping, revoked}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        revoked.cancel()
    await socket.close(REVOKED if key.revoked.is_set() else 1001)


ROUTES = [
    Route(
        "POST",
        "/v1/sessions/{sid}/links",
        make_link,
        "run",
        body=m.LinkBody,
        answer=m.LinkAnswer,
        status=201,
    ),
]
