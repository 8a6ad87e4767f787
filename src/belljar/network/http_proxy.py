"""The proxy's HTTP: CONNECT, and plain requests in absolute form (`GET http://host/path`).

h11 parses each message and writes it anew, and ambiguous ones are refused. So no server can read a request differently
than we did. A connection may carry many requests: each is checked.
"""

from __future__ import annotations

import contextlib
import re
import select
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import anyio
import h11
from anyio.abc import ByteStream, SocketAttribute

from belljar.network.http_headers import (
    AUTHORITY,
    HOST_AND_PORT,
    answer_headers,
    masked,
    port_of,
    request_headers,
)
from belljar.network.tunnel import CHUNK, GONE, HELLO_SECONDS, Meter, room, tunnel
from belljar.network.visit import Refused, Visit
from belljar.patterns import lazy_pattern
from belljar.turns import Turns

if TYPE_CHECKING:
    from belljar.network.gate import Gate, Target

HEAD_SECONDS = 30.0
LINGER_SECONDS = 1.0
NOT_UNDERSTOOD = "not a request that can be understood"
_ABSOLUTE = lazy_pattern(
    rb"http://" + HOST_AND_PORT + rb"((?:[/?][^#]*)?)", re.IGNORECASE
)
_BARE_OR_FOLDED = lazy_pattern(rb"\n[ \t]|(?<!\r)\n|\r(?!\n)")


class _Ended(Exception):
    """Nothing more comes on this connection."""


