"""The proxy's HTTP: CONNECT, and plain requests in absolute form. h11 parses and writes every message anew.

Nothing of a request is passed on as the client wrote it, so what two parsers might read differently never leaves here;
what even a lenient parser would have to guess at is refused. A connection may carry many requests: each is judged.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

import anyio
import h11
from anyio.abc import ByteStream

from belljar.network.allow import BadHost, host_of
from belljar.network.tunnel import CHUNK, GONE, Meter, tunnel
from belljar.network.visit import Refused, Visit

if TYPE_CHECKING:
    from belljar.network.door import Door, Target

HEAD_MAX = 32 << 10
HEAD_SECONDS = 30.0
_ABSOLUTE = re.compile(rb"http://(\[[0-9A-Fa-f:.]+\]|[^/?#@:\[\]]+)(?::([0-9]{1,5}))?((?:[/?][^#]*)?)", re.IGNORECASE)
_AUTHORITY = re.compile(rb"(\[[0-9A-Fa-f:.]+\]|[^/?#@:\[\]]+)(?::([0-9]{1,5}))?")
_PER_HOP = {
    b"connection", b"proxy-connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"te",
    b"trailer", b"upgrade", b"host",
}  # fmt: skip
_FOLDED = re.compile(rb"\n[ \t]|(?<!\r)\n|\r(?!\n)")

Headers = list[tuple[bytes, bytes]]


class _Over(Exception):
    """This connection has nothing more to say."""


class HttpProxy:
    """One client connection. With `inside`, one from inside a CONNECT, whose TLS (`tls`) we ended ourselves: its
    requests are for that host only."""

    def __init__(self, door: Door, client: ByteStream, inside: Target | None = None, *, tls: bool = True) -> None:
        self._door, self._client, self._inside = door, client, inside
        self._tls = tls and inside is not None
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_MAX)
        self._upstream: _Upstream | None = None
        self._head = b""

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
        except h11.RemoteProtocolError as error:
            await self._refuse(
                Refused(f"not a request that can be understood: {error}", status=error.error_status_hint)
            )
        except Refused as error:
            await self._refuse(error)
        except _Over:
            pass
        finally:
            if self._upstream is not None:
                await self._upstream.stream.aclose()

    # What the client says.

    def _take(self, data: bytes) -> None:
        """Bare line feeds and folded headers are read in more than one way: not by us."""
        if self._http.their_state is h11.IDLE:
            # What ended an earlier request may have brought the first half of this one's line end.
            self._head += data if self._head or data[:1] != b"\n" else b"\r" + data
            head, end, _ = self._head.partition(b"\r\n\r\n")
            if _FOLDED.search(head if end else head.removesuffix(b"\r")):
                raise Refused("bare line ends and folded headers are not accepted", status=400)
        self._http.receive_data(data)

    async def _request(self) -> h11.Request:
        with anyio.move_on_after(HEAD_SECONDS if self._upstream is None else self._door.allow.limits.idle):
            while True:
                event = self._http.next_event()
                if isinstance(event, h11.Request):
                    self._head = b""
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
        except (h11.LocalProtocolError, *GONE):
            pass

    # CONNECT.

    async def _connect(self, request: h11.Request) -> None:
        from belljar.network.door import Unreachable

        match = _AUTHORITY.fullmatch(request.target)
        if self._inside is not None or match is None or match[2] is None:
            raise Refused("CONNECT needs host:port", status=400)
        host, port = match[1].decode("ascii", "replace"), _port(match[2], 443)
        async with self._door.visit(host, port) as visit:
            target = await self._door.admit(host, port)
            if self._door.headers_for(target.host) and port == 443:
                await self._terminate(target, visit)
                raise _Over
            try:
                upstream = await self._door.dial(target, visit)
            except Unreachable as error:
                await self._refuse(Refused(str(error), status=502))
                raise _Over from error
            async with upstream:
                await self._client.send(b"HTTP/1.1 200 Connection established\r\n\r\n")
                try:
                    await self._door.tunnel(self._client, target, upstream, visit, self._rest())
                except Refused as error:
                    visit.verdict, visit.reason = "refused", str(error)
        raise _Over

    def _rest(self) -> bytes:
        """What the client sent behind its request."""
        while (event := self._http.next_event()) is not h11.PAUSED and event is not h11.NEED_DATA:
            if isinstance(event, h11.Data):
                raise Refused("a CONNECT with a body", status=400)
        return self._http.trailing_data[0]

    async def _terminate(self, target: Target, visit: Visit) -> None:
        """End the client's TLS here, so that headers can be added to what is inside."""
        from anyio.streams.tls import TLSStream

        if self._door.authority is None:
            raise Refused(f"{target.host} has headers set, but no certificate authority was made", status=502)
        await self._client.send(b"HTTP/1.1 200 Connection established\r\n\r\n")
        rest = self._rest()
        client = _Ahead(self._client, rest) if rest else self._client
        visit.method = "CONNECT (TLS ended here)"
        context = self._door.authority.server_context(target.host)
        async with await TLSStream.wrap(
            client, server_side=True, ssl_context=context, standard_compatible=False
        ) as inner:
            await HttpProxy(self._door, inner, target).serve()

    # Plain requests.

    async def _forward(self, request: h11.Request) -> None:
        from belljar.network.door import Unreachable

        host, port, path = self._destination(request)
        headers = _checked(request, host, port, self._tls)
        method = request.method.decode("ascii", "replace")
        async with self._door.visit(host, port, method, path.decode("ascii", "replace")) as visit:
            target = self._inside or await self._door.admit(host, port)
            if request.method == b"TRACE" and self._door.headers_for(target.host):
                raise Refused("TRACE would bring back headers that must stay outside", status=405)
            try:
                upstream = await self._reach(target, visit)
            except Unreachable as error:
                raise Refused(str(error), status=502) from error
            secret = self._door.headers_for(target.host)
            given = {name.lower().encode() for name in secret}
            headers = [(name, value) for name, value in headers if name not in given]
            headers += [(name.encode(), value.encode()) for name, value in secret.items()]
            await self._exchange(upstream, request, path, headers, visit, [v.encode() for v in secret.values()])

    def _destination(self, request: h11.Request) -> tuple[str, int, bytes]:
        if self._inside is not None:
            if not request.target.startswith(b"/") and request.target != b"*":
                raise Refused("only paths may be asked for here", status=400)
            return self._inside.host, self._inside.port, request.target
        match = _ABSOLUTE.fullmatch(request.target)
        if match is None:
            raise Refused("this is a proxy: ask for http://host/path, or use CONNECT for https", status=400)
        path = match[3] if match[3].startswith(b"/") else b"/" + match[3]
        return match[1].decode("ascii", "replace"), _port(match[2], 80), path

    async def _reach(self, target: Target, visit: Visit) -> _Upstream:
        kept = self._upstream
        if kept is not None and kept.target == target and kept.is_idle:
            visit.address = kept.address
            kept.http.start_next_cycle()
            return kept
        if kept is not None:
            self._upstream = None
            await kept.stream.aclose()
        stream: ByteStream = await self._door.dial(target, visit)
        if self._tls and self._door.authority is not None:
            from anyio.streams.tls import TLSStream

            try:
                stream = await TLSStream.wrap(
                    stream,
                    hostname=target.host,
                    ssl_context=self._door.authority.client_context(),
                    standard_compatible=False,
                )
            except OSError as error:
                raise Refused(f"{target.host}: {error}", status=502) from error
        self._upstream = _Upstream(target, stream, visit.address)
        return self._upstream

    async def _exchange(
        self,
        upstream: _Upstream,
        request: h11.Request,
        path: bytes,
        headers: Headers,
        visit: Visit,
        secrets: list[bytes],
    ) -> None:
        meter = self._door.meter(visit)
        asked = h11.Request(method=request.method, target=path, headers=headers, http_version=b"1.1")
        switched, broken = False, None
        async with anyio.create_task_group() as both:
            try:
                await upstream.send(asked, meter)
                both.start_soon(self._upload, upstream, meter, both.cancel_scope)
                switched = await self._answer(upstream, meter, secrets)
            except (h11.ProtocolError, *GONE) as error:  # carried past the group, which would wrap it
                broken = error
            both.cancel_scope.cancel()
        if broken is not None:
            visit.verdict, visit.reason = "failed", f"the connection broke: {type(broken).__name__}"
            self._upstream = None
            await upstream.stream.aclose()
            await self._refuse(Refused(f"{visit.host} broke off the connection", status=502))
            raise _Over from broken
        if switched:
            await self._raw(upstream, meter)

    async def _upload(self, upstream: _Upstream, meter: Meter, scope: anyio.CancelScope) -> None:
        """The request's body, as it comes."""
        try:
            while True:
                event = self._http.next_event()
                if event is h11.NEED_DATA:
                    self._take(await self._client.receive(CHUNK))
                elif isinstance(event, h11.Data):
                    await upstream.send(h11.Data(data=event.data), meter)
                elif isinstance(event, h11.EndOfMessage):
                    await upstream.send(h11.EndOfMessage(headers=event.headers), meter)
                    return
                else:
                    return
        except (h11.ProtocolError, *GONE):
            scope.cancel()

    async def _answer(self, upstream: _Upstream, meter: Meter, secrets: list[bytes]) -> bool:
        """Pass the answer on; True if both sides go on with another protocol."""
        while True:
            event = await upstream.next_event(meter)
            if isinstance(event, h11.InformationalResponse | h11.Response):
                switching = event.status_code == 101
                kept = _passed_on(event.headers, secrets, switching)
                await self._send(type(event)(status_code=event.status_code, headers=kept, reason=event.reason))
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

    async def _raw(self, upstream: _Upstream, meter: Meter) -> None:
        self._upstream = None
        async with upstream.stream:
            early = upstream.http.trailing_data[0]
            if early:
                await self._client.send(early)
            await tunnel(self._client, upstream.stream, meter, self._http.trailing_data[0])
        raise _Over


