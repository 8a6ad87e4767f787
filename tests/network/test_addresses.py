"""Addresses of this machine, which a sandbox must not reach."""

from __future__ import annotations

import ipaddress
import subprocess
import sys

import pytest

from belljar.network import addresses


def test_an_address_of_this_machine_is_recognised() -> None:
    assert addresses._is_ours(ipaddress.ip_address("127.0.0.9"))
    assert not addresses._is_ours(ipaddress.ip_address("192.0.2.1"))


@pytest.mark.parametrize(
    "text",
    ["127.0.0.1", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.0.1", "169.254.169.254", "100.100.100.200",
     "192.0.0.192", "168.63.129.16", "198.18.0.1", "203.0.113.1", "192.88.99.1", "224.0.0.1", "240.0.0.1",
     "255.255.255.255", "::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:0:127.0.0.1", "64:ff9b::7f00:1",
     "64:ff9b:1::1", "100::1", "2001::1", "2001:db8::1", "2002:7f00:1::1", "3fff::1", "fc00::1", "fd00:ec2::254",
     "fe80::1", "fec0::1", "ff02::1", "4000::1"],
)  # fmt: skip
def test_an_address_that_is_not_public_is_refused_with_a_reason(text: str) -> None:
    assert addresses.refusal(ipaddress.ip_address(text))


@pytest.mark.parametrize(
    "text", ["1.1.1.1", "193.0.0.1", "2606:4700:4700::1111", "2a00:1450::1"]
)
def test_a_public_address_may_be_dialled(text: str) -> None:
    assert addresses.refusal(ipaddress.ip_address(text)) is None


@pytest.mark.root
def test_a_public_address_of_this_machine_is_refused() -> None:
    """In a network namespace where the machine has a public address. A server there may trust the machine itself."""
    address = "ipaddress.ip_address('9.9.9.9')"
    looking = f"import ipaddress; from belljar.network.addresses import refusal; print(refusal({address}))"
    own = 'ip link set lo up && ip addr add 9.9.9.9/32 dev lo && exec "$@"'
    command = [
        "unshare",
        "--net",
        "bash",
        "-c",
        own,
        "own",
        sys.executable,
        "-c",
        looking,
    ]
    assert (
        "of this machine"
        in subprocess.run(command, check=True, capture_output=True, text=True).stdout
    )