class HttpProxy:
    """One client connection.

    In a tunnel, `tunnel_to` is its host and `dialled` the open connection to it: all requests go there. `tls`: we are
    the TLS server of this client, and use TLS to the host.
    """

    __slots__ = (
        "_client",
        "_dialled",
        "_door",
        "_head_end",
        "_http",
        "_tls",
        "_tunnel_to",
        "_turns",
        "_unsent",
        "_upstream",
    )

    def __init__(
        self,
        door: Gate,
        client: ByteStream,
        tunnel_to: Target | None = None,
        dialled: ByteStream | None = None,
        *,
        tls: bool = False,
    ) -> None:
        self._door = door
        self._client = client
        self._tunnel_to = tunnel_to
        self._dialled = dialled
        self._tls = tls
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_MAX)
        self._upstream: Upstream | None = None
        self._unsent, self._turns = bytearray(), Turns.here()
        self._head_end = b""
        """The last bytes received of this request's head."""

    async def serve(self, first: bytes = b"") -> None:
        try:
            if first:
                self._feed(first)
            while True:
                request = await self._request()
                await (
                    self._connect(request)
                    if request.method == b"CONNECT"
                    else self._forward(request)
                )
                if (
                    self._http.our_state is not h11.DONE
                    or self._http.their_state is not h11.DONE
                ):
                    return
                self._http.start_next_cycle()
                self._head_end = b""
                self._check_line_ends(
                    self._http.trailing_data[0]
                )  # the start of the next request
        except h11.RemoteProtocolError as error:
            self._door.record_refusal(
                NOT_UNDERSTOOD
            )  # without h11's text, which may quote a secret
            await self._refuse(
                Refused(f"{NOT_UNDERSTOOD}: {error}", status=error.error_status_hint)
            )
        except Refused as error:
            if not error.recorded:
                self._door.record_refusal(str(error))
            await self._refuse(error)
        except _Ended:
            pass
        finally:
            if self._upstream is not None:
                await self._upstream.stream.aclose()

    # From the client.

    def _feed(self, data: bytes) -> None:
        if self._http.their_state is h11.IDLE:
            self._check_line_ends(data)
        self._http.receive_data(data)

    def _check_line_ends(self, data: bytes) -> None:
        """Refuse bare line ends and folded headers: parsers differ on them. No byte is searched twice, because a client
        may send them one by one."""
        text = self._head_end + data
        head, end, _ = text.partition(b"\r\n\r\n")
        if _BARE_OR_FOLDED.search(
            head if end else head.removesuffix(b"\r"), max(0, len(self._head_end) - 1)
        ):
            raise Refused(
                "bare line ends and folded headers are not accepted", status=400
            )
        self._head_end = text[-3:]

    async def _request(self) -> h11.Request:
        with anyio.move_on_after(
            HEAD_SECONDS if self._upstream is None else self._door.allow.limits.idle
        ):
            while True:
                event = self._http.next_event()
                if isinstance(event, h11.Request):
                    return event
                if event is not h11.NEED_DATA:
                    raise _Ended
                if self._turns.is_used_up:
                    await self._turns.next()
                try:
                    self._feed(await self._client.receive(CHUNK))
                except anyio.EndOfStream:
                    raise _Ended from None
        raise _Ended

    async def _refuse(self, error: Refused) -> None:
        body = f"belljar: {error}\n".encode()
        headers = [
            ("content-type", "text/plain; charset=utf-8"),
            ("content-length", str(len(body))),
            ("connection", "close"),
        ]
        try:
            if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                answer = h11.Response(
                    status_code=error.status,
                    headers=headers,
                    reason=b"Refused by belljar",
                )
                await self._send(answer, h11.Data(data=body))
                await self._wait_until_read()
        except (h11.LocalProtocolError, *GONE):
            pass

    async def _wait_until_read(self) -> None:
        """If we closed while the client still sends its body, it would get a reset instead of the answer."""
        with contextlib.suppress(
            NotImplementedError
        ):  # TLS has no EOF for one direction
            await self._client.send_eof()
        with anyio.move_on_after(LINGER_SECONDS):
            while True:
                await self._client.receive(CHUNK)

    # CONNECT.

    async def _connect(self, request: h11.Request) -> None:
        match = AUTHORITY.fullmatch(request.target)
        if self._tunnel_to is not None or match is None or match[2] is None:
            raise Refused("CONNECT needs host:port", status=400)
        host, port = match[1].decode("ascii", "replace"), port_of(match[2], 443)
        async with self._door.visit(host, port) as visit:
            target = await self._door.admit(host, port)
            async with await self._door.dial(target, visit) as upstream:
                first = self._after_connect()
                await self._client.send(b"HTTP/1.1 200 Connection established\r\n\r\n")
                # to save memory: a thousand tunnels may be open at once
                del self._http, request, match
                try:
                    await self._door.tunnel(
                        self._client, target, upstream, visit, first
                    )
                except Refused as error:  # too late for an answer
                    visit.refused_by(error)
        raise _Ended

    def _after_connect(self) -> bytes:
        """The bytes that the client sent right after its CONNECT request."""
        while (
            event := self._http.next_event()
        ) is not h11.PAUSED and event is not h11.NEED_DATA:
            if isinstance(event, h11.Data):
                raise Refused("a CONNECT with a body", status=400)
        return self._http.trailing_data[0]

    # Plain requests.

    async def _forward(self, request: h11.Request) -> None:
        host, port, path = self._destination(request)
        method = request.method.decode("ascii", "replace")
        async with self._door.visit(
            host, port, method, path.decode("ascii", "replace")
        ) as visit:
            target = self._tunnel_to or await self._door.admit(host, port)
            added = self._door.headers_for(target, self._tls)
            headers = request_headers(request, target.host, port, self._tls, added)
            if request.method.upper() in (b"TRACE", b"TRACK") and added:
                raise Refused(
                    "TRACE would return headers that must not enter the sandbox",
                    status=405,
                )
            upstream = await self._connected(target, visit)
            new_request = h11.Request(
                method=request.method, target=path, headers=headers, http_version=b"1.1"
            )
            await self._exchange(upstream, new_request, visit, added)

    def _destination(self, request: h11.Request) -> tuple[str, int, bytes]:
        if self._tunnel_to is not None:
            if not request.target.startswith(b"/") and request.target != b"*":
                raise Refused("in a tunnel only a path may be requested", status=400)
            return self._tunnel_to.host, self._tunnel_to.port, request.target
        match = _ABSOLUTE.fullmatch(request.target)
        if match is None:
            raise Refused(
                "this is a proxy: ask for http://host/path, or use CONNECT for https",
                status=400,
            )
        path = match[3] if match[3].startswith(b"/") else b"/" + match[3]
        return match[1].decode("ascii", "replace"), port_of(match[2], 80), path

    async def _connected(self, target: Target, visit: Visit) -> Upstream:
        """The connection of the last request if it can be used again, else a new one."""
        last = self._upstream
        if last is not None and last.target == target and last.is_idle:
            visit.address = last.address
            last.http.start_next_cycle()
            return last
        if last is not None:
            self._upstream = None
            await last.stream.aclose()
        dialled, self._dialled = self._dialled, None
        stream = dialled or await self._door.dial(target, visit)
        self._upstream = Upstream(
            target,
            await self._with_tls(target, stream) if self._tls else stream,
            visit.address,
        )
        return self._upstream

    async def _with_tls(self, target: Target, stream: ByteStream) -> ByteStream:
        from anyio.streams.tls import TLSStream

        assert self._door.authority is not None
        context = self._door.authority.client_context()
        try:
            with anyio.fail_after(HELLO_SECONDS):
                return await TLSStream.wrap(
                    stream,
                    hostname=target.host,
                    ssl_context=context,
                    standard_compatible=False,
                )
        except GONE as error:
            await stream.aclose()
            raise Refused(
                f"{target.host} offers no TLS connection that can be trusted ({error})",
                status=502,
            ) from error

    async def _exchange(
        self,
        upstream: Upstream,
        request: h11.Request,
        visit: Visit,
        added: Mapping[str, str],
    ) -> None:
        meter = self._door.meter(visit)
        switched, broken = False, "nothing came for too long"
        try:
            async with anyio.create_task_group() as both:
                meter.watch(both.cancel_scope)
                try:
                    upstream.add(request)
                    await upstream.flush(meter)
                    both.start_soon(self._upload, upstream, meter, both.cancel_scope)
                    switched = await self._answer(upstream, meter, added.values())
                    broken = ""
                except (
                    h11.ProtocolError,
                    *GONE,
                ) as error:  # handled below: the task group would wrap it
                    broken = f"the connection broke: {type(error).__name__}"
                both.cancel_scope.cancel()
        finally:
            meter.stop()
        if broken:
            visit.verdict, visit.reason = "failed", visit.reason or broken
            self._upstream = None
            await upstream.stream.aclose()
            await self._refuse(
                Refused(f"{visit.host} broke off the connection", status=502)
            )
            raise _Ended
        if switched:
            await self._tunnel_on(upstream, meter)

    async def _upload(
        self, upstream: Upstream, meter: Meter, scope: anyio.CancelScope
    ) -> None:
        """Pass the request's body on, without waiting for its end."""
        try:
            while True:
                event = self._http.next_event()
                if event is h11.NEED_DATA:
                    await upstream.flush(meter)
                    self._feed(await self._client.receive(CHUNK))
                elif isinstance(event, h11.Data):
                    upstream.add(h11.Data(data=event.data))
                elif isinstance(event, h11.EndOfMessage):
                    upstream.add(
                        h11.EndOfMessage()
                    )  # without trailers: nobody checked those headers
                    await upstream.flush(meter)
                    return
                else:
                    return
                if self._turns.is_used_up:
                    await upstream.flush(meter)
                    await self._turns.next()
        except (h11.ProtocolError, *GONE):
            scope.cancel()

    async def _answer(
        self, upstream: Upstream, meter: Meter, secrets: Iterable[str]
    ) -> bool:
        """Pass the answer on; True if it switches to another protocol."""
        try:
            while True:
                event = upstream.http.next_event()
                if event is h11.NEED_DATA:
                    await self._flush()
                    await upstream.receive(await room(self._client), meter)
                elif isinstance(event, h11.InformationalResponse | h11.Response):
                    self._add_head(event, secrets)
                    if event.status_code == 101:
                        return True
                elif isinstance(event, h11.Data):
                    self._add(h11.Data(data=event.data))
                elif isinstance(event, h11.EndOfMessage):
                    self._add(h11.EndOfMessage())
                    return False
                else:
                    raise anyio.EndOfStream
                if self._turns.is_used_up:
                    await self._flush()
                    await self._turns.next()
        finally:
            await self._flush()

    def _add_head(
        self, event: h11.InformationalResponse | h11.Response, secrets: Iterable[str]
    ) -> None:
        headers = answer_headers(
            event.headers, secrets, switching=event.status_code == 101
        )
        reason = masked(bytes(event.reason), secrets)
        self._add(
            type(event)(status_code=event.status_code, headers=headers, reason=reason)
        )

    def _add(self, event: h11.Event) -> None:
        """To be sent with the next `_flush`: an answer may come in pieces of a byte."""
        self._unsent += self._http.send(event) or b""

    async def _flush(self) -> None:
        data, self._unsent = bytes(self._unsent), bytearray()
        if data:
            await self._client.send(data)

    async def _send(self, *events: h11.Event) -> None:
        for event in events:
            self._add(event)
        await self._flush()

    async def _tunnel_on(self, upstream: Upstream, meter: Meter) -> None:
        """After a switch of protocols: pass bytes both ways."""
        self._upstream = None
        async with upstream.stream:
            early = upstream.http.trailing_data[0]
            if early:
                await self._client.send(early)
            await tunnel(
                self._client, upstream.stream, meter, self._http.trailing_data[0]
            )
        raise _Ended


