"""Asking a package index where its files are, from the host.

An address that came out of an image or of another index's answer is not trusted: it is dialled only where the door
itself would dial, at the address that was checked, also after a redirect, and hung up on when its time is over: who
answers byte by byte would hold us for ever. Nothing but http and https is spoken: for ftp, where a redirect may lead,
urllib dials by itself.
"""

from __future__ import annotations

import contextlib
import functools
import http.client
import ipaddress
import socket
import threading
import urllib.error
import urllib.request
from typing import Any

from belljar.network.addresses import refusal

SECONDS = 20.0
INDEX_MAX = 32 << 20


def ask_index(url: str, accept: str = "*/*", *, public: bool, method: str = "GET") -> tuple[str, str]:
    """Where the answer came from, and its text; both empty if there is none. `public`: only from public addresses."""
    request = urllib.request.Request(url, headers={"Accept": accept}, method=method)
    try:
        with _opener(public).open(request, timeout=SECONDS) as answer:
            return str(answer.url), answer.read(INDEX_MAX).decode("utf-8", "replace")
    except (OSError, ValueError, urllib.error.URLError, http.client.HTTPException):
        return "", ""


def _opener(public: bool) -> urllib.request.OpenerDirector:
    opener, ready = urllib.request.OpenerDirector(), urllib.request
    # For a public answer no proxy of the environment either: it would dial for us, unchecked.
    dialling = [_Http(), _Https()] if public else [ready.ProxyHandler(), ready.HTTPHandler(), ready.HTTPSHandler()]
    reading = [ready.HTTPErrorProcessor(), ready.HTTPDefaultErrorHandler(), ready.HTTPRedirectHandler()]
    for handler in (*dialling, *reading, ready.UnknownHandler()):
        opener.add_handler(handler)
    return opener


def addresses_of(host: str, port: int) -> list[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    try:
        entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    return [ipaddress.ip_address(str(entry[4][0]).partition("%")[0]) for entry in entries]


def _checked_connection(address: tuple[str, int], *rest: Any, **options: Any) -> socket.socket:
    found = addresses_of(*address)
    if not found or any(refusal(each) for each in found):
        raise OSError(f"{address[0]} is not public")
    made = socket.create_connection((str(found[0]), address[1]), *rest, **options)
    _hang_up_later(made.dup())  # TLS takes `made` over
    return made


def _hang_up_later(line: socket.socket) -> None:
    def hang_up() -> None:
        with line, contextlib.suppress(OSError):
            line.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(SECONDS, hang_up)
    timer.daemon = True
    timer.start()


def _pinned(kind: type[http.client.HTTPConnection], *given: Any, **options: Any) -> http.client.HTTPConnection:
    made = kind(*given, **options)
    made._create_connection = _checked_connection  # type: ignore[attr-defined]  # the module's own seam for this
    return made


class _Http(urllib.request.HTTPHandler):
    def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(functools.partial(_pinned, http.client.HTTPConnection), request)


class _Https(urllib.request.HTTPSHandler):
    def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(functools.partial(_pinned, http.client.HTTPSConnection), request)
