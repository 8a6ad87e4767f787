"""Host patterns: which are valid, and what they match."""

from __future__ import annotations

import pytest

from belljar.errors import UsageError
from belljar.network.allow import Allow, BadHost, check_ceiling, host_of, pattern


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("api.example.com", "api.example.com", 443),
        ("api.example.com", "API.Example.COM.", 80),
        ("*.example.net", "a.example.net", 443),
        ("*.example.net", "a.b.example.net", 443),
        ("*.example.net:8443", "a.example.net", 8443),
        ("h.example:8000-8100", "h.example", 8050),
        ("h.example:*", "h.example", 22),
        ("192.0.2.7", "192.0.2.7", 443),
        ("10.1.0.0/16:5432", "10.1.2.3", 5432),
        ("[2001:db8::1]:8080", "[2001:db8::1]", 8080),
        ("[2001:db8::]/32", "2001:db8::99", 443),
        ("bücher.example", "xn--bcher-kva.example", 443),
        ("tcp://git.example:22", "git.example", 22),
        ("*", "anything.example", 443),
    ],
)
def test_a_pattern_matches_its_hosts_and_ports(text: str, host: str, port: int) -> None:
    assert pattern(text).fits(host_of(host), port)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("api.example.com", "api.example.com", 22),
        ("api.example.com", "evil.example.com", 443),
        ("api.example.com", "api.example.com.evil.example", 443),
        ("*.example.net", "example.net", 443),
        ("*.example.net", "evilexample.net", 443),
        ("*.example.net", "192.0.2.1", 443),
        ("*", "192.0.2.1", 443),
        ("192.0.2.7", "192.0.2.8", 443),
        ("bücher.example", "xn--bcher-kvb.example", 443),
    ],
)
def test_a_pattern_does_not_match_other_hosts_or_ports(
    text: str, host: str, port: int
) -> None:
    assert not pattern(text).fits(host_of(host), port)


@pytest.mark.parametrize(
    "text",
    ["", "http://a.example", "a.example/path", "user@a.example", "a.*.example", "*.com", "*a.example", "a.example:0",
     "a.example:99999", "a.example:x", "a.example:5-2", "::1", "[::1", "127.1", "0x7f.1", "-a.example", "a..example",
     "10.0.0.1/8"],
)  # fmt: skip
def test_an_invalid_pattern_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        pattern(text)
    with pytest.raises(UsageError):
        Allow("a.example").with_hosts(text)


@pytest.mark.parametrize(
    "text",
    [
        "127.1",
        "0x7f000001",
        "2130706433",
        "017700000001",
        "1.2.3.4.5",
        "fe80::1%eth0",
        "a b",
        "a\r\nb",
        "",
    ],
)
def test_an_ambiguous_host_is_refused(text: str) -> None:
    with pytest.raises(BadHost):
        host_of(text)


def test_a_less_trusted_layer_stays_below_the_ceiling() -> None:
    check_ceiling(["a.example.net", "*.b.example.net:443"], ["*.example.net"])
    for wider in (
        "example.net",
        "*.example.org",
        "a.example.net:22",
        "tcp://a.example.net",
    ):
        with pytest.raises(UsageError, match="ceiling"):
            check_ceiling([wider], ["*.example.net"])


def test_a_ceiling_admits_exactly_the_private_addresses_that_it_names() -> None:
    check_ceiling(["pkg.example=10.0.0.5"], ["pkg.example=10.0.0.5,10.0.0.6"])
    check_ceiling(["pkg.example"], ["pkg.example=10.0.0.5"])
    for ceiling in ("pkg.example", "*.example.net", "pkg.example=10.0.0.6"):
        with pytest.raises(UsageError, match="ceiling"):
            check_ceiling(["pkg.example=10.0.0.5"], [ceiling])
    with pytest.raises(
        UsageError,
        match=r"public addresses only; a ceiling of 'pkg\.example=10\.0\.0\.5'",
    ):
        check_ceiling(["pkg.example=10.0.0.5"], ["pkg.example"])


def test_headers_are_for_allowed_hosts_only_and_well_formed() -> None:
    with pytest.raises(UsageError, match="not among"):
        Allow("a.example", headers={"b.example": {"X": "1"}})
    with pytest.raises(UsageError, match="can be sent"):
        Allow("a.example", headers={"a.example": {"X": "1\r\nY: 2"}})


def test_a_name_may_be_allowed_at_a_private_address() -> None:
    allow = Allow("registry.example=10.0.0.5,fd00::1", "other.example")
    inside = host_of("10.0.0.5")
    assert not isinstance(inside, str)
    assert allow.allows_address("registry.example", inside, 443)
    assert not allow.allows_address("other.example", inside, 443)
    for text in (
        "registry.example=",
        "registry.example=name",
        "registry.example=10.0.0.0/8",
    ):
        with pytest.raises(UsageError):
            Allow(text)
