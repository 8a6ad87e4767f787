"""Looks names up, on the host and once per connection: the door connects to the very address that it checked."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Awaitable, Callable

import anyio
from anyio import to_thread

from belljar.network.allow import Address

Resolve = Callable[[str, int], Awaitable[list[Address]]]
SECONDS = 10.0
AT_ONCE = 16  # lookups: one that hangs cannot be ended; while so many do, every name is refused


class Unresolved(Exception):
    """A name without an address, or a resolver that does not answer."""


class Resolver:
    def __init__(self, seconds: float = SECONDS) -> None:
        self._seconds = seconds
        self._limiter = anyio.CapacityLimiter(AT_ONCE)

    async def __call__(self, name: str, port: int) -> list[Address]:
        with anyio.move_on_after(self._seconds):
            return await to_thread.run_sync(
                lookup, name, port, abandon_on_cancel=True, limiter=self._limiter
            )
        raise Unresolved(f"the host's resolver did not answer for {name}")


def lookup(name: str, port: int) -> list[Address]:
    try:
        entries = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise Unresolved(
            f"{name} has no address ({getattr(error, 'strerror', None) or error})"
        ) from error
    unique = dict.fromkeys(str(entry[4][0]).partition("%")[0] for entry in entries)
    return [ipaddress.ip_address(each) for each in unique]