class _Upstream:
    def __init__(self, target: Target, stream: ByteStream, address: str) -> None:
        self.target, self.stream, self.address = target, stream, address
        self.http = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_MAX)

    @property
    def is_idle(self) -> bool:
        return self.http.our_state is h11.DONE and self.http.their_state is h11.DONE

    async def send(self, event: h11.Event, meter: Meter) -> None:
        if data := self.http.send(event):
            meter.sent(len(data))
            await self.stream.send(data)

    async def next_event(self, meter: Meter) -> object:
        while (event := self.http.next_event()) is h11.NEED_DATA:
            try:
                data = await self.stream.receive(CHUNK)
            except anyio.EndOfStream:
                data = b""
            meter.received(len(data))
            self.http.receive_data(data)
        return event


class _Ahead(ByteStream):
    """A stream some of whose bytes were read already."""

    def __init__(self, stream: ByteStream, first: bytes) -> None:
        self._stream, self._first = stream, first

    async def receive(self, max_bytes: int = 65536) -> bytes:
        first, self._first = self._first[:max_bytes], self._first[max_bytes:]
        return first or await self._stream.receive(max_bytes)

    async def send(self, item: bytes) -> None:
        await self._stream.send(item)

    async def send_eof(self) -> None:
        await self._stream.send_eof()

    async def aclose(self) -> None:
        await self._stream.aclose()


