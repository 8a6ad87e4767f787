"""The proxy's HTTP: CONNECT, and plain requests in absolute form. h11 parses and writes every message anew.

Nothing of a request is passed on as the client wrote it, so what two parsers might read differently never leaves here;
what even a lenient parser would have to guess at is refused. A connection may carry many requests: each is judged.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

import anyio
import h11
from anyio.abc import ByteStream

from belljar.network.http_headers import AUTHORITY, answer_headers, port_of, request_headers, without
from belljar.network.tunnel import CHUNK, GONE, HELLO_SECONDS, Meter, tunnel
from belljar.network.upstream import HEAD_MAX, Upstream
from belljar.network.visit import Refused, Visit
from belljar.patterns import lazy_pattern

if TYPE_CHECKING:
    from belljar.network.door import Door, Target

HEAD_SECONDS = 30.0
LINGER = 1.0
NOT_UNDERSTOOD = "not a request that can be understood"
_ABSOLUTE = lazy_pattern(rb"http://(\[[0-9A-Fa-f:.]+\]|[^/?#@:\[\]]+)(?::([0-9]{1,5}))?((?:[/?][^#]*)?)", re.IGNORECASE)
_FOLDED = lazy_pattern(rb"\n[ \t]|(?<!\r)\n|\r(?!\n)")


class _Over(Exception):
    """This connection has nothing more to say."""


class HttpProxy:
    """One client connection. With `inside`, what is said in a tunnel to that host, for which `dialled` is open: all
    requests are for that host. `tls`: the client's TLS ended here, and ours begins."""

    __slots__ = ("_client", "_dialled", "_door", "_http", "_inside", "_seen", "_tls", "_upstream")

    def __init__(
        self, door: Door, client: ByteStream, inside: Target | None = None, dialled: ByteStream | None = None, *,
        tls: bool = False,
    ) -> None:  # fmt: skip
        self._door, self._client, self._inside, self._dialled, self._tls = door, client, inside, dialled, tls
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_MAX)
        self._upstream: Upstream | None = None
        self._seen = b""
        """The last of this request's head."""

    async def serve(self, first: bytes = b"") -> None:
        try:
            if first:
                self._take(first)
            while True:
                request = await self._request()
                await (self._connect(request) if request.method == b"CONNECT" else self._forward(request))
                if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
                    return
                self._http.start_next_cycle()
                self._seen = b""
                self._check_line_ends(self._http.trailing_data[0])  # what came behind that request
        except h11.RemoteProtocolError as error:
            self._door.turn_away(NOT_UNDERSTOOD)  # without the line, which may hold a secret
            await self._refuse(Refused(f"{NOT_UNDERSTOOD}: {error}", status=error.error_status_hint))
        except Refused as error:
            if not error.recorded:
                self._door.turn_away(str(error))
            await self._refuse(error)
        except _Over:
            pass
        finally:
            if self._upstream is not None:
                await self._upstream.stream.aclose()

    # What the client says.

    def _take(self, data: bytes) -> None:
        if self._http.their_state is h11.IDLE:
            self._check_line_ends(data)
        self._http.receive_data(data)

    def _check_line_ends(self, data: bytes) -> None:
        """Bare line feeds and folded headers are read in more than one way: not by us. What was looked at is not looked
        at again: a client may send byte by byte."""
        text = self._seen + data
        head, end, _ = text.partition(b"\r\n\r\n")
        if _FOLDED.search(head if end else head.removesuffix(b"\r"), max(0, len(self._seen) - 1)):
            raise Refused("bare line ends and folded headers are not accepted", status=400)
        self._seen = text[-3:]

    async def _request(self) -> h11.Request:
        with anyio.move_on_after(HEAD_SECONDS if self._upstream is None else self._door.allow.limits.idle):
            while True:
                event = self._http.next_event()
                if isinstance(event, h11.Request):
                    return event
                if event is not h11.NEED_DATA:
                    raise _Over
                try:
                    self._take(await self._client.receive(CHUNK))
                except anyio.EndOfStream:
                    raise _Over from None
        raise _Over

    async def _refuse(self, error: Refused) -> None:
        body = f"belljar: {error}\n".encode()
        headers = [
            ("content-type", "text/plain; charset=utf-8"),
            ("content-length", str(len(body))),
            ("connection", "close"),
        ]
        try:
            if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                answer = h11.Response(status_code=error.status, headers=headers, reason=b"Refused by belljar")
                await self._client.send(
                    (self._http.send(answer) or b"") + (self._http.send(h11.Data(data=body)) or b"")
                )
                await self._wait_until_read()
        except (h11.LocalProtocolError, *GONE):
            pass

    async def _wait_until_read(self) -> None:
        """A client that still sends its body would get a reset instead of the answer, were it hung up on at once."""
        with contextlib.suppress(NotImplementedError):  # by TLS
            await self._client.send_eof()
        with anyio.move_on_after(LINGER):
            while True:
                await self._client.receive(CHUNK)

    # CONNECT.

    async def _connect(self, request: h11.Request) -> None:
        from belljar.network.door import Unreachable

        match = AUTHORITY.fullmatch(request.target)
        if self._inside is not None or match is None or match[2] is None:
            raise Refused("CONNECT needs host:port", status=400)
        host, port = match[1].decode("ascii", "replace"), port_of(match[2], 443)
        async with self._door.visit(host, port) as visit:
            target = await self._door.admit(host, port)
            try:
                upstream = await self._door.dial(target, visit)
            except Unreachable as error:
                await self._refuse(Refused(str(error), status=502))
                raise _Over from error
            async with upstream:
                first = self._rest()
                await self._client.send(b"HTTP/1.1 200 Connection established\r\n\r\n")
                del self._http, request, match  # a thousand tunnels may be open at once
                try:
                    await self._door.tunnel(self._client, target, upstream, visit, first)
                except Refused as error:
                    visit.verdict, visit.reason = error.verdict, str(error)
        raise _Over

    def _rest(self) -> bytes:
        """What the client sent behind its request."""
        while (event := self._http.next_event()) is not h11.PAUSED and event is not h11.NEED_DATA:
            if isinstance(event, h11.Data):
                raise Refused("a CONNECT with a body", status=400)
        return self._http.trailing_data[0]

    # Plain requests.

    async def _forward(self, request: h11.Request) -> None:
        from belljar.network.door import Unreachable

        host, port, path = self._destination(request)
        method = request.method.decode("ascii", "replace")
        async with self._door.visit(host, port, method, path.decode("ascii", "replace")) as visit:
            target = self._inside or await self._door.admit(host, port)
            secret = self._door.headers_for(target, self._tls)
            headers = request_headers(request, target.host, port, self._tls, secret)
            if request.method.upper() in (b"TRACE", b"TRACK") and secret:
                raise Refused("TRACE would bring back headers that must stay outside", status=405)
            try:
                upstream = await self._reach(target, visit)
            except Unreachable as error:
                raise Refused(str(error), status=502) from error
            asked = h11.Request(method=request.method, target=path, headers=headers, http_version=b"1.1")
            await self._exchange(upstream, asked, visit, secret)

    def _destination(self, request: h11.Request) -> tuple[str, int, bytes]:
        if self._inside is not None:
            if not request.target.startswith(b"/") and request.target != b"*":
                raise Refused("only paths may be asked for here", status=400)
            return self._inside.host, self._inside.port, request.target
        match = _ABSOLUTE.fullmatch(request.target)
        if match is None:
            raise Refused("this is a proxy: ask for http://host/path, or use CONNECT for https", status=400)
        path = match[3] if match[3].startswith(b"/") else b"/" + match[3]
        return match[1].decode("ascii", "replace"), port_of(match[2], 80), path

    async def _reach(self, target: Target, visit: Visit) -> Upstream:
        kept = self._upstream
        if kept is not None and kept.target == target and kept.is_idle:
            visit.address = kept.address
            kept.http.start_next_cycle()
            return kept
        if kept is not None:
            self._upstream = None
            await kept.stream.aclose()
        dialled, self._dialled = self._dialled, None
        stream = dialled or await self._door.dial(target, visit)
        self._upstream = Upstream(target, await self._secured(target, stream) if self._tls else stream, visit.address)
        return self._upstream

    async def _secured(self, target: Target, stream: ByteStream) -> ByteStream:
        from anyio.streams.tls import TLSStream

        assert self._door.authority is not None
        context = self._door.authority.client_context()
        try:
            with anyio.fail_after(HELLO_SECONDS):
                return await TLSStream.wrap(
                    stream, hostname=target.host, ssl_context=context, standard_compatible=False
                )
        except (OSError, TimeoutError, *GONE) as error:
            await stream.aclose()
            raise Refused(
                f"{target.host} offers no TLS connection that can be trusted ({error})", status=502
            ) from error

    async def _exchange(
        self, upstream: Upstream, asked: h11.Request, visit: Visit, secret: Mapping[str, str]
    ) -> None:  # fmt: skip
        meter = self._door.meter(visit)
        switched, broken = False, "nothing came for too long"
        try:
            async with anyio.create_task_group() as both:
                meter.watch(both.cancel_scope)
                try:
                    await upstream.send(asked, meter)
                    both.start_soon(self._upload, upstream, meter, both.cancel_scope)
                    switched = await self._answer(upstream, meter, secret)
                    broken = ""
                except (h11.ProtocolError, *GONE) as error:  # carried past the group, which would wrap it
                    broken = f"the connection broke: {type(error).__name__}"
                both.cancel_scope.cancel()
        finally:
            meter.rest()
        if broken:
            visit.verdict, visit.reason = "failed", visit.reason or broken
            self._upstream = None
            await upstream.stream.aclose()
            await self._refuse(Refused(f"{visit.host} broke off the connection", status=502))
            raise _Over
        if switched:
            await self._raw(upstream, meter)

    async def _upload(self, upstream: Upstream, meter: Meter, scope: anyio.CancelScope) -> None:
        """The request's body, as it comes."""
        try:
            while True:
                event = self._http.next_event()
                if event is h11.NEED_DATA:
                    self._take(await self._client.receive(CHUNK))
                elif isinstance(event, h11.Data):
                    await upstream.send(h11.Data(data=event.data), meter)
                elif isinstance(event, h11.EndOfMessage):
                    await upstream.send(h11.EndOfMessage(), meter)  # no trailers: they would be headers nobody checked
                    return
                else:
                    return
        except (h11.ProtocolError, *GONE):
            scope.cancel()

    async def _answer(self, upstream: Upstream, meter: Meter, secret: Mapping[str, str]) -> bool:
        """Pass the answer on; True if both sides go on with another protocol."""
        while True:
            event = await upstream.next_event(meter)
            if isinstance(event, h11.InformationalResponse | h11.Response):
                switching = event.status_code == 101
                kept = answer_headers(event.headers, secret.values(), switching)
                reason = without(bytes(event.reason), secret.values())
                await self._send(type(event)(status_code=event.status_code, headers=kept, reason=reason))
                if switching:
                    return True
            elif isinstance(event, h11.Data):
                await self._send(h11.Data(data=event.data))
            elif isinstance(event, h11.EndOfMessage):
                await self._send(h11.EndOfMessage())
                return False
            else:
                raise anyio.EndOfStream

    async def _send(self, event: h11.Event) -> None:
        if data := self._http.send(event):
            await self._client.send(data)

    async def _raw(self, upstream: Upstream, meter: Meter) -> None:
        self._upstream = None
        async with upstream.stream:
            early = upstream.http.trailing_data[0]
            if early:
                await self._client.send(early)
            await tunnel(self._client, upstream.stream, meter, self._http.trailing_data[0])
        raise _Over
