"""Asking a package index where its files are, from the host.

An address that came out of an image or of another index's answer is not trusted: it is dialled only where the door
itself would dial, at the address that was checked, also after a redirect.
"""

from __future__ import annotations

import functools
import http.client
import ipaddress
import socket
import urllib.error
import urllib.request
from typing import Any

from belljar.network.addresses import refusal

SECONDS = 20.0
INDEX_MAX = 32 << 20


def ask_index(url: str, accept: str = "*/*", *, public: bool, method: str = "GET") -> tuple[str, str]:
    """Where the answer came from, and its text; both empty if there is none. `public`: only from public addresses."""
    # For a public answer no proxy of the environment either: it would dial for us, unchecked.
    handlers = [urllib.request.ProxyHandler({}), _Http(), _Https()] if public else []
    request = urllib.request.Request(url, headers={"Accept": accept}, method=method)
    try:
        with urllib.request.build_opener(*handlers).open(request, timeout=SECONDS) as answer:
            return str(answer.url), answer.read(INDEX_MAX).decode("utf-8", "replace")
    except (OSError, ValueError, urllib.error.URLError, http.client.HTTPException):
        return "", ""


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
    return socket.create_connection((str(found[0]), address[1]), *rest, **options)


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
