"""Which addresses the door may connect to: public ones, and those that the user allowed as addresses.

With a name for a private address, for this machine or for a cloud's metadata service, a sandbox could reach what only
the host may reach. Addresses that stand for another one (mapped, translated, tunnelled) are refused, too: the
translator would decide where they lead.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
from collections.abc import Awaitable, Callable

import anyio
from anyio import to_thread

from belljar.network.allow import Address

_REFUSED = {
    "168.63.129.16/32": "a cloud's metadata service",
    "192.0.0.0/24": "a reserved address, at one cloud its metadata service",
    "192.88.99.0/24": "a tunnel's relay",
    "64:ff9b::/96": "a translated IPv4 address",
    "64:ff9b:1::/48": "a translated IPv4 address",
    "::/96": "an IPv4 address in disguise",
    "::ffff:0:0/96": "an IPv4 address in disguise",
    "2002::/16": "a tunnelled IPv4 address",
    "2001::/32": "a tunnelled IPv4 address",
    "3fff::/20": "an address for examples",
}
_GLOBAL_SIX = ipaddress.ip_network("2000::/3")
"""All global IPv6 addresses so far. Python's `is_global` accepts more, such as the old site-local addresses."""
_NETWORKS = {ipaddress.ip_network(text): why for text, why in _REFUSED.items()}


PRIVATE = "a private or reserved address"


def refusal(address: Address) -> str | None:
    """Why the door may not connect to this address for a name; None if it may."""
    for network, why in _NETWORKS.items():
        if (
            address.version == network.version
            and address in network
            and not address.is_loopback
        ):
            return why
    if address.is_loopback:
        return "this machine's loopback"
    if address.is_multicast:
        return "a multicast address"
    if address.is_link_local:
        return "a link-local address"
    if (
        not address.is_global
        or address.is_reserved
        or (address.version == 6 and address not in _GLOBAL_SIX)
    ):
        return PRIVATE
    if _is_ours(address):
        return "an address of this machine"
    return None


def _is_ours(address: Address) -> bool:
    """A machine can bind only its own addresses. Where it can bind any (ip_nonlocal_bind), all are refused."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as probe:
            probe.bind((str(address), 0))
    except OSError as error:
        return error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
    return True


Resolve = Callable[[str, int], Awaitable[list[Address]]]
LOOKUP_SECONDS = 10.0
AT_ONCE = 16  # lookups: one that hangs cannot be ended; while so many do, every name is refused


class Unresolved(Exception):
    """A name without an address, or a resolver that does not answer."""


class Resolver:
    """Looks names up, on the host and once per connection: the door connects to the very address that it checked."""

    def __init__(self, seconds: float = LOOKUP_SECONDS) -> None:
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
