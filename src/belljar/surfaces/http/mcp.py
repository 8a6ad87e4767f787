"""MCP at `/mcp` (streamable HTTP): the tools of `belljar mcp`, in sandboxes of the service.

Each client has a session of its own, made with its key when its first call comes: it goes through the same routes as
everybody's, so quota, policy, approvals and the trail hold, and it is on the dashboard. What a client missed while its
connection was cut it gets with `Last-Event-ID`. The session ends with the client's, or after IDLE_SECONDS without a
request; a restart of the service ends the client's session, and its sandbox with its lease.

    /mcp?tools=bash,files&workspace=NAME&image=base&policy=strict     what the sandbox is to be
    /mcp?session=ID                                                   one that is there already, and stays
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from anyio import to_thread
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from belljar import resources
from belljar.errors import BelljarError
from belljar.remote.box import RemoteSession
from belljar.remote.host import RemoteHost
from belljar.surfaces.http.problems import Problem, problem_of

if TYPE_CHECKING:
    from belljar.surfaces.http.keys import Key
    from belljar.surfaces.http.service import Service

IDLE_SECONDS = 1800.0
LOOK_SECONDS = 5.0  # between looks whether a client is still there
CLIENTS_OF_A_KEY = 32
EVENTS_KEPT = 1000  # of one client, for when its connection is cut
SESSION = b"mcp-session-id"
CHOICES = ("tools", "workspace", "image", "policy", "session")
HANDSHAKES = ("", "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""Versions of the protocol whose clients begin a session; later ones name none, and share their key's."""


class Endpoint:
    """The ASGI application at `/mcp`."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._clients: dict[str, Client] = {}
        self._starting: set[Client] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        key, secret = request.state.key, _secret(request)
        request.state.route = "/mcp"
        if not key.may("run"):
            raise Problem("forbidden", "this key has no scope run", scope="run")
        id = request.headers.get("mcp-session-id") or _shared(request, key)
        client = self._clients.get(id)
        if client is not None and client.key is not key:
            client, id = None, id or "another's"
        if client is None and request.headers.get("mcp-session-id"):
            raise Problem("not_found", "there is no such MCP session; begin a new one")
        if client is None:
            client = await self._begun(key, secret, _choices(request))
            self._clients[id or f"new {client.number}"] = client
        await self._asked(client, id, scope, receive, send)

    async def _begun(self, key: Key, secret: str, choices: dict[str, str]) -> Client:
        mine = {
            client
            for client in (*self._clients.values(), *self._starting)
            if client.key is key
        }
        if len(mine) >= CLIENTS_OF_A_KEY:
            raise Problem(
                "quota_exceeded",
                "too many MCP clients",
                quota="streams",
                headers={"Retry-After": "10"},
            )
        client = Client(self._service, key, secret, choices)
        self._starting.add(client)
        try:
            await client.begin(lambda: self._forget(client))
        finally:
            self._starting.discard(client)
        return client

    async def _asked(
        self, client: Client, id: str, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Pass a request on. The answer to the first one says which session the client has from now on."""
        given = ""

        async def noting(message: Message) -> None:
            nonlocal given
            if message["type"] == "http.response.start":
                given = (
                    dict(message["headers"])
                    .get(SESSION, b"")
                    .decode("ascii", "replace")
                )
                if given and not id:
                    self._clients.pop(f"new {client.number}", None)
                    self._clients[given] = client
            await send(message)

        try:
            await client.handle(scope, receive, noting)
        finally:
            if scope["method"] == "DELETE" or not (id or given):
                client.end()
                self._forget(client)  # now: its own end may take a while

    def _forget(self, client: Client) -> None:
        for id in [id for id, each in self._clients.items() if each is client]:
            del self._clients[id]


def _secret(request: Request) -> str:
    """The key's own text. A cookie is a person's, who has no tools to call."""
    scheme, _, secret = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not secret.strip():
        raise Problem(
            "unauthenticated",
            "send Authorization: Bearer bj_…",
            headers={"WWW-Authenticate": "Bearer"},
        )
    return secret.strip()


def _shared(request: Request, key: Key) -> str:
    is_new = request.headers.get("mcp-protocol-version", "") not in HANDSHAKES
    return f"key {key.id} {request.url.query}" if is_new else ""


def _choices(request: Request) -> dict[str, str]:
    given = dict(parse_qsl(request.url.query))
    for name in given:
        if name not in CHOICES:
            raise Problem(
                "usage", f"{name}: choose from {', '.join(CHOICES)}", field=name
            )
    return given


