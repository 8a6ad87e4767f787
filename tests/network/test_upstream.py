"""Connections from the proxy to servers."""

from __future__ import annotations

import errno
import ipaddress
import socket

import anyio
import pytest
from anyio.abc import SocketStream
from tests.network.conftest import LOCAL, Names, OpenDoor, server
from tests.network.test_http_proxy import allowed, read_head, request

from belljar import Allow
from belljar.network import addresses
from belljar.network.allow import DoorLimits


async def test_without_free_descriptors_a_request_gets_502(
    open_door: OpenDoor, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def used_up(*_: object) -> SocketStream:
        raise OSError(errno.EMFILE, "Too many open files")

    def none_left(*_: object, **__: object) -> socket.socket:
        raise OSError(errno.EMFILE, "Too many open files")

    async with (
        open_door(allowed(80), Names(LOCAL)) as opened,
        await opened.dial() as stream,
    ):
        monkeypatch.setattr("belljar.network.door.sockets.connected", used_up)
        await stream.send(request(80))
        assert (await stream.receive()).startswith(b"HTTP/1.1 502")
    monkeypatch.setattr(addresses.socket, "socket", none_left)
    assert (
        addresses.refusal(ipaddress.ip_address("1.1.1.1"))
        == "an address of this machine"
    )


async def test_a_connection_is_closed_at_its_total_time(open_door: OpenDoor) -> None:
    async def trickle(stream: SocketStream) -> None:
        await read_head(stream)
        await stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        while True:
            await stream.send(b".")
            await anyio.sleep(0.01)

    allow = Allow("api.test:1-65535=127.0.0.1", limits=DoorLimits(total=0.3))
    async with server(trickle) as port, open_door(allow, Names(LOCAL)) as opened:
        with anyio.fail_after(120):
            assert (await opened.exchange(request(port))).startswith(b"HTTP/1.1 200")
