"""Which headers of a request and of its answer the proxy passes on.

What belongs to one hop stays there, a request that says two things at once is refused, and a header that is set outside
is put in here and taken out of what comes back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from urllib.parse import quote, quote_plus

import h11

from belljar.network.allow import BadHost, host_of
from belljar.network.visit import Refused
from belljar.patterns import lazy_pattern

Headers = list[tuple[bytes, bytes]]
AUTHORITY = lazy_pattern(rb"(\[[0-9A-Fa-f:.]+\]|[^/?#@:\[\]]+)(?::([0-9]{1,5}))?")
_PER_HOP = {
    b"connection", b"proxy-connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"te",
    b"trailer", b"upgrade", b"host", b"http2-settings",
}  # fmt: skip


def port_of(text: bytes | None, default: int) -> int:
    port = int(text) if text else default
    if not 1 <= port <= 65535:
        raise Refused(f"{port} is not a port", status=400)
    return port


def request_headers(request: h11.Request, host: str, port: int, tls: bool, outside: Mapping[str, str]) -> Headers:
    """The headers that go on, with a Host of our own; Refused where the request says two things at once."""
    names = [name for name, _ in request.headers]
    if b"transfer-encoding" in names and b"content-length" in names:
        raise Refused("both Content-Length and Transfer-Encoding", status=400)
    hosts = [value for name, value in request.headers if name == b"host"]
    if any(not _same_host(value, host, port, tls) for value in hosts):
        raise Refused("the Host header names another host than the request", status=400)
    listed = _listed(request.headers)
    if listed & {b"content-length", b"transfer-encoding"}:
        raise Refused("a Connection header that names the body's length", status=400)
    dropped = _PER_HOP | listed | {name.lower().encode() for name in outside}
    kept = [(b"host", _shown(host, port, tls).encode()), *((n, v) for n, v in request.headers if n not in dropped)]
    if b"upgrade" in listed and _upgrade(request.headers) == b"websocket":
        kept += [(b"connection", b"upgrade"), (b"upgrade", b"websocket")]
    return kept + [(name.encode(), value.encode()) for name, value in outside.items()]


def _shown(host: str, port: int, tls: bool) -> str:
    name = f"[{host}]" if ":" in host else host
    return name if port == (443 if tls else 80) else f"{name}:{port}"


def answer_headers(headers: Iterable[tuple[bytes, bytes]], secrets: Iterable[str], switching: bool) -> Headers:
    headers = list(headers)
    if switching and _upgrade(headers) != b"websocket":
        raise h11.RemoteProtocolError("it changes to a protocol that nobody asked for")
    dropped = _PER_HOP - {b"host"} | _listed(headers)
    kept = [(n, without(v, secrets)) for n, v in headers if n not in dropped]
    return kept + ([(b"connection", b"upgrade"), (b"upgrade", b"websocket")] if switching else [])


def _upgrade(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Only WebSocket stays with the host that was asked for: HTTP/2 and TLS, its other uses, name hosts anew."""
    return b",".join(value.strip().lower() for name, value in headers if name == b"upgrade")


def _listed(headers: Iterable[tuple[bytes, bytes]]) -> set[bytes]:
    return {each.strip().lower() for name, value in headers if name == b"connection" for each in value.split(b",")}


def _same_host(value: bytes, host: str, port: int, tls: bool) -> bool:
    match = AUTHORITY.fullmatch(value)
    if match is None:
        return False
    try:
        same = host_of(match[1].decode("ascii")) == host_of(host)
    except (BadHost, UnicodeDecodeError):
        return False
    return same and port_of(match[2], 443 if tls else 80) == port


def without(value: bytes, secrets: Iterable[str]) -> bytes:
    """Also as a redirect would write it."""
    for secret in secrets:
        for part in filter(None, (secret, secret.rpartition(" ")[2])):
            for form in (part, quote(part), quote(part, safe=""), quote_plus(part)):
                value = re.sub(re.escape(form.encode()), b"***", value, flags=re.IGNORECASE)
    return value
