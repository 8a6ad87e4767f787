"""Requests to one service: the key, retries, and problems as the errors that a local session would raise.

A request that changes nothing, or that has an Idempotency-Key, is repeated while the service cannot be reached: it may
be restarting. A stream of events that breaks off is opened again behind the last event.
"""

from __future__ import annotations

import errno as numbers
import json
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import field
from typing import Any
from urllib.parse import urlsplit

import httpx
from tenacity import (
    AsyncRetrying,
    retry_if_exception_type,
    stop_after_delay,
    wait_random_exponential,
)

from belljar import codec, errors
from belljar.errors import (
    BelljarError,
    EngineUnavailable,
    SandboxLost,
    ServiceError,
    UsageError,
)
from belljar.records import record

APPROVAL_SECONDS = 300.0
RECONNECT_SECONDS = 60.0  # how long a service may be away: it restarts in less
FIRST_SECONDS = 3.0  # … before it has ever answered: the address may be wrong
LONGEST_WAIT = (
    50.0  # of one request; proxies cut connections that are silent for a minute
)
ANSWER_SECONDS = 60.0  # beyond the wait that was asked for
CONNECT_SECONDS = 10.0
SILENT_SECONDS = 45.0  # of a stream, which has a ping every 15
LINE_MAX = 64 << 20
SAFE = ("GET", "PUT", "DELETE", "PATCH")
_ENDED = ("session_ended", "sandbox_lost")
_USAGE = ("too_large", "unsupported_media_type", "limits_invalid")
_GATEWAY = (502, 503, 504)
Query = Mapping[str, Any]
Content = bytes | AsyncIterator[bytes] | None


class _Away(Exception):
    """A gateway answers that the service behind it does not."""


_RETRIED = (httpx.TransportError, _Away)


@record
class Service:
    """Where a service is, and as whom it is asked."""

    url: str
    key: str = field(repr=False)
    approval_seconds: float
    """How long a command may wait there for a person's answer."""
    verifies: bool = True
    """Its certificate is checked. Only a server that asks itself need not."""

    def wire(self) -> Wire:
        """Connections for the event loop that calls; whoever has them closes them."""
        return Wire(self.url, self.key, verifies=self.verifies)


