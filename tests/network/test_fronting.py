"""Attacks that go to the address of an allowed host and ask it for another one, or for more than was judged."""

from __future__ import annotations

import re
from contextlib import suppress

import anyio
import pytest
from anyio.abc import SocketStream
from tests.network.conftest import Names, Opening, echo, server
from tests.network.test_door import web
from tests.network.test_http_proxy import allowed, read_head, request

from belljar.network.allow import Allow, DoorLimits

NAMES = {"api.test": ["127.0.0.1"]}


async def rest_of(stream: SocketStream) -> bytes:
    heard = b""
    with suppress(anyio.EndOfStream, anyio.BrokenResourceError), anyio.fail_after(60):
        while True:
            heard += await stream.receive()
    return heard


def connect(port: int) -> bytes:
    return f"CONNECT api.test:{port} HTTP/1.1\r\nHost: api.test:{port}\r\n\r\n".encode()


@pytest.mark.parametrize("early", [False, True], ids=["after-200", "before-200"])
@pytest.mark.parametrize(
    "first",
    ["\r\nGET / HTTP/1.1", "\n \r\nGET / HTTP/1.1", "get / HTTP/1.1", "M-SEARCH / HTTP/1.1", "GET\t/ HTTP/1.1",
     "A" * 30 + " / HTTP/1.1", "A" * 5000 + " / HTTP/1.1", "PRI * HTTP/2.0"],
)  # fmt: skip
async def test_no_disguise_of_a_request_reaches_another_host_in_a_tunnel(
    open_door: Opening, first: str, early: bool
) -> None:
    """Servers skip blank lines in front of a request, and know more methods than GET."""
    reached = False

    async def served(stream: SocketStream) -> None:
        nonlocal reached
        await stream.receive()
        reached = True

    async with server(served) as port, open_door(Allow(f"api.test:{port}=127.0.0.1"), Names(NAMES)) as door:
        asked = f"{first}\r\nHost: other.test\r\n\r\n".encode()
        answer = await (door.say(connect(port) + asked) if early else door.say(connect(port), *(asked[:1], asked[1:])))
    assert answer.startswith(b"HTTP/1.1 200 Connection")
    assert b"HTTP/1.1 4" in answer
    assert not reached


async def test_on_port_80_only_http_is_spoken(open_door: Opening, monkeypatch: pytest.MonkeyPatch) -> None:
    real = anyio.connect_tcp
    async with server(web) as port, open_door(Allow("api.test:80=127.0.0.1"), Names(NAMES)) as door:

        async def dial(host: str, asked: int) -> SocketStream:
            return await real(host, port if asked == 80 else asked)

        monkeypatch.setattr("belljar.network.door.anyio.connect_tcp", dial)
        heard = await door.say(connect(80), b"\x00\x01binary\r\n\r\n")
    assert b"HTTP/1.1 400" in heard
    assert door.records[0]["sent"] == 0


async def test_a_tunnel_where_nobody_speaks_ends(open_door: Opening) -> None:
    allow = Allow("api.test:1-65535=127.0.0.1", limits=DoorLimits(idle=0.1))
    async with server(echo) as port, open_door(allow, Names(NAMES)) as door:
        await door.say(connect(port))
    assert [record["reason"] for record in door.records] == ["idle for too long"]


async def test_a_server_that_never_answers_is_left(open_door: Opening) -> None:
    async def mute(stream: SocketStream) -> None:
        while True:
            await stream.receive()

    allow = Allow("api.test:1-65535=127.0.0.1", limits=DoorLimits(idle=0.1))
    async with server(mute) as port, open_door(allow, Names(NAMES)) as door:
        answer = await door.say(request(port))
    assert answer.startswith(b"HTTP/1.1 502")
    assert [(record["verdict"], record["reason"]) for record in door.records] == [("failed", "idle for too long")]


