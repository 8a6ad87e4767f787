"""`Allow`: patterns for the hosts that a sandbox may reach, checked when they are made.

api.example.com            ports 80 and 443
api.example.com:8443       that port; `:8000-8100` a range, `:*` any port
*.example.net              every name below example.net, not example.net itself
*                          every public host
192.0.2.7, [2001:db8::1]   an address by number, also a private one; `10.1.0.0/16` a network
tcp://host.example:22      as above, with any protocol; without it a client that speaks first must speak TLS or HTTP
mirror.example=10.0.0.5    this name, also at this private address
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import asdict, field, replace
from types import MappingProxyType
from typing import Any

from belljar.errors import UsageError
from belljar.patterns import lazy_pattern
from belljar.records import record

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
WEB_PORTS = ((80, 80), (443, 443))
_LABEL = lazy_pattern(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
_NUMBER = lazy_pattern(r"(?:0x[0-9a-f]*|[0-9]+)")
_TOKEN = lazy_pattern(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class BadHost(ValueError):
    """The text is not a host."""


def host_of(text: str) -> str | Address:
    """A host in its canonical form: an address, or a name in lower-case ASCII.

    Forms that libraries read differently (`127.1`, `0x7f000001`, `017700000001`) are rejected.
    """
    if text.startswith("[") and text.endswith("]"):
        text = text[1:-1]
        if ":" not in text:
            raise BadHost(f"{text!r} is not an IPv6 address")
    if ":" in text:
        return _address(text)
    name = text.removesuffix(".")
    if not name.isascii():
        import idna  # here, because few names need it

        try:
            name = idna.encode(name, uts46=True).decode()
        except (idna.IDNAError, UnicodeError) as error:
            raise BadHost(f"{text!r} is not a host name") from error
    name = name.lower()
    labels = name.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        return _address(name)
    if len(name) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise BadHost(f"{text!r} is not a host name")
    return name


def in_url(host: str | Address) -> str:
    """A host as URLs have it: IPv6 addresses in brackets."""
    return f"[{host}]" if ":" in str(host) else str(host)


def _address(text: str) -> Address:
    try:
        address = ipaddress.ip_address(text)
    except ValueError as error:
        raise BadHost(f"{text!r} is not an address") from error
    if isinstance(address, ipaddress.IPv6Address) and address.scope_id:
        raise BadHost(f"{text!r} has a zone")
    return address


@record
class Pattern:
    text: str
    name: str | None = None
    """A name, `*.name` or `*`."""
    network: ipaddress.IPv4Network | ipaddress.IPv6Network | None = None
    ports: tuple[tuple[int, int], ...] = WEB_PORTS
    any_protocol: bool = False
    """Whether the door passes connections on without looking at their bytes."""
    private: frozenset[Address] = frozenset()
    """Private addresses that this name may resolve to."""

    def fits(self, host: str | Address, port: int) -> bool:
        if not any(first <= port <= last for first, last in self.ports):
            return False
        if isinstance(host, str):
            return self.name is not None and _name_fits(host, self.name)
        return self.network is not None and host in self.network

    def within(self, other: Pattern) -> bool:
        """Whether `other` allows everything that this pattern allows."""
        if not all(
            any(a <= first and last <= b for a, b in other.ports)
            for first, last in self.ports
        ):
            return False
        if (
            self.any_protocol and not other.any_protocol
        ) or not self.private <= other.private:
            return False
        if self.network is not None or other.network is not None:
            mine, theirs = self.network, other.network
            return (
                mine is not None
                and theirs is not None
                and mine.version == theirs.version
                and mine.subnet_of(theirs)  # type: ignore[arg-type]
            )
        return _name_fits(self.name or "", other.name or "")


def _name_fits(name: str, wider: str) -> bool:
    return name == wider or (
        wider.startswith("*") and name.removeprefix("*").endswith(wider[1:])
    )


def pattern(text: str) -> Pattern:
    """Parse a pattern; UsageError says what is wrong with it."""
    if not isinstance(text, str) or not text.strip():
        raise UsageError(
            f"{text!r} is not a host: write for example 'api.example.com' or '*.example.net:8443'"
        )
    raw = rest = text.strip()
    plain = rest.startswith("tcp://")
    if plain:
        rest = rest.removeprefix("tcp://")
    elif "://" in rest or "@" in rest or "#" in rest or "?" in rest:
        raise UsageError(f"{raw!r} is not a host: leave out the scheme, user and path")
    rest, equals, numbers = rest.partition("=")
    if equals:
        return replace(
            pattern(("tcp://" if plain else "") + rest),
            text=raw,
            private=_addresses(numbers, raw),
        )
    host, ports = _split_port(rest, raw)
    if "/" in host or host.startswith("["):
        return Pattern(
            raw, network=_network(host, raw), ports=ports, any_protocol=plain
        )
    if host == "*":
        return Pattern(raw, name="*", ports=ports, any_protocol=plain)
    wild, base = host.startswith("*."), host.removeprefix("*.")
    if "*" in base:
        raise UsageError(
            f"{raw!r}: a star may only be the whole first label, as in '*.example.net'"
        )
    try:
        name = host_of(base)
    except BadHost as error:
        raise UsageError(f"{raw!r} is not a host: {error}") from error
    if not isinstance(name, str):
        if wild:
            raise UsageError(f"{raw!r}: an address has no names below it")
        return Pattern(
            raw, network=ipaddress.ip_network(name), ports=ports, any_protocol=plain
        )
    if wild and "." not in name:
        raise UsageError(
            f"{raw!r} is too wide: name at least two labels after the star"
        )
    return Pattern(
        raw, name=("*." if wild else "") + name, ports=ports, any_protocol=plain
    )


def _addresses(text: str, raw: str) -> frozenset[Address]:
    try:
        hosts = [host_of(each) for each in text.split(",")]
    except BadHost as error:
        raise UsageError(f"{raw!r}: {error}") from error
    addresses = frozenset(each for each in hosts if not isinstance(each, str))
    if len(addresses) != len(hosts):
        raise UsageError(
            f"{raw!r}: write addresses after the =, as in 'registry.example=10.0.0.5'"
        )
    return addresses


def _network(host: str, raw: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        return ipaddress.ip_network(host.replace("[", "").replace("]", ""))
    except ValueError as error:
        raise UsageError(f"{raw!r} is not an address or a network: {error}") from error


def _split_port(text: str, raw: str) -> tuple[str, tuple[tuple[int, int], ...]]:
    if text.startswith("["):
        host, closed, tail = text.partition("]")
        if not closed:
            raise UsageError(f"{raw!r}: the bracket is not closed")
        host += "]"
        if tail.startswith("/"):
            bits, _, tail = tail.partition(":")
            host += bits
            tail = ":" + tail if tail else ""
    elif text.count(":") > 1:
        raise UsageError(
            f"{raw!r}: write an IPv6 address in brackets, as in '[2001:db8::1]:443'"
        )
    else:
        host, colon, port = text.partition(":")
        tail = colon + port
    if not tail:
        return host, WEB_PORTS
    first, dash, last = tail[1:].partition("-")
    if tail == ":*":
        return host, ((1, 65535),)
    if not (
        tail.startswith(":") and first.isdecimal() and (last.isdecimal() or not dash)
    ):
        raise UsageError(f"{raw!r}: the port is not a number")
    low, high = int(first), int(last if dash else first)
    if not 1 <= low <= high <= 65535:
        raise UsageError(f"{raw!r}: ports go from 1 to 65535")
    return host, ((low, high),)


@record
class DoorLimits:
    connections: int = 1000
    """At once."""
    per_minute: int = 6000
    bytes: int | None = None
    """In both directions together, of the whole session."""
    idle: float = 300.0
    total: float = 24 * 3600.0
    connect: float = 15.0
    ask: float = 120.0
    """How long a connection waits for a person's answer."""


