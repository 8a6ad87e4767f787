"""The Connect protocol in JSON, as E2B's clients speak it to a sandbox: single calls and streams over HTTP.

A single call posts one JSON object and gets one. A stream carries envelopes: a byte of flags, four of length, a JSON
object. The last envelope of an answer has the flag `END` and holds the error, if there was one.

Names of fields may come in camelCase or snake_case; they are answered in camelCase. Bytes are base64, 64-bit numbers
are text, as protobuf's JSON mapping says.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import anyio
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

Message = dict[str, Any]
Call = Callable[[Request, Message], Awaitable[Message]]
Stream = Callable[[Request, Message], AsyncIterator[Message]]
Upload = Callable[[Request, AsyncIterator[Message]], Awaitable[Message]]

END = 0x02
COMPRESSED = 0x01
HEAD = 5
LARGEST = 4 << 20
"""Bytes of one message from a client. Files take another way."""
STATUSES = {
    "canceled": 499,
    "invalid_argument": 400,
    "deadline_exceeded": 504,
    "not_found": 404,
    "already_exists": 409,
    "permission_denied": 403,
    "resource_exhausted": 429,
    "failed_precondition": 400,
    "unimplemented": 501,
    "internal": 500,
    "unavailable": 503,
    "unauthenticated": 401,
}


class ConnectError(Exception):
    """What a client is told: one of Connect's codes, and why."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message

    def as_dict(self) -> Message:
        return {"code": self.code, "message": self.message}


def field(message: Message, name: str, kind: type, default: Any = None) -> Any:
    """A field by its snake_case name; ConnectError if it has another type."""
    head, *tail = name.split("_")
    value = message.get(head + "".join(map(str.title, tail)), message.get(name))
    if value is None:
        return default
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ConnectError("invalid_argument", f"{name}: {kind.__name__} expected")
    return value


def call(answer: Call) -> Callable[[Request], Awaitable[Response]]:
    """The route of a single call."""

    async def route(request: Request) -> Response:
        try:
            return JSONResponse(await answer(request, _parsed(await _body(request))))
        except ConnectError as error:
            return refusal(error)

    return route


def stream(answer: Stream) -> Callable[[Request], Awaitable[Response]]:
    """The route of a call with one message in and many out."""

    async def route(request: Request) -> Response:
        try:
            _require_streaming(request)
            message: Message = await anext(_messages(request), {})
        except ConnectError as error:
            return refusal(error)
        return StreamingResponse(
            _answered(answer(request, message)), media_type="application/connect+json"
        )

    return route


def upload(answer: Upload) -> Callable[[Request], Awaitable[Response]]:
    """The route of a call with many messages in and one out."""

    async def route(request: Request) -> Response:
        try:
            _require_streaming(request)
        except ConnectError as error:
            return refusal(error)

        async def one() -> AsyncIterator[Message]:
            yield await answer(request, _messages(request))

        return _BothWays(_answered(one()), media_type="application/connect+json")

    return route


class _BothWays(StreamingResponse):
    """An answer that begins while the request still comes. Starlette's own would listen for the client's end
    meanwhile, and so take the pieces of the request."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.stream_response(send)


def refusal(error: ConnectError) -> Response:
    return JSONResponse(error.as_dict(), STATUSES[error.code])


def timeout_of(request: Request) -> float | None:
    """Seconds after which the client gives up, if it says so."""
    text = request.headers.get("connect-timeout-ms", "")
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 10:
        raise ConnectError(
            "invalid_argument", "connect-timeout-ms: milliseconds expected"
        )
    return int(text) / 1000


def keepalive_of(request: Request) -> float | None:
    """Seconds between signs of life that the client asks for."""
    text = request.headers.get("keepalive-ping-interval", "")
    return (
        max(1.0, float(text))
        if text.isascii() and text.isdigit() and len(text) < 6
        else None
    )


def _require_streaming(request: Request) -> None:
    if (
        request.headers.get("content-type", "").partition(";")[0]
        != "application/connect+json"
    ):
        raise ConnectError(
            "invalid_argument", "only application/connect+json is spoken here"
        )


async def _answered(messages: AsyncIterator[Message]) -> AsyncIterator[bytes]:
    end: Message = {}
    try:
        async for message in messages:
            yield _envelope(0, message)
    except ConnectError as error:
        end = {"error": error.as_dict()}
    yield _envelope(END, end)


def _envelope(flags: int, message: Message) -> bytes:
    data = json.dumps(message, separators=(",", ":")).encode()
    return bytes([flags]) + len(data).to_bytes(4, "big") + data


async def _body(request: Request) -> bytes:
    data = bytearray()
    async for piece in request.stream():
        data += piece
        if len(data) > LARGEST:
            raise ConnectError(
                "resource_exhausted", f"the message is over {LARGEST} bytes"
            )
    return bytes(data)


async def _messages(request: Request) -> AsyncIterator[Message]:
    """The messages of a streamed request, as they arrive."""
    buffered = bytearray()
    async for piece in request.stream():
        buffered += piece
        while len(buffered) >= HEAD:
            size = int.from_bytes(buffered[1:HEAD], "big")
            if size > LARGEST or buffered[0] & COMPRESSED:
                raise ConnectError(
                    "resource_exhausted", "the message is too large, or compressed"
                )
            if len(buffered) < HEAD + size:
                break
            flags, data = buffered[0], bytes(buffered[HEAD : HEAD + size])
            del buffered[: HEAD + size]
            if flags & END:
                return
            yield _parsed(data)
            await (
                anyio.lowlevel.checkpoint()
            )  # many small messages do not hold up others


def _parsed(data: bytes) -> Message:
    try:
        message = json.loads(data or b"{}")
    except (ValueError, RecursionError):
        raise ConnectError("invalid_argument", "the message is not JSON") from None
    if not isinstance(message, dict):
        raise ConnectError("invalid_argument", "the message is not a JSON object")
    return message