async def whole(stream: SocketStream) -> bytes:
    """One answer to its last byte, in however many pieces it comes."""
    heard = b""
    while True:
        head, _, body = heard.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head.lower())
        if length and len(body) >= int(length[1]):
            return heard
        heard += await stream.receive()


@pytest.mark.parametrize("protocol", ["h2c", "TLS/1.0", "websocket, h2c"])
async def test_only_websocket_may_change_the_protocol(open_door: Opening, protocol: str) -> None:
    """HTTP/2 and TLS would name their hosts anew, out of our sight."""
    async with server(web) as port, open_door(allowed(port), Names(NAMES)) as door:
        upgrade = (f"Upgrade: {protocol}", "Connection: Upgrade, HTTP2-Settings", "HTTP2-Settings: AAMAAABk")
        async with await door.dial() as stream:
            await stream.send(request(port, "GET", *upgrade))
            answer = await whole(stream)
    assert b"GET /p" in answer
    assert b"upgrade" not in answer.lower()
    assert b"http2-settings" not in answer.lower()


async def test_a_server_that_changes_to_another_protocol_is_cut_off(open_door: Opening) -> None:
    async def turncoat(stream: SocketStream) -> None:
        await read_head(stream)
        await stream.send(b"HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n")
        await echo(stream)

    async with server(turncoat) as port, open_door(allowed(port), Names(NAMES)) as door:
        answer = await door.say(request(port, "GET", "Connection: Upgrade", "Upgrade: websocket"))
    assert answer.startswith(b"HTTP/1.1 502")


async def test_headers_behind_the_body_are_dropped(open_door: Opening) -> None:
    seen = b""

    async def served(stream: SocketStream) -> None:
        nonlocal seen
        _head, seen = await read_head(stream)
        while b"0\r\n" not in seen:
            seen += await stream.receive()
        await stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")

    body = b"3;ext=a\r\nabc\r\n0\r\nHost: other.test\r\nAuthorization: mine\r\n\r\n"
    async with server(served) as port, open_door(allowed(port), Names(NAMES)) as door, await door.dial() as stream:
        await stream.send(request(port, "POST", "Transfer-Encoding: chunked", "Trailer: Host") + body)
        assert (await stream.receive()).startswith(b"HTTP/1.1 200")
    assert b"abc" in seen
    assert b"ext=a" not in seen
    assert b"other.test" not in seen
    assert b"mine" not in seen


@pytest.mark.parametrize("named", ["Content-Length", "Transfer-Encoding"])
async def test_a_connection_header_cannot_take_the_bodys_length_away(open_door: Opening, named: str) -> None:
    async with server(web) as port, open_door(allowed(port), Names(NAMES)) as door:
        answer = await door.say(request(port, "POST", "Content-Length: 3", f"Connection: {named}") + b"abc")
    assert answer.startswith(b"HTTP/1.1 400")


async def test_headers_set_outside_do_not_go_in_clear_by_accident(open_door: Opening) -> None:
    """`api.test` alone means ports 80 and 443; a token in clear is sent only where the port was written down."""
    allow = Allow("api.test=127.0.0.1", headers={"api.test": {"Authorization": "Bearer s3cret"}})
    async with open_door(allow, Names(NAMES)) as door:
        answer = await door.say(b"GET http://api.test/ HTTP/1.1\r\nHost: api.test\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 403")
    assert b"https only" in answer
    assert not door.records[0]["address"]


async def test_a_secret_in_a_reason_phrase_is_masked(open_door: Opening) -> None:
    async def mirror(stream: SocketStream) -> None:
        await read_head(stream)
        await stream.send(b"HTTP/1.1 401 no s3cret here\r\nContent-Length: 0\r\n\r\n")

    async with server(mirror) as port:
        allow = Allow(f"api.test:{port}=127.0.0.1", headers={"api.test": {"X-Key": "Bearer s3cret"}})
        async with open_door(allow, Names(NAMES)) as door:
            answer = await door.say(request(port, "GET", "Connection: close"))
    assert answer.startswith(b"HTTP/1.1 401 no *** here")