@record
class Allow:
    """The hosts that a sandbox may reach: `belljar.Allow("api.example.com", "*.example.net:8443")`.

    The proxy adds `headers` to requests: their values never enter the sandbox. For https it is then the TLS server
    itself, with a certificate authority that only this sandbox trusts.
    """

    hosts: tuple[str, ...] = ()
    presets: tuple[str, ...] = ()
    headers: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)
    ask_hosts: bool = False
    limits: DoorLimits = field(default_factory=DoorLimits)
    patterns: tuple[Pattern, ...] = field(default=(), repr=False, compare=False)

    def __init__(
        self,
        *hosts: str,
        presets: Iterable[str] = (),
        headers: Mapping[str, Mapping[str, str]] | None = None,
        ask_hosts: bool = False,
        limits: DoorLimits | None = None,
    ) -> None:
        if isinstance(presets, str):
            raise UsageError(
                f"presets must be a list of names, as in presets=[{presets!r}]"
            )
        put = (
            object.__setattr__
        )  # the record is frozen, and has no __init__ with *hosts
        put(self, "hosts", tuple(hosts))
        put(self, "presets", tuple(presets))
        put(self, "headers", _checked_headers(headers or {}))
        put(self, "ask_hosts", bool(ask_hosts))
        put(self, "limits", limits or DoorLimits())
        put(self, "patterns", tuple(pattern(each) for each in self.hosts))
        for host in self.headers:
            if not any(
                each.fits(host_of(host), each.ports[0][0]) for each in self.patterns
            ):
                raise UsageError(
                    f"headers are set for {host}, which is not among the allowed hosts"
                )

    def with_hosts(self, *hosts: str) -> Allow:
        return Allow(
            *self.hosts,
            *hosts,
            presets=self.presets,
            headers=self.headers,
            ask_hosts=self.ask_hosts,
            limits=self.limits,
        )

    def as_dict(self) -> dict[str, Any]:
        """To be saved: without headers, which hold secrets, and without presets, whose hosts are among `hosts` once the
        door is open: by the time they are restored, commands could have changed what the clients inside say."""
        return {
            "hosts": self.hosts,
            "ask_hosts": self.ask_hosts,
            "limits": asdict(self.limits),
        }

    @classmethod
    def restored(cls, saved: Mapping[str, Any]) -> Allow:
        return cls(
            *saved["hosts"],
            ask_hosts=saved["ask_hosts"],
            limits=DoorLimits(**saved["limits"]),
        )

    def rule_for(self, host: str | Address, port: int) -> Pattern | None:
        return next((each for each in self.patterns if each.fits(host, port)), None)

    def names_port(self, host: str | Address, port: int) -> bool:
        """Whether a pattern writes this port out: without one, 80 and 443 are meant."""
        return any(
            each.fits(host, port) and each.ports != WEB_PORTS for each in self.patterns
        )

    def allows_address(self, name: str, address: Address, port: int) -> bool:
        """Whether an address is allowed even if it is private: by itself, or for this name."""
        return any(
            each.fits(address, port)
            if each.network is not None
            else address in each.private and each.fits(name, port)
            for each in self.patterns
        )