HEAD_MAX = 32 << 10


class Upstream:
    """The proxy's connection to the host of a request."""

    def __init__(self, target: Target, stream: ByteStream, address: str) -> None:
        self.target = target
        self.stream = stream
        self.address = address
        self.http = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_MAX)
        self._unsent = bytearray()

    @property
    def is_idle(self) -> bool:
        """Whether it can take another request: the last one is done, and the server has not hung up since."""
        return (
            self.http.our_state is h11.DONE
            and self.http.their_state is h11.DONE
            and not self._hung_up()
        )

    def _hung_up(self) -> bool:
        poll = select.poll()
        poll.register(
            self.stream.extra(SocketAttribute.raw_socket).fileno(), select.POLLRDHUP
        )
        return bool(poll.poll(0))

    def add(self, event: h11.Event) -> None:
        """To be sent with the next `flush`: a body may come in pieces of a byte."""
        self._unsent += self.http.send(event) or b""

    async def flush(self, meter: Meter) -> None:
        data, self._unsent = bytes(self._unsent), bytearray()
        if data:
            meter.sent(len(data))
            await self.stream.send(data)

    async def receive(self, most: int, meter: Meter) -> None:
        try:
            data = await self.stream.receive(most)
        except anyio.EndOfStream:
            data = b""
        meter.received(len(data))
        self.http.receive_data(data)
