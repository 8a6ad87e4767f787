"""The routes that tell what happens and what happened: events, and the audit trail."""

from __future__ import annotations

import asyncio
import base64
import itertools
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from anyio import to_thread
from starlette.responses import Response, StreamingResponse

from belljar.audit import reader
from belljar.surfaces.http import models as m
from belljar.surfaces.http import streams
from belljar.surfaces.http.calls import Call, Route, accepts
from belljar.surfaces.http.events import MERGE_SECONDS, Change
from belljar.surfaces.http.problems import Problem
from belljar.surfaces.http.streams import Open, Stream, event

if TYPE_CHECKING:
    from belljar.surfaces.http.commands import Command

TOPICS = ("sessions", "commands", "approvals", "audit")
PING_SECONDS = 1.0
SHOWN_RECORDS = 20
SHOWN_OUTPUT = 64 << 10
LINES = 1 << 16


# Events.


async def follow(call: Call) -> Any:
    """What happens, as it happens."""
    topics, outputs = await _topics(call)
    if "audit" in topics:
        _needs_trail(call)
    place = Open(call.service, call.key).take()
    last = call.request.headers.get("last-event-id")
    return Stream(_events(call, topics, outputs, last), place, call.service, call.key)


async def _topics(call: Call) -> tuple[set[str], list[Command]]:
    names = [name.strip() for name in call.query.topics.split(",") if name.strip()]
    topics: set[str] = set()
    outputs: list[Command] = []
    for name in names:
        kind, _, rest = name.partition(":")
        if name in TOPICS:
            topics.add(name)
        elif kind == "output" and rest.count("/") == 1 and len(outputs) < 16:
            sid, cid = rest.split("/")
            session = await call.service.live_for(call.key, sid)
            outputs.append(await call.service.command_for(call.key, session, cid))
        else:
            raise Problem(
                "usage", f"topics: there is no topic {name[:80]}", field="topics"
            )
    if not names:
        raise Problem("usage", "topics: name at least one", field="topics")
    return topics, outputs


async def _events(
    call: Call, topics: set[str], outputs: list[Command], last: str | None
) -> AsyncIterator[bytes]:
    service, key = call.service, call.key

    def wanted(change: Change) -> bool:
        return change.topic in topics and key.sees(change.tenant, change.path)

    follower = service.events.follow(wanted)
    positions: dict[str, int] = {}
    try:
        yield b"retry: 1000\n\n"
        now = service.events.now
        missed = service.events.missed(last, wanted) if last is not None else None
        if missed is None:
            for topic in sorted(topics):
                yield event(
                    topic,
                    {"kind": "snapshot", "items": await _snapshot(call, topic)},
                    now,
                )
        else:
            for change in _merged(missed):
                yield event(
                    change.topic, change.data, service.events.id_of(change.number)
                )
        for command in outputs:
            positions[command.id] = max(
                command.log.start, command.log.end - SHOWN_OUTPUT
            )
            shown = [
                _piece(command, piece)
                async for piece in streams.pieces(command, positions[command.id])
            ]
            positions[command.id] += sum(piece["bytes"] for piece in shown)
            yield event(
                "output",
                {"kind": "snapshot", "command": command.id, "items": shown},
                now,
            )
        pinged = 0.0
        while True:
            began = time.monotonic()
            patience = _patience(began - pinged, follows_output=bool(outputs))
            for change in await follower.changes(patience):
                yield event(
                    change.topic, change.data, service.events.id_of(change.number)
                )
            for command in outputs:
                async for lines in _output(command, positions):
                    yield lines
            if time.monotonic() - pinged >= PING_SECONDS - MERGE_SECONDS:
                pinged = time.monotonic()
                yield b"event: ping\ndata: {}\n\n"
            await asyncio.sleep(max(0.0, MERGE_SECONDS - (time.monotonic() - began)))
    finally:
        follower.close()


def _patience(since_ping: float, *, follows_output: bool) -> float:
    """How long to wait for changes, so that the next ping is in time."""
    left = max(0.0, PING_SECONDS - MERGE_SECONDS - since_ping)
    return min(MERGE_SECONDS, left) if follows_output else left


def _merged(changes: list[Change]) -> list[Change]:
    """Of each object only the last."""
    found: dict[tuple[str, str], Change] = {}
    for change in changes:
        found.pop((change.topic, change.id), None)
        found[change.topic, change.id] = change
    return list(found.values())


async def _output(command: Command, positions: dict[str, int]) -> AsyncIterator[bytes]:
    at = positions[command.id]
    if at < command.log.start:
        gone = {"offset": at, "bytes": command.log.start - at, "command": command.id}
        at = positions[command.id] = command.log.start
        yield event("output", {"kind": "dropped", **gone})
    async for piece in streams.pieces(command, at):
        positions[command.id] = piece.end
        yield event("output", {"kind": "output", **_piece(command, piece)})


