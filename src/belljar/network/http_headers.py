"""Which headers of a request and of its answer the proxy passes on.

Headers for a single hop are dropped, and contradictory requests are refused. The headers of `Allow.headers` are added
to requests, and their values are masked in answers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from urllib.parse import quote, quote_plus

import h11

from belljar.network.allow import BadHost, host_of, in_url
from belljar.network.visit import Refused
from belljar.patterns import lazy_pattern

Headers = list[tuple[bytes, bytes]]
HOST_AND_PORT = rb"(\[[0-9A-Fa-f:.]+\]|[^/?#@:\[\]]+)(?::([0-9]{1,5}))?"
AUTHORITY = lazy_pattern(HOST_AND_PORT)
_WEBSOCKET = [(b"connection", b"upgrade"), (b"upgrade", b"websocket")]
_PER_HOP = {
    b"connection",
    b"proxy-connection",
    b"keep-alive",
    b"proxy-authenticate",
    b"proxy-authorization",
    b"te",
    b"trailer",
    b"upgrade",
    b"host",
    b"http2-settings",
}


def port_of(text: bytes | None, default: int) -> int:
    port = int(text) if text else default
    if not 1 <= port <= 65535:
        raise Refused(f"{port} is not a port", status=400)
    return port


def request_headers(
    request: h11.Request, host: str, port: int, tls: bool, added: Mapping[str, str]
) -> Headers:
    """The headers to send, with our own Host and the added ones; Refused if the request contradicts itself."""
    names = [name for name, _ in request.headers]
    if b"transfer-encoding" in names and b"content-length" in names:
        raise Refused("both Content-Length and Transfer-Encoding", status=400)
    hosts = [value for name, value in request.headers if name == b"host"]
    if any(not _same_host(value, host, port, tls) for value in hosts):
        raise Refused("the Host header names another host than the request", status=400)
    in_connection = _named_in_connection(request.headers)
    if in_connection & {b"content-length", b"transfer-encoding"}:
        raise Refused("a Connection header that names the body's length", status=400)
    dropped = _PER_HOP | in_connection | {name.lower().encode() for name in added}
    own_host = (
        in_url(host) if port == (443 if tls else 80) else f"{in_url(host)}:{port}"
    )
    kept = [
        (b"host", own_host.encode()),
        *((n, v) for n, v in request.headers if n not in dropped),
    ]
    if b"upgrade" in in_connection and _upgrade(request.headers) == b"websocket":
        kept += _WEBSOCKET
    return kept + [(name.encode(), value.encode()) for name, value in added.items()]


def answer_headers(
    headers: Iterable[tuple[bytes, bytes]], secrets: Iterable[str], switching: bool
) -> Headers:
    headers = list(headers)
    if switching and _upgrade(headers) != b"websocket":
        raise h11.RemoteProtocolError(
            "the server switches to a protocol that was not requested"
        )
    dropped = _PER_HOP - {b"host"} | _named_in_connection(headers)
    kept = [(n, masked(v, secrets)) for n, v in headers if n not in dropped]
    return kept + (_WEBSOCKET if switching else [])


def _upgrade(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The protocol to switch to. Only WebSocket is allowed: with HTTP/2 or TLS the client could name other hosts."""
    return b",".join(
        value.strip().lower() for name, value in headers if name == b"upgrade"
    )


def _named_in_connection(headers: Iterable[tuple[bytes, bytes]]) -> set[bytes]:
    return {
        each.strip().lower()
        for name, value in headers
        if name == b"connection"
        for each in value.split(b",")
    }


def _same_host(value: bytes, host: str, port: int, tls: bool) -> bool:
    match = AUTHORITY.fullmatch(value)
    if match is None:
        return False
    try:
        same = host_of(match[1].decode("ascii")) == host_of(host)
    except (BadHost, UnicodeDecodeError):
        return False
    return same and port_of(match[2], 443 if tls else 80) == port


def masked(value: bytes, secrets: Iterable[str]) -> bytes:
    """`value` with `***` for each secret, also where it is quoted as in the URL of a redirect."""
    for secret in secrets:
        for part in filter(None, (secret, secret.rpartition(" ")[2])):
            for form in (part, quote(part), quote(part, safe=""), quote_plus(part)):
                value = re.sub(
                    re.escape(form.encode()), b"***", value, flags=re.IGNORECASE
                )
    return value