class Wire:
    """A connection pool of one event loop. `await wire.close()` ends it."""

    def __init__(self, url: str, key: str, *, verifies: bool = True) -> None:
        self.url = url
        self._was_reached = False
        self._client = httpx.AsyncClient(
            base_url=url,
            verify=verifies,
            trust_env=verifies,
            headers={"Authorization": f"Bearer {key}", "User-Agent": "belljar"},
            timeout=httpx.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS, pool=None),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=20),
        )

    async def close(self) -> None:
        await self._client.aclose()

    # One answer.

    async def get(
        self, path: str, query: Query | None = None, *, wait: float = 0.0
    ) -> Any:
        return (await self.ask("GET", path, wait=wait, query=query)).json()

    async def post(
        self, path: str, body: Any, *, wait: float | None = None, key: str | None = None
    ) -> Any:
        """Asked once, also if it has to be repeated. `key`: its Idempotency-Key, to ask again for the same object."""
        headers = {"Idempotency-Key": key or secrets.token_hex(16)}
        return (
            await self.ask("POST", path, json=body, wait=wait, headers=headers)
        ).json()

    async def ask(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        json: Any = None,
        content: Content = None,
        headers: Mapping[str, str] | None = None,
        wait: float | None = None,
    ) -> httpx.Response:
        given = dict(headers or {})
        if wait is not None:
            given["Prefer"] = f"wait={wait:g}"
        given.setdefault("Accept", "application/json, application/problem+json, */*")
        timeout = httpx.Timeout(
            ANSWER_SECONDS + (wait or 0.0), connect=CONNECT_SECONDS, pool=None
        )
        request = self._client.build_request(
            method,
            path,
            params=_query(query),
            json=json,
            content=content,
            headers=given,
            timeout=timeout,
        )
        once = isinstance(content, AsyncIterator) or not (
            method in SAFE or "Idempotency-Key" in given
        )
        response = await self._sent(request, once=once, whole=True)
        if response.is_error:
            raise error_of(response)
        return response

    @asynccontextmanager
    async def reading(
        self, path: str, *, query: Query, accept: str
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """A body of any size, piece by piece."""
        response = await self.opened(path, {"Accept": accept}, ANSWER_SECONDS, query)
        try:
            yield self._pieces(response)
        finally:
            await response.aclose()

    async def opened(
        self,
        path: str,
        headers: Mapping[str, str],
        silent: float,
        query: Query | None = None,
    ) -> httpx.Response:
        """An answer whose body the caller reads, and closes. It may be silent for so many seconds."""
        timeout = httpx.Timeout(
            ANSWER_SECONDS, connect=CONNECT_SECONDS, read=silent, pool=None
        )
        request = self._client.build_request(
            "GET", path, params=_query(query), headers=headers, timeout=timeout
        )
        response = await self._sent(request)
        if response.is_error:
            await response.aread()
            raise error_of(response)
        return response

    async def _pieces(self, response: httpx.Response) -> AsyncIterator[bytes]:
        try:
            async for piece in response.aiter_bytes():
                yield piece
        except httpx.TransportError as error:
            raise self._unreachable(error) from error

    async def _sent(
        self, request: httpx.Request, *, once: bool = False, whole: bool = False
    ) -> httpx.Response:
        """The answer; its body is read only if the `whole` of it is wanted, and asked for again if it breaks off."""
        kinds = (httpx.ConnectError, httpx.ConnectTimeout) if once else _RETRIED
        retrying = AsyncRetrying(
            retry=retry_if_exception_type(kinds),
            stop=stop_after_delay(
                RECONNECT_SECONDS if self._was_reached else FIRST_SECONDS
            ),
            wait=wait_random_exponential(0.05, max=2.0),
            reraise=True,
        )
        try:
            async for attempt in retrying:
                with attempt:
                    response = await self._client.send(request, stream=True)
                    if response.status_code in _GATEWAY and not _is_problem(response):
                        await response.aclose()
                        raise _Away(f"{response.status_code} {response.reason_phrase}")
                    self._was_reached = True
                    if whole:
                        await response.aread()
                    return response
        except _RETRIED as error:
            raise self._unreachable(error) from error
        raise AssertionError("the loop above returns or raises")

    def _unreachable(self, error: Exception) -> EngineUnavailable:
        cause = error.__cause__ or error.__context__
        what = str(error) or type(cause or error).__name__
        return EngineUnavailable(f"the service at {self.url} does not answer: {what}")

    async def tell(self, path: str, message: Any) -> None:
        """Send one message over a WebSocket."""
        from websockets.asyncio.client import connect

        url = "ws" + self.url.removeprefix("http") + path
        headers = {"Authorization": self._client.headers["Authorization"]}
        async with connect(
            url, additional_headers=headers, open_timeout=CONNECT_SECONDS, max_queue=1
        ) as socket:
            await socket.send(json.dumps(message))


class Events:
    """The events of a command: `async for name, data in events`. It goes on where the connection broke off."""

    def __init__(self, wire: Wire, path: str) -> None:
        self._wire, self._path = wire, path
        self._last: str | None = None
        """The id of the last event."""
        self._response: httpx.Response | None = None
        self._found: AsyncIterator[tuple[str, str, bytes]] | None = None
        self.is_over = False

    def __aiter__(self) -> Events:
        return self

    async def __anext__(self) -> tuple[str, Any]:
        while not self.is_over:
            try:
                id, name, data = await anext(self._found or await self._opened())
            except (StopAsyncIteration, httpx.TransportError):
                await self.close()
                continue
            self._last = id or self._last
            self.is_over = name == "ended"
            return name, json.loads(data)
        raise StopAsyncIteration

    async def _opened(self) -> AsyncIterator[tuple[str, str, bytes]]:
        headers = {"Accept": "text/event-stream"}
        if self._last is not None:
            headers["Last-Event-ID"] = self._last
        self._response = await self._wire.opened(self._path, headers, SILENT_SECONDS)
        self.is_over = self._response.status_code == 204
        self._found = parsed(self._response.aiter_bytes())
        return self._found

    async def close(self) -> None:
        response, self._response, self._found = self._response, None, None
        if response is not None:
            await response.aclose()


async def parsed(pieces: AsyncIterator[bytes]) -> AsyncIterator[tuple[str, str, bytes]]:
    """Id, name and data of each event. An event that is cut off is left out."""
    buffer, id, name, data = bytearray(), "", "", b""
    async for piece in pieces:
        buffer += piece
        if len(buffer) > LINE_MAX:
            raise BelljarError("the service sent an event that is too long")
        *lines, rest = buffer.split(b"\n")
        buffer = bytearray(rest)
        for line in lines:
            field, _, value = bytes(line).rstrip(b"\r").partition(b":")
            value = value.removeprefix(b" ")
            if field == b"id":
                id = value.decode("ascii", "replace")
            elif field == b"event":
                name = value.decode("ascii", "replace")
            elif field == b"data":
                data = value
            elif not field and not value:
                if name:
                    yield id, name, data
                id, name, data = "", "", b""


def _query(query: Query | None) -> dict[str, Any]:
    return {
        name: str(value).lower() if isinstance(value, bool) else value
        for name, value in (query or {}).items()
        if value is not None
    }


# Problems.


def _is_problem(response: httpx.Response) -> bool:
    return str(response.headers.get("content-type", "")).startswith(
        "application/problem+json"
    )


def error_of(response: httpx.Response) -> BelljarError:
    problem: dict[str, Any] = {}
    if _is_problem(response):
        try:
            problem = response.json()
        except ValueError:
            problem = {}
    if not isinstance(problem, dict) or not problem.get("code"):
        problem = {
            "code": "failed",
            "detail": f"{response.status_code} {response.reason_phrase}: not a Belljar service?",
        }
    return error_from(problem)


def error_from(problem: Mapping[str, Any]) -> BelljarError:
    """The error that a local session would raise for this problem; ServiceError for what only a service refuses."""
    code, detail = (
        str(problem["code"]),
        str(problem.get("detail") or problem.get("title") or problem["code"]),
    )
    if code == "policy_denied":
        return _denied(problem)
    if code == "file_failed":
        number = getattr(numbers, str(problem.get("errno") or ""), 0)
        return errors.FileFailed(detail, errno=number)
    if code in _ENDED:
        return SandboxLost(detail)
    if code == "conflict" and not problem.get("paths"):
        return UsageError(detail)
    if code in _USAGE:
        return UsageError(detail)
    told = codec.error_from({**problem, "error": code, "message": detail})
    return (
        told
        if told.code == code and code != "failed"
        else ServiceError(detail, dict(problem))
    )


def _denied(problem: Mapping[str, Any]) -> errors.PolicyDenied:
    from belljar.policy import Verdict

    verdict = codec.decode(Verdict, problem.get("verdict"))
    denied = errors.PolicyDenied(verdict, declined=bool(problem.get("declined")))
    if denied.declined and problem.get("detail"):
        denied.args = (str(problem["detail"]),)  # what the person said
    return denied


def checked_url(url: str) -> str:
    """The address of a service. Off loopback the key must not travel in the clear."""
    parts = urlsplit(url if "://" in url else f"https://{url}")
    if (
        parts.scheme not in ("http", "https")
        or not parts.hostname
        or parts.username
        or parts.query
        or parts.fragment
    ):
        raise UsageError(
            f"{url!r} is not the address of a service, such as https://belljar.example.com"
        )
    local = parts.hostname in ("localhost", "::1") or parts.hostname.startswith("127.")
    if parts.scheme == "http" and not local:
        raise UsageError(
            f"{url}: use https://; over http:// everyone on the way could read the key"
        )
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
