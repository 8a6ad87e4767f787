"""Tunnels: who sends first, for how long, and which protocols."""

from __future__ import annotations

import pytest
from tests.network.conftest import (
    ALLOW,
    NAMES,
    Names,
    OpenDoor,
    connect,
    echo,
    server,
    web,
)
from tests.network.test_tls import hello

from belljar.network import sockets, tunnel
from belljar.network.allow import Allow, DoorLimits


async def test_on_port_80_only_http_is_spoken(
    open_door: OpenDoor, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = sockets.connected
    async with (
        server(web) as port,
        open_door(Allow("api.test:80=127.0.0.1"), Names(NAMES)) as door,
    ):

        async def dial(host: str, asked: int) -> sockets.TcpStream:
            return await real(host, port if asked == 80 else asked)

        monkeypatch.setattr("belljar.network.door.sockets.connected", dial)
        received = await door.exchange(connect(80), b"\x00\x01binary\r\n\r\n")
    assert b"HTTP/1.1 400" in received
    assert door.records[0]["sent"] == 0


async def test_an_idle_tunnel_is_closed(open_door: OpenDoor) -> None:
    allow = Allow("api.test:1-65535=127.0.0.1", limits=DoorLimits(idle=0.1))
    async with server(echo) as port, open_door(allow, Names(NAMES)) as door:
        await door.exchange(connect(port))
    assert [record["reason"] for record in door.records] == ["idle for too long"]


async def test_bytes_that_are_not_tls_are_cut_off_on_port_443(
    open_door: OpenDoor, to_443: dict[str, int]
) -> None:
    async with server(web) as port, open_door(Allow(*ALLOW), Names(NAMES)) as door:
        to_443["port"] = port
        received = await door.exchange(
            b"CONNECT api.test:443 HTTP/1.1\r\nHost: api.test\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: evil\r\n\r\n",
        )
    assert received == b"HTTP/1.1 200 Connection established\r\n\r\n"
    assert "only TLS" in door.records[0]["reason"]


async def test_a_name_in_the_handshake_cannot_write_on_a_terminal(
    open_door: OpenDoor, to_443: dict[str, int]
) -> None:
    named = hello("evil-name.test").replace(b"evil-name", b"ev\x1b[2Jnam")
    async with server(web) as port, open_door(Allow(*ALLOW), Names(NAMES)) as door:
        to_443["port"] = port
        await door.exchange(
            b"CONNECT api.test:443 HTTP/1.1\r\nHost: api.test\r\n\r\n", named
        )
    assert "api.test was requested" in door.records[0]["reason"]
    assert door.records[0]["reason"].isprintable()


async def test_a_name_allowed_for_plain_bytes_may_speak_anything(
    open_door: OpenDoor, to_443: dict[str, int]
) -> None:
    async with (
        server(web) as port,
        open_door(Allow("tcp://api.test:443", "127.0.0.1:443"), Names(NAMES)) as door,
    ):
        to_443["port"] = port
        async with await door.dial() as stream:
            await stream.send(
                b"CONNECT api.test:443 HTTP/1.1\r\nHost: api.test\r\n\r\nGET / HTTP/1.1\r\n\r\n"
            )
            received = await stream.receive()
            while b"GET /" not in received:
                received += await stream.receive()


async def test_a_client_that_never_finishes_its_handshake_is_dropped(
    open_door: OpenDoor, to_443: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tunnel, "HELLO_SECONDS", 0.1)
    async with server(web) as port, open_door(Allow(*ALLOW), Names(NAMES)) as door:
        to_443["port"] = port
        await door.exchange(
            b"CONNECT api.test:443 HTTP/1.1\r\nHost: api.test\r\n\r\n", b"\x16\x03\x01"
        )
    assert "no TLS handshake" in door.records[0]["reason"]