class Client:
    """One MCP client: a server of its own, and the sandbox that its calls run in."""

    count = 0

    def __init__(
        self, service: Service, key: Key, secret: str, choices: dict[str, str]
    ) -> None:
        Client.count += 1
        self.number = Client.count
        self.key = key
        self._service, self._secret, self._choices = service, secret, choices
        self._over = asyncio.Event()
        self._used = time.monotonic()
        self._open = 0
        self._boxes: list[RemoteSession] = []
        self._manager: Any = None
        self._task: asyncio.Task[None] | None = None

    async def begin(self, forget: Any) -> None:
        self._manager = await to_thread.run_sync(self._made)
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = self._service.keep(self._live(ready, forget))
        await ready

    def _made(self) -> Any:
        """The MCP server, with the tools that were asked for."""
        try:
            from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

            from belljar.surfaces.mcp.server import Service as Tools
        except ModuleNotFoundError as missing:
            raise Problem(
                "unsupported", f"/mcp needs {missing.name}: {resources.extra('mcp')}"
            ) from None
        from belljar.tools.registry import chosen_families

        try:
            families = chosen_families(self._choices.get("tools"))
            tools = Tools(
                self._box, "in /workspace of a sandbox at a service", families
            )
        except BelljarError as error:
            raise problem_of(error) from None
        return StreamableHTTPSessionManager(
            tools.server,
            event_store=kept_events(),
            session_idle_timeout=None,
            max_sessions=1,
        )

    def _box(self, approve: Any) -> Any:
        """The sandbox of this client, not open yet. Who may approve is asked through the client; else people are."""
        far = RemoteHost.itself_at(self._service.own_url, self._secret)
        options: Any = {
            name: self._choices[name]
            for name in ("image", "policy")
            if name in self._choices
        }
        options["approve"] = approve if self.key.may("approve") else None
        if "session" in self._choices:
            box = far.entering(self._choices["session"], options["approve"])
        else:
            name = self._choices.get("workspace")
            place = None if name is None else far.workspace(name)
            box = far.session(place, metadata={"client": "mcp"}, **options)
        self._boxes.append(box)
        return box

    async def _live(self, ready: asyncio.Future[None], forget: Any) -> None:
        try:
            async with self._manager.run():
                ready.set_result(None)
                await self._until_over()
                if self._service.stopping.is_set():
                    for box in self._boxes:  # the sandboxes stay
                        box.options = replace(box.options, keep=True)
        except Exception as error:
            if not ready.done():
                ready.set_exception(error)
            else:
                self._service.report(error)
        finally:
            forget()

    async def _until_over(self) -> None:
        """Until it has ended, is silent for too long, or lost its key."""
        while not (
            self._over.is_set() or self._service.stopping.is_set() or self.key.is_over
        ):
            if not self._open and time.monotonic() - self._used > IDLE_SECONDS:
                return
            waits = [
                asyncio.ensure_future(each.wait())
                for each in (self._over, self._service.stopping)
            ]
            await asyncio.wait(
                waits, timeout=LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
            for wait in waits:
                wait.cancel()

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._open += 1
        try:
            await self._manager.handle_request(scope, receive, send)
        finally:
            self._open -= 1
            self._used = time.monotonic()

    def end(self) -> None:
        self._over.set()


def kept_events() -> Any:
    """The newest messages to a client, for one that comes back after its connection was cut."""
    from mcp.server.streamable_http import EventCallback, EventMessage, EventStore

    class Kept(EventStore):
        def __init__(self) -> None:
            self._last = 0
            self._events: deque[tuple[int, str, Any]] = deque(maxlen=EVENTS_KEPT)

        async def store_event(self, stream_id: str, message: Any) -> str:
            self._last += 1
            self._events.append((self._last, stream_id, message))
            return str(self._last)

        async def replay_events_after(
            self, last_event_id: str, send_callback: EventCallback
        ) -> str | None:
            after = (
                int(last_event_id)
                if last_event_id.isascii() and last_event_id.isdigit()
                else -1
            )
            stream = next(
                (stream for number, stream, _ in self._events if number == after), None
            )
            if stream is None:
                return None
            for number, of, message in [*self._events]:
                if of == stream and number > after and message is not None:
                    await send_callback(EventMessage(message, str(number)))
            return stream

    return Kept()
