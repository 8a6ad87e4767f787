"""SOCKS5, only as much of it as is needed."""

from __future__ import annotations

import pytest
from tests.network.conftest import LOCAL, Names, OpenDoor, echo, server

from belljar.network.allow import Allow


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        (b"\x05\x01\x02", b"\x05\xff"),  # only with a password
        (
            b"\x05\x01\x00" + b"\x05\x03\x00\x01\x7f\x00\x00\x01\x00\x35",
            b"\x05\x00\x05\x07",
        ),  # UDP
        (
            b"\x05\x01\x00" + b"\x05\x02\x00\x01\x7f\x00\x00\x01\x00\x50",
            b"\x05\x00\x05\x07",
        ),  # BIND
        (
            b"\x05\x01\x00" + b"\x05\x01\x00\x03\x09127.0.0.1\x00\x50",
            b"\x05\x00\x05\x02",
        ),  # an address as a name
        (
            b"\x05\x01\x00" + b"\x05\x01\x00\x04" + bytes(15) + b"\x01\x00\x50",
            b"\x05\x00\x05\x02",
        ),  # ::1
        (
            b"\x05\x01\x00" + b"\x05\x01\x00\x03\x09api.test\x00\x00\x50",
            b"\x05\x00\x05\x02",
        ),  # a name with a NUL
        (
            b"\x05\x01\x00" + b"\x05\x01\x00\x05\x00\x50",
            b"\x05\x00\x05\x08",
        ),  # an unknown kind of address
        (b"\x04\x01\x00\x50\x7f\x00\x00\x01\x00", b"HTTP/1.1 400"),  # SOCKS4
    ],
)
async def test_unsupported_socks_requests_are_refused(
    open_door: OpenDoor, sent: bytes, answer: bytes
) -> None:
    names = Names(LOCAL)
    async with open_door(Allow("api.test"), names) as opened:
        assert (await opened.exchange(sent)).startswith(answer)
    assert names.asked == []


async def test_socks_carries_bytes_by_name(open_door: OpenDoor) -> None:
    allow, names = Allow, Names(LOCAL)
    async with (
        server(echo) as port,
        open_door(allow(f"tcp://api.test:{port}", f"127.0.0.1:{port}"), names) as door,
    ):
        stream = await door.dial()
        async with stream:
            await stream.send(b"\x05\x01\x00")
            assert await stream.receive() == b"\x05\x00"
            await stream.send(b"\x05\x01\x00\x03\x08api.test" + port.to_bytes(2, "big"))
            assert (await stream.receive())[:2] == b"\x05\x00"
            await stream.send(b"\x00hello")
            assert await stream.receive() == b"\x00hello"
    assert [r["method"] for r in door.records] == ["SOCKS5"]


async def test_what_is_refused_after_a_grant_gets_no_second_answer(
    open_door: OpenDoor,
) -> None:
    """The client would take it for what the server says."""
    async with (
        server(echo) as port,
        open_door(Allow(f"api.test:{port}=127.0.0.1"), Names(LOCAL)) as door,
    ):
        asked = b"\x05\x01\x00\x03\x08api.test" + port.to_bytes(2, "big")
        received = await door.exchange(b"\x05\x01\x00", asked, b"\0hello")
    assert received == b"\x05\x00" + b"\x05\x00\x00\x01" + bytes(6)
    assert [record["verdict"] for record in door.records] == ["refused"]


async def test_socks_by_address_is_refused_unless_allowed_by_number(
    open_door: OpenDoor,
) -> None:
    async with (
        server(echo) as port,
        open_door(Allow(f"api.test:{port}"), Names(LOCAL)) as door,
    ):
        received = await door.exchange(
            b"\x05\x01\x00",
            b"\x05\x01\x00\x01\x7f\x00\x00\x01" + port.to_bytes(2, "big"),
            until=4,
        )
    assert received[:4] == b"\x05\x00\x05\x02"
