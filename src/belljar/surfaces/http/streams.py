"""Streams of server-sent events: a command's output by position, and what happens in a tenant.

A reader is sent at most one piece at a time, and the next one when its connection has room: a slow reader costs nothing
but its own time. A stream ends with the key that opened it.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncGenerator, AsyncIterator
from typing import TYPE_CHECKING, Any

from anyio import to_thread
from starlette.responses import Response, StreamingResponse

from belljar.session.result import split_tail
from belljar.surfaces.http.log import Piece
from belljar.surfaces.http.problems import Problem
from belljar.surfaces.http.quota import STREAMS_OF_A_COMMAND, STREAMS_OF_A_KEY

if TYPE_CHECKING:
    from belljar.surfaces.http.commands import Command
    from belljar.surfaces.http.keys import Key
    from belljar.surfaces.http.service import Service

PING_SECONDS = 10.0
PIECE = 64 << 10
SPLIT_SECONDS = (
    0.2  # how long the rest of a character may take until the piece is sent without it
)
LOOKS_AHEAD = 256 << 10


def event(name: str, data: Any, id: Any = None) -> bytes:
    lines = [f"id: {id}"] if id is not None else []
    lines += [f"event: {name}", f"data: {json.dumps(data, separators=(',', ':'))}"]
    return ("\n".join(lines) + "\n\n").encode()


class Open:
    """A place among the streams that a key, and a command, may have open."""

    def __init__(
        self, service: Service, key: Key, command: Command | None = None
    ) -> None:
        self._service, self._key, self._command = service, key, command
        self._is_open = False

    def take(self) -> Open:
        full = self._key.streams >= STREAMS_OF_A_KEY
        if full or (
            self._command is not None and self._command.readers >= STREAMS_OF_A_COMMAND
        ):
            raise Problem(
                "quota_exceeded",
                "too many open streams",
                quota="streams",
                headers={"Retry-After": "1"},
            )
        self._is_open = True
        self._count(1)
        return self

    def _count(self, change: int) -> None:
        self._key.streams += change
        if self._command is not None:
            self._command.readers += change
        self._service.metrics.streams.inc(change)

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._count(-1)


class Placed(StreamingResponse):
    """An answer that holds a place until it is over, also if its client goes before it begins."""

    def __init__(
        self, content: AsyncGenerator[bytes], place: Open, **options: Any
    ) -> None:
        super().__init__(content, **options)
        self._content, self._place = content, place

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            if scope["method"] == "HEAD":
                self.body_iterator = _nothing()
            await super().__call__(scope, receive, send)
        finally:
            await self._content.aclose()
            self._place.close()


async def _nothing() -> AsyncIterator[bytes]:
    parts: tuple[bytes, ...] = ()
    for part in parts:
        yield part


class Stream(Placed):
    """A stream that ends with its key, or with the service."""

    def __init__(
        self, events: AsyncIterator[bytes], place: Open, service: Service, key: Key
    ) -> None:
        guarded = self._guarded(events, service, key)
        super().__init__(guarded, place, media_type="text/event-stream")

    @staticmethod
    async def _guarded(
        events: AsyncIterator[bytes], service: Service, key: Key
    ) -> AsyncGenerator[bytes]:
        over = asyncio.ensure_future(key.revoked.wait())
        stopping = asyncio.ensure_future(service.stopping.wait())
        try:
            while not key.is_over:
                following = asyncio.ensure_future(anext(events, None))
                await asyncio.wait(
                    {following, over, stopping}, return_when=asyncio.FIRST_COMPLETED
                )
                if not following.done():
                    following.cancel()
                    await asyncio.wait([following])
                    return
                piece = following.result()
                if piece is None:
                    return
                yield piece
        finally:
            over.cancel()
            stopping.cancel()


# One command.


def start_of(last: str | None, command: Command) -> int | None:
    """The position that a reader asks for with Last-Event-ID; None: it has seen the end."""
    if last is None:
        return 0
    if last == "end":
        return None
    if (
        not last.isascii()
        or not last.isdigit()
        or len(last) > 18
        or int(last) > command.log.end
    ):
        raise Problem(
            "usage",
            f"Last-Event-ID: {last[:40]!r} is no position of this command",
            field="Last-Event-ID",
        )
    return int(last)


def of_command(
    service: Service, key: Key, command: Command, last: str | None
) -> Response:
    position = start_of(last, command)
    if position is None:
        return Response(status_code=204)
    place = Open(service, key, command).take()
    return Stream(
        _events(service, command, position, begins=last is None), place, service, key
    )


async def _events(
    service: Service, command: Command, position: int, *, begins: bool
) -> AsyncIterator[bytes]:
    yield b"retry: 1000\n\n"
    told = ""
    while True:
        if command.state == "waiting" and command.data["approval"] != told:
            told = command.data["approval"]
            if (approval := await service.approvals.find(told)) is not None:
                yield event("waiting", {"approval": approval}, position)
        if begins and (
            command.state == "running" or command.data["result"] is not None
        ):
            begins = False
            running = {
                **command.as_dict(),
                "state": "running",
                "ended": None,
                "exit_code": None,
                "result": None,
            }
            yield event("started", {"command": running}, 0)
        over = command.is_over
        if position < command.log.start:
            gone = command.log.start - position
            yield event(
                "dropped", {"offset": position, "bytes": gone}, command.log.start
            )
            position = command.log.start
        elif position < command.log.end:
            async for piece in pieces(command, position):
                yield event("output", _shown(piece), piece.end)
                position = piece.end
                command.was_sent(position)
        elif over:
            yield event("ended", {"command": command.as_dict()}, "end")
            return
        elif not await command.changed.wait(PING_SECONDS):
            yield b": ping\n\n"


async def pieces(command: Command, position: int) -> AsyncIterator[Piece]:
    """What the log has from `position` on, in pieces that split no character if that can be."""
    found = await to_thread.run_sync(command.log.read, position, LOOKS_AHEAD)
    for index, piece in enumerate(found):
        grows = index == len(found) - 1 and not command.is_over
        start, data = piece.at, piece.data
        while data:
            part = data[:PIECE]
            tail = split_tail(part) if grows or len(part) < len(data) else 0
            if tail == len(part):
                if command.log.end <= piece.end:
                    await command.changed.wait(SPLIT_SECONDS)
                if command.log.end > piece.end:
                    return  # the reader comes again, and finds the rest of the character
            elif tail:
                part = part[:-tail]
            yield Piece(start, piece.stream, part)
            start, data = start + len(part), data[len(part) :]


def _shown(piece: Piece) -> dict[str, Any]:
    try:
        content = {"text": piece.data.decode()}
    except UnicodeDecodeError:
        content = {"base64": base64.b64encode(piece.data).decode()}
    return {"stream": piece.stream, "offset": piece.at, **content}
