"""Several servers on one PostgreSQL.

Each session belongs to one server (`owner`), which has its sandbox open and follows its commands. A server says every
moment that it lives; one that has said nothing for a while has lost its sessions, and another that can reach their
sandboxes takes them over, one update for each, so that only one wins. A server that was only slow notices that and lets
go. What a client asks of a session goes on to its owner, whichever server it asked; the two share a secret in the
database, so that the owner knows that Host and Origin were checked already.

News travel by NOTIFY, so a screen sees what happens at every server.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import secrets
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import httpx
import sqlalchemy as sa
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from belljar.surfaces.http import storage
from belljar.surfaces.http.problems import Problem, body_of

if TYPE_CHECKING:
    from belljar.surfaces.http.events import Change, Events
    from belljar.surfaces.http.storage import Store

BEAT_SECONDS = 1.5
GONE_SECONDS = 5.0  # without a beat
FORWARDED = "belljar-forwarded"
CHANNEL = "belljar"
LARGEST_NEWS = 7000  # bytes; PostgreSQL takes 8000
_NOT_PASSED = frozenset(
    ("host", "connection", "content-length", "transfer-encoding", "x-request-id")
)
_NOT_RETURNED = frozenset((b"transfer-encoding", b"connection", b"date"))


class Replicas:
    """The other servers, as this one knows them."""

    def __init__(self, id: str, store: Store, events: Events) -> None:
        self.id, self._store, self._events = id, store, events
        self.secret = ""
        self._urls: dict[str, str] = {}
        self._beaten = 0.0
        self._tasks: set[asyncio.Task[Any]] = set()
        self._listening: Any = None
        self._client = httpx.AsyncClient(
            timeout=httpx.Timeout(None, connect=5.0), trust_env=False, verify=False
        )

    async def open(self, url: str) -> None:
        """Say that this server is there, at `url`."""
        with contextlib.suppress(storage.IntegrityError):
            await self._store.insert(
                storage.facts, id="secret", data={"secret": secrets.token_urlsafe(32)}
            )
        row = await self._store.get(storage.facts, "secret")
        assert row is not None
        self.secret = row["data"]["secret"]
        await self._store.insert(
            storage.instances, id=self.id, seen=time.time(), data={"url": url}
        )
        self._beaten = time.monotonic()
        await self.look()
        if self._store.is_shared:
            self._events.listeners.append(self._tell)
            await self._listen()

    async def close(self) -> None:
        await self._store.delete(storage.instances, self.id)
        if self._listening is not None:
            await self._listening.close()
        await self._client.aclose()

    async def beat(self) -> bool:
        """Say that we live. False: we were silent for so long that others may have taken our sessions."""
        late = time.monotonic() - self._beaten > GONE_SECONDS - BEAT_SECONDS
        if not await self._store.update(storage.instances, self.id, seen=time.time()):
            late = True
        self._beaten = time.monotonic()
        await self.look()
        return not late

    async def look(self) -> None:
        table = storage.instances
        alive = await self._store.all(
            sa.select(table).where(table.c.seen > time.time() - GONE_SECONDS)
        )
        self._urls = {row["id"]: row["data"]["url"] for row in alive}

    def lives(self, id: str) -> bool:
        """Whether another server has the sessions of this owner."""
        return self._store.is_shared and id != self.id and id in self._urls

    async def forget_dead(self) -> None:
        table = storage.instances
        await self._store.run(sa.delete(table).where(table.c.seen < time.time() - 60))

    async def claim(self, session: str, owner: str) -> bool:
        """Take a session from a server that is gone; of several takers one wins."""
        table = storage.sessions
        mine = (
            sa.update(table)
            .where(table.c.id == session, table.c.owner == owner)
            .values(owner=self.id)
        )
        return (await self._store.run(mine))[0] > 0

    # Passing requests on.

    def vouches(self, given: str) -> bool:
        """Whether another server passed this request on."""
        return bool(self.secret) and hmac.compare_digest(
            given.encode(), self.secret.encode()
        )

    async def passed(
        self, request: Request, owner: str, content: bytes | None = None
    ) -> Response:
        """The owner's answer to this request. `content`: its body, if that was read already."""
        url = self._urls.get(owner)
        if url is None:
            raise Problem(
                "not_ready",
                "the server that has this session is gone",
                headers={"Retry-After": "1"},
            )
        path, query = (
            request.scope["raw_path"].decode("latin-1"),
            request.scope["query_string"].decode("latin-1"),
        )
        headers = [
            (name, value)
            for name, value in request.headers.items()
            if name not in _NOT_PASSED
        ]
        headers += [
            (FORWARDED, self.secret),
            ("x-request-id", request.state.request_id),
        ]
        if content is not None:
            headers = [
                (name, value)
                for name, value in headers
                if name.lower() != "content-length"
            ]
        has_body = (
            "content-length" in request.headers
            or "transfer-encoding" in request.headers
        )
        asked = self._client.build_request(
            request.method,
            f"{url}{path.split('?')[0]}{'?' + query if query else ''}",
            headers=headers,
            content=content
            or (body_of(request) if has_body and content is None else None),
        )
        try:
            answer = await self._client.send(asked, stream=True)
        except httpx.TransportError:
            raise Problem(
                "not_ready",
                "the server that has this session is gone",
                headers={"Retry-After": "1"},
            ) from None
        response = StreamingResponse(_body(answer), answer.status_code)
        response.raw_headers = [
            (n.lower(), v)
            for n, v in answer.headers.raw
            if n.lower() not in _NOT_RETURNED
        ]
        return response

    def socket_url(self, owner: str, path: str) -> str:
        """Where the owner takes this WebSocket."""
        url = self._urls.get(owner)
        if url is None:
            raise Problem(
                "not_ready",
                "the server that has this session is gone",
                headers={"Retry-After": "1"},
            )
        return f"{url.replace('http', 'ws', 1)}{path}"

    # News.

    def _tell(self, change: Change) -> None:
        news = [
            self.id,
            change.topic,
            change.kind,
            change.id,
            change.item,
            change.tenant,
            change.path,
        ]
        text = json.dumps(news)
        if len(text) > LARGEST_NEWS:
            text = json.dumps([*news[:4], None, *news[5:]])
        task = asyncio.ensure_future(
            self._store.run(sa.select(sa.func.pg_notify(CHANNEL, text)))
        )
        self._tasks.add(task)
        task.add_done_callback(self._told)

    def _told(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # news are only for screens: the tables have everything

    async def _listen(self) -> None:
        import asyncpg

        self._listening = await asyncpg.connect(
            self._store.url.replace("postgresql+asyncpg", "postgresql", 1)
        )
        await self._listening.add_listener(CHANNEL, self._heard)

    def _heard(self, _: Any, __: int, ___: str, text: str) -> None:
        origin, topic, kind, id, item, tenant, path = json.loads(text)
        if origin == self.id:
            return
        task = asyncio.ensure_future(self._repeat(topic, kind, id, item, tenant, path))
        self._tasks.add(task)
        task.add_done_callback(self._told)

    async def _repeat(
        self, topic: str, kind: str, id: str, item: Any, tenant: str, path: str
    ) -> None:
        """Publish here what happened at another server."""
        if kind == "put" and item is None:
            row = (
                await self._store.get(storage.meta.tables[topic], id)
                if topic != "audit"
                else None
            )
            if row is None:
                return
            item = row["data"].get(topic.rstrip("s"), row["data"])
        self._events.repeat(topic, kind, id, item, tenant, path)


async def _body(answer: httpx.Response) -> AsyncIterator[bytes]:
    try:
        async for part in answer.aiter_raw(64 << 10):
            yield part
    except httpx.TransportError:
        return  # the owner is gone: the client comes again
    finally:
        await answer.aclose()


__all__ = ["FORWARDED", "Replicas"]