def _piece(command: Command, piece: Any) -> dict[str, Any]:
    content: dict[str, Any]
    try:
        content = {"text": piece.data.decode()}
    except UnicodeDecodeError:
        content = {"base64": base64.b64encode(piece.data).decode()}
    return {
        "stream": piece.stream,
        "offset": piece.at,
        "bytes": len(piece.data),
        "command": command.id,
        **content,
    }


async def _snapshot(call: Call, topic: str) -> list[dict[str, Any]]:
    service, key = call.service, call.key
    if topic == "sessions":
        return await service.sessions_for(key)
    if topic == "approvals":
        return await service.approvals_for(key)
    if topic == "audit":
        trail = service.trail(key.tenant)
        await to_thread.run_sync(trail.flush)
        return await to_thread.run_sync(reader.newest, trail.where, SHOWN_RECORDS)
    return [
        command.as_item()
        for session in service.living
        if key.sees(session.tenant, session.path)
        for command in session.commands.values()
    ]


# The trail.


def _needs_trail(call: Call) -> None:
    if call.key.reach != "tenant":
        raise Problem(
            "forbidden", "the trail is for keys that see the whole tenant", scope="read"
        )


def _records(call: Call) -> list[dict[str, Any]]:
    trail = call.service.trail(call.key.tenant)
    trail.flush()
    return list(reader.records(trail.where))


async def read_trail(call: Call) -> Any:
    """The audit trail."""
    _needs_trail(call)
    query: m.AuditQuery = call.query
    if (
        accepts(call.request, "application/x-ndjson", "application/json")
        == "application/x-ndjson"
    ):
        return StreamingResponse(
            _lines(call, query.after or 0), media_type="application/x-ndjson"
        )
    if query.order == "newest":
        return await _newest(call, query)
    after = _after(query)

    def found() -> list[dict[str, Any]]:
        return [
            record
            for record in _records(call)
            if record["seq"] > after
            and query.kind in (None, record["kind"])
            and query.session in (None, record.get("session"))
        ][: query.limit + 1]

    records = await to_thread.run_sync(found)
    shown = records[: query.limit]
    return {
        "items": shown,
        "next": str(shown[-1]["seq"]) if len(records) > len(shown) else None,
    }


async def _newest(call: Call, query: m.AuditQuery) -> Any:
    """The same from the end: for a screen, which wants to know what was last."""
    before = _after(query) if query.cursor is not None else None

    def found() -> list[dict[str, Any]]:
        wanted = (
            record
            for record in reversed(_records(call))
            if (before is None or record["seq"] < before)
            and query.kind in (None, record["kind"])
            and query.session in (None, record.get("session"))
        )
        return list(itertools.islice(wanted, query.limit + 1))

    records = await to_thread.run_sync(found)
    shown = records[: query.limit]
    return {
        "items": shown,
        "next": str(shown[-1]["seq"]) if len(records) > len(shown) else None,
    }


def _after(query: m.AuditQuery) -> int:
    if query.cursor is None:
        return query.after or 0
    return int(query.cursor)


async def _lines(call: Call, after: int) -> AsyncIterator[bytes]:
    """The lines as they are stored, so that whoever has them can verify the chain."""
    trail = call.service.trail(call.key.tenant)
    await to_thread.run_sync(trail.flush)
    lines = reader.lines(trail.where)

    def some() -> bytes:
        size, parts = 0, []
        for line in lines:
            if line.record is None or line.record["seq"] > after:
                parts.append(line.raw)
                size += len(line.raw)
            if size > LINES:
                break
        return b"".join(parts)

    while part := await to_thread.run_sync(some):
        yield part


async def verify_trail(call: Call) -> Any:
    """Whether the trail is whole."""
    _needs_trail(call)

    def verified() -> dict[str, Any]:
        trail = call.service.trail(call.key.tenant)
        trail.flush()
        report = reader.verify(trail.where).as_dict()
        where = f"{trail.where}/"
        texts = ("at", "reason")
        short = {
            name: report[name] and str(report[name]).replace(where, "")
            for name in texts
        }
        return {
            **report,
            **short,
            "torn": [each.replace(where, "") for each in report["torn"]],
        }

    return await to_thread.run_sync(verified)


async def openapi(call: Call) -> Any:
    """This description."""
    return call.request.app.openapi()


async def alive(_: Call) -> Any:
    return {"status": "ok"}


ROUTES = [
    Route(
        "GET", "/v1/events", follow, "read", m.EventsQuery, media="text/event-stream"
    ),
    Route("GET", "/v1/audit", read_trail, "read", m.AuditQuery, answer=m.Items),
    Route("GET", "/v1/audit/verify", verify_trail, "read"),
    Route("GET", "/openapi.json", openapi, None),
]


__all__ = ["ROUTES", "Response"]
