"""Asks a package index, from the host, where its files are.

A URL that came from an image or from another index is not trusted. So it must lead to a public address, also after a
redirect, and we connect to the very address that was checked. The connection is closed after a time: a server that
answers byte by byte would never end. Only http and https are allowed, because urllib connects to ftp unchecked.
"""

from __future__ import annotations

import contextlib
import functools
import http.client
import socket
import threading
import urllib.error
import urllib.request
from typing import Any

from belljar.network.addresses import Unresolved, lookup, refusal
from belljar.network.allow import Address

SECONDS = 20.0
INDEX_MAX = 32 << 20


def ask_index(
    url: str, accept: str = "*/*", *, public: bool, method: str = "GET"
) -> tuple[str, str]:
    """The answer's URL after redirects, and its text; both empty if there is none. `public`: only public addresses."""
    request = urllib.request.Request(url, headers={"Accept": accept}, method=method)
    try:
        with _opener(public).open(request, timeout=SECONDS) as answer:
            return str(answer.url), answer.read(INDEX_MAX).decode("utf-8", "replace")
    except (OSError, ValueError, urllib.error.URLError, http.client.HTTPException):
        return "", ""


def _opener(public: bool) -> urllib.request.OpenerDirector:
    opener, url = urllib.request.OpenerDirector(), urllib.request
    # Checked connections use no proxy of the environment: it would connect for us, unchecked.
    connecting = (
        [_Http(), _Https()]
        if public
        else [url.ProxyHandler(), url.HTTPHandler(), url.HTTPSHandler()]
    )
    answering = [
        url.HTTPErrorProcessor(),
        url.HTTPDefaultErrorHandler(),
        url.HTTPRedirectHandler(),
    ]
    for handler in (*connecting, *answering, url.UnknownHandler()):
        opener.add_handler(handler)
    return opener


def addresses_of(host: str, port: int) -> list[Address]:
    """Its addresses; none if the lookup fails."""
    try:
        return lookup(host, port)
    except Unresolved:
        return []


def _checked_connection(
    address: tuple[str, int], *rest: Any, **options: Any
) -> socket.socket:
    addresses = addresses_of(*address)
    if not addresses or any(refusal(each) for each in addresses):
        raise OSError(f"{address[0]} is not public")
    connection = socket.create_connection(
        (str(addresses[0]), address[1]), *rest, **options
    )
    _shut_down_later(
        connection.dup()
    )  # a copy: TLS detaches the socket from `connection`
    return connection


def _shut_down_later(connection: socket.socket) -> None:
    def shut_down() -> None:
        with connection, contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(SECONDS, shut_down)
    timer.daemon = True
    timer.start()


def _checked(
    kind: type[http.client.HTTPConnection], *given: Any, **options: Any
) -> http.client.HTTPConnection:
    connection = kind(*given, **options)
    connection._create_connection = _checked_connection  # type: ignore[attr-defined]  # http.client's hook for this
    return connection


class _Http(urllib.request.HTTPHandler):
    def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(
            functools.partial(_checked, http.client.HTTPConnection), request
        )


class _Https(urllib.request.HTTPSHandler):
    def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(
            functools.partial(_checked, http.client.HTTPSConnection), request
        )