def _port(text: bytes | None, default: int) -> int:
    port = int(text) if text else default
    if not 1 <= port <= 65535:
        raise Refused(f"{port} is not a port", status=400)
    return port


def _checked(request: h11.Request, host: str, port: int, tls: bool) -> Headers:
    """The headers that go on, with a Host of our own; Refused where the request says two things at once."""
    names = [name for name, _ in request.headers]
    if b"transfer-encoding" in names and b"content-length" in names:
        raise Refused("both Content-Length and Transfer-Encoding", status=400)
    hosts = [value for name, value in request.headers if name == b"host"]
    if any(not _same_host(value, host, port, tls) for value in hosts):
        raise Refused("the Host header names another host than the request", status=400)
    listed = {
        each.strip().lower() for name, value in request.headers if name == b"connection" for each in value.split(b",")
    }
    kept = [(n, v) for n, v in request.headers if n not in _PER_HOP and n not in listed]
    default = 443 if tls else 80
    shown = host if port == default else f"{host}:{port}"
    kept.insert(0, (b"host", shown.encode("ascii", "replace")))
    if b"upgrade" in listed:
        kept += [(b"connection", b"upgrade"), *((n, v) for n, v in request.headers if n == b"upgrade")]
    return kept


def _same_host(value: bytes, host: str, port: int, tls: bool) -> bool:
    match = _AUTHORITY.fullmatch(value)
    if match is None:
        return False
    try:
        same = host_of(match[1].decode("ascii")) == host_of(host)
    except (BadHost, UnicodeDecodeError):
        return False
    return same and _port(match[2], 443 if tls else 80) == port


def _passed_on(headers: Iterable[tuple[bytes, bytes]], secrets: list[bytes], switching: bool) -> Headers:
    listed = {each.strip().lower() for name, value in headers if name == b"connection" for each in value.split(b",")}
    dropped = _PER_HOP - {b"host"} | listed
    kept = [(n, _without(v, secrets)) for n, v in headers if n not in dropped]
    if switching:
        kept += [(b"connection", b"upgrade"), *((n, v) for n, v in headers if n == b"upgrade")]
    return kept


def _without(value: bytes, secrets: list[bytes]) -> bytes:
    for secret in secrets:
        for part in {secret, secret.rpartition(b" ")[2]}:
            if part:
                value = value.replace(part, b"***")
    return value
