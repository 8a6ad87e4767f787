"""The network door: decides for every connection (CONNECT, plain HTTP, SOCKS5) whether it may be made, and makes it.

It fails closed: a name that does not resolve, a forbidden address, an unanswered question and a reached limit all end
in `Refused`. It connects to the very address that it checked.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import anyio
from anyio.abc import ByteStream

from belljar.network import sockets
from belljar.network.addresses import PRIVATE, Resolve, Resolver, Unresolved, refusal
from belljar.network.allow import Address, Allow, BadHost, host_of, in_url
from belljar.network.gate import Target
from belljar.network.sockets import Share
from belljar.network.tls import looks_like_tls
from belljar.network.tunnel import (
    GONE,
    HELLO_SECONDS,
    HelloGuard,
    Meter,
    PartlyRead,
    checked_hello,
    first_data,
    is_http2_settings,
    looks_like_http,
    read_while_unclear,
    tunnel,
)
from belljar.network.visit import NOT_ALLOWED, Refused, Visit

if TYPE_CHECKING:
    from belljar.network.authority import Authority

Ask = Callable[[str, int], Awaitable[bool]]
HEAD_SECONDS = 30.0
REFUSALS_RECORDED = 300  # per minute: the audit trail is limited, and refusals must not push everything else out
DIALS = 64  # at once: a connection needs twice its memory until it is established
ASKED_MAX = (
    100  # hosts per session: a program must not wear down the person who approves
)
VISITS_KEPT = 10_000  # each command takes its own into its result when it ends


class Door:
    def __init__(
        self,
        allow: Allow,
        *,
        record: Callable[[dict[str, Any]], None] = lambda _: None,
        ask: Ask | None = None,
        resolve: Resolve | None = None,
        authority: Authority | None = None,
    ) -> None:
        self.allow, self.authority = allow, authority
        self.visits: deque[Visit] = deque(maxlen=VISITS_KEPT)
        self._record, self._ask = record, ask
        self._resolve = resolve or Resolver()
        self._answers: dict[str, bool] = {}
        self._asking: dict[str, anyio.Event] = {}
        self._one_question = anyio.Lock()
        self._dials = anyio.Semaphore(DIALS, fast_acquire=True)
        self._bytes = 0
        self._share = Share()
        self._accepted_at: deque[float] = deque()
        self._refusals_since = 0.0
        self._refusals = 0
        self._unrecorded = 0

    # One client.

    async def serve(self, client: ByteStream) -> None:
        """Serve one connection from the sandbox until it ends."""
        from belljar.network.http_proxy import HttpProxy
        from belljar.network.socks import serve_socks

        try:
            with anyio.move_on_after(self.allow.limits.total):
                if not self._has_room():
                    return
                with self._share:
                    with anyio.fail_after(HEAD_SECONDS):
                        first = await client.receive(65536)
                    if first[:1] == b"\x05":
                        await serve_socks(self, client, first)
                    else:
                        await HttpProxy(self, client).serve(first)
        except GONE:
            pass
        finally:
            with anyio.CancelScope(shield=True):
                await client.aclose()

    def _has_room(self) -> bool:
        now, limits = time.monotonic(), self.allow.limits
        while self._accepted_at and self._accepted_at[0] < now - 60:
            self._accepted_at.popleft()
        full = self._share.open >= limits.connections or self._share.is_used_up
        if full or len(self._accepted_at) >= limits.per_minute:
            self.record_refusal("too many connections")
            return False
        self._accepted_at.append(now)
        return True

    # Who may connect to what.

    async def admit(self, host: str, port: int) -> Target:
        """Check that `host` is allowed, and look up its addresses; Refused if it is not."""
        try:
            name = host_of(host)
        except BadHost as error:
            raise Refused(f"{error}", status=400) from error
        rule = self.allow.rule_for(name, port)
        if rule is None and not await self._is_approved(name, port):
            raise Refused(self._advice(name, port))
        any_protocol = rule is not None and rule.any_protocol
        if not isinstance(name, str):
            return Target(
                str(name), port, (name,), by_name=False, any_protocol=any_protocol
            )
        return Target(
            name,
            port,
            await self._addresses(name, port),
            by_name=True,
            any_protocol=any_protocol,
        )

    @staticmethod
    def _advice(host: str | Address, port: int) -> str:
        shown = in_url(host)
        option = shown if port in (80, 443) else f"{shown}:{port}"
        return (
            f"{NOT_ALLOWED} {shown} on port {port}. Do without it, "
            f"or tell the person in charge: `--allow {option}` would let it through"
        )

    async def _addresses(self, name: str, port: int) -> tuple[Address, ...]:
        try:
            addresses = await self._resolve(name, port)
        except Unresolved as error:
            raise Refused(str(error), status=502) from error
        reasons = {
            ip: None if self.allow.allows_address(name, ip, port) else refusal(ip)
            for ip in addresses
        }
        good = tuple(ip for ip, why in reasons.items() if why is None)
        if not good:
            why = next((why for why in reasons.values() if why), "no address")
            form = (
                f"; the name alone does not allow that: `--allow {name}=ADDRESS` would"
                if why == PRIVATE
                else ""
            )
            raise Refused(
                f"{name} leads to {why}, which this sandbox may not reach{form}"
            )
        return good

    async def _is_approved(self, host: str | Address, port: int) -> bool:
        """Whether the approver allows this host. He is asked once per host and port."""
        if not self.allow.ask_hosts or self._ask is None:
            return False
        key = f"{host}:{port}"
        while key in self._asking:
            await self._asking[key].wait()
        if (
            key not in self._answers
            and len(self._answers) + len(self._asking) < ASKED_MAX
        ):
            self._asking[key] = anyio.Event()
            try:
                with anyio.move_on_after(self.allow.limits.ask):
                    async with self._one_question:
                        self._answers[key] = False
                        with suppress(
                            Exception
                        ):  # an approver that fails counts as a no
                            self._answers[key] = (
                                await self._ask(str(host), port) is True
                            )
            finally:
                self._asking.pop(key).set()
        return self._answers.get(key, False)

    def open_for(self, *hosts: str) -> None:
        """Allow more hosts from now on."""
        self.allow = self.allow.with_hosts(*hosts)

    # Connections.

    @asynccontextmanager
    async def visit(
        self, host: str, port: int, method: str = "CONNECT", path: str = ""
    ) -> AsyncIterator[Visit]:
        """Record one connection or request, and how the block ended."""
        visit = Visit(host, port, method=method[:20], path=path)
        self.visits.append(visit)  # now: the command may end before the connection does
        try:
            yield visit
        except Refused as error:
            visit.refused_by(error)
            error.recorded = True
            raise
        finally:
            self._record_visit(visit)

    def record_refusal(self, why: str) -> None:
        """Record a connection that was refused before it named a host."""
        self.visits.append(visit := Visit("", 0, "refused", why, method=""))
        self._record_visit(visit)

    def _record_visit(self, visit: Visit) -> None:
        visit.end()
        if visit.verdict != "allowed" and self._too_many_refusals():
            self._unrecorded += 1
        else:
            self._write_record(visit)

    def _write_record(self, visit: Visit) -> None:
        unrecorded, self._unrecorded = self._unrecorded, 0
        self._record(
            {**visit.as_dict(), **({"unrecorded": unrecorded} if unrecorded else {})}
        )

    def _too_many_refusals(self) -> bool:
        now = time.monotonic()
        if now - self._refusals_since > 60:
            self._refusals_since, self._refusals = now, 0
        self._refusals += 1
        return self._refusals > REFUSALS_RECORDED

    def record_rest(self) -> None:
        """At the end: record how many refusals were only counted."""
        if self._unrecorded:
            self._write_record(
                Visit("", 0, "refused", "too many refusals to record each")
            )

    async def dial(self, target: Target, visit: Visit) -> ByteStream:
        """Connect to the first of the target's addresses that answers; Refused with status 502 if none does."""
        failure = "it has no address"
        for address in target.addresses:
            visit.address = str(address)
            try:
                async with self._dials:
                    with anyio.fail_after(self.allow.limits.connect):
                        return await sockets.connected(str(address), target.port)
            except TimeoutError:
                failure = "it does not answer"
            except OSError as error:
                failure = os.strerror(error.errno) if error.errno else str(error)
        raise Refused(
            f"{target.host} cannot be reached on port {target.port}: {failure}",
            status=502,
        )

    async def tunnel(
        self,
        client: ByteStream,
        target: Target,
        upstream: ByteStream,
        visit: Visit,
        first: bytes,
    ) -> None:
        """Pass bytes both ways. TLS and HTTP, which the first bytes show, must name the allowed host. If headers are
        set for the host, we are the TLS server ourselves."""
        meter = self.meter(visit)
        adds_headers = bool(self.allow.headers.get(target.host))
        if target.any_protocol or not (target.by_name or adds_headers):
            await tunnel(client, upstream, meter, first)
            return
        server_first = b""
        if target.port not in (80, 443):
            first, server_first = await self._first_data(client, upstream, visit, first)
        if server_first:
            _check_may_follow(server_first, first, target)
            meter.received(len(server_first))
            await client.send(server_first)
            await tunnel(client, upstream, meter)
        elif target.port == 443 or (target.port != 80 and looks_like_tls(first)):
            _, first = await checked_hello(
                client, target.host if target.by_name else None, first, target.port
            )
            if adds_headers:
                await self._serve_tls(client, target, upstream, first)
                return
            guarded = HelloGuard(client, target.host, first, target.port)
            await tunnel(guarded, upstream, meter)
            if guarded.refused is not None:
                raise guarded.refused
        elif target.port == 80 or looks_like_http(first):
            from belljar.network.http_proxy import HttpProxy

            await HttpProxy(self, client, target, upstream).serve(first)
        else:
            raise _no_web(target)

    async def _first_data(
        self, client: ByteStream, upstream: ByteStream, visit: Visit, first: bytes
    ) -> tuple[bytes, bytes]:
        """What the client has sent, or else the server, enough to tell its protocol."""
        with anyio.move_on_after(self.allow.limits.idle):
            server_first = b""
            if not first:
                first, server_first = await first_data(client, upstream)
            if not first and not server_first:  # one of them left without a word
                raise anyio.EndOfStream
            return await read_while_unclear(
                client, first
            ) if first and not server_first else first, server_first
        visit.reason = "idle for too long"
        raise anyio.EndOfStream

    async def _serve_tls(
        self, client: ByteStream, target: Target, upstream: ByteStream, first: bytes
    ) -> None:
        """Be the TLS server for this client, so that headers can be added to its requests."""
        from anyio.streams.tls import TLSStream

        from belljar.network.http_proxy import HttpProxy

        if self.authority is None:
            raise Refused(
                f"{target.host} has headers set, but no certificate authority was made",
                status=502,
            )
        context = self.authority.server_context(target.host)
        with anyio.fail_after(HELLO_SECONDS):
            inner = await TLSStream.wrap(
                PartlyRead(client, first),
                server_side=True,
                ssl_context=context,
                standard_compatible=False,
            )
        async with inner:
            await HttpProxy(self, inner, target, upstream, tls=True).serve()

    def meter(self, visit: Visit) -> Meter:
        return Meter(visit, self._count_bytes, self.allow.limits.idle)

    def _count_bytes(self, count: int) -> None:
        self._bytes += count
        limit = self.allow.limits.bytes
        if limit is not None and self._bytes > limit:
            raise anyio.BrokenResourceError  # ends this connection, and later ones

    def headers_for(self, target: Target, tls: bool) -> Mapping[str, str]:
        """The headers to add to requests; Refused without TLS, unless the user wrote the port: `host` alone includes
        port 80."""
        headers = self.allow.headers.get(target.host, {})
        if (
            headers
            and not tls
            and not self.allow.names_port(host_of(target.host), target.port)
        ):
            raise Refused(
                f"the headers set for {target.host} are sent over https only; use https, "
                f"or tell the person in charge: `{target.host}:{target.port}` would allow them without TLS"
            )
        return headers


def _check_may_follow(server_first: bytes, first: bytes, target: Target) -> None:
    """A server that speaks first speaks neither TLS nor HTTP/1, so what the client says then is not checked. Refused if
    the client has spoken, too, or if it may ask for other hosts in HTTP/2."""
    if first:
        raise _no_web(target)
    if is_http2_settings(server_first):
        raise Refused(
            f"{target.host}: HTTP/2 without TLS; allow 'tcp://{target.host}:{target.port}' for it"
        )


def _no_web(target: Target) -> Refused:
    """Servers forgive much in front of a request, so what is not clearly one could ask for any host."""
    host, port = target.host, target.port
    return Refused(
        f"{host}: only HTTP and TLS are allowed there; allow 'tcp://{host}:{port}' for other protocols"
    )