def _checked_headers(
    headers: Mapping[str, Mapping[str, str]],
) -> Mapping[str, Mapping[str, str]]:
    checked: dict[str, Mapping[str, str]] = {}
    for host, given in headers.items():
        try:
            name = host_of(host)
        except BadHost as error:
            raise UsageError(f"headers: {error}") from error
        for header, value in given.items():
            if (
                not _TOKEN.fullmatch(header)
                or any(c in value for c in "\r\n\0")
                or not value.isascii()
            ):
                raise UsageError(
                    f"headers for {host}: {header!r} is not a header that can be sent"
                )
        checked[str(name)] = MappingProxyType(dict(given))
    return MappingProxyType(checked)


def check_ceiling(hosts: Iterable[str], ceiling: Iterable[str]) -> None:
    """UsageError if a host is not within the ceiling of the policy."""
    limits = [pattern(each) for each in ceiling]
    for text in hosts:
        if not any(pattern(text).within(limit) for limit in limits):
            name, equals, _ = text.partition("=")
            name_within = equals and any(
                pattern(name).within(limit) for limit in limits
            )
            advice = (
                f": {name} at public addresses only; a ceiling of {text!r} would let it in"
                if name_within
                else ""
            )
            raise UsageError(
                f"{text} is outside what the policy's [network] ceiling allows{advice}"
            )
