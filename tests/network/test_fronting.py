"""Attacks that connect to an allowed host and then ask it for another host, or for more than was checked."""

from __future__ import annotations

import re
from contextlib import suppress

import anyio
import pytest
from anyio.abc import SocketStream
from tests.network.conftest import NAMES, Names, OpenDoor, connect, echo, server, web
from tests.network.test_http_proxy import allowed, read_head, request
from tests.network.test_tls import hello

from belljar.network.allow import Allow, DoorLimits


async def rest_of(stream: SocketStream) -> bytes:
    received = b""
    with suppress(anyio.EndOfStream, anyio.BrokenResourceError), anyio.fail_after(60):
        while True:
            received += await stream.receive()
    return received


@pytest.mark.parametrize("early", [False, True], ids=["after-200", "before-200"])
@pytest.mark.parametrize(
    "first",
    ["\r\nGET / HTTP/1.1", "\n \r\nGET / HTTP/1.1", "get / HTTP/1.1", "M-SEARCH / HTTP/1.1", "GET\t/ HTTP/1.1",
     "A" * 30 + " / HTTP/1.1", "A" * 5000 + " / HTTP/1.1", "PRI * HTTP/2.0",
     "\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c" + "\x7f\0\0\x01" * 2 + "\0P\0PGET / HTTP/1.1"],  # a PROXY header
)  # fmt: skip
async def test_no_disguise_of_a_request_reaches_another_host_in_a_tunnel(
    open_door: OpenDoor, first: str, early: bool
) -> None:
    """Servers skip blank lines before a request, and know more methods than GET."""
    reached = False

    async def served(stream: SocketStream) -> None:
        nonlocal reached
        await stream.receive()
        reached = True

    async with (
        server(served) as port,
        open_door(Allow(f"api.test:{port}=127.0.0.1"), Names(NAMES)) as door,
    ):
        asked = f"{first}\r\nHost: other.test\r\n\r\n".encode()
        answer = await (
            door.exchange(connect(port) + asked)
            if early
            else door.exchange(connect(port), *(asked[:1], asked[1:]))
        )
    assert answer.startswith(b"HTTP/1.1 200 Connection")
    assert b"HTTP/1.1 4" in answer
    assert not reached


GET = b"GET / HTTP/1.1\r\nHost: other.test\r\n\r\n"
ODD_BLANKS = (
    b"\v \f \x1c \x1f \0 \x85 \xa0 \xc2\x85 \xc2\xa0 \xe2\x80\xa8 \xef\xbb\xbf".split(
        b" "
    )
)
ALERT, CHANGE, DATA = (
    b"\x15\x03\x01\0\2\1\0",
    b"\x14\x03\x03\0\1\1",
    b"\x17\x03\x03\0\1\0",
)
HEARTBEAT, OLD_HELLO = b"\x18\x03\x03\0\1\1", b"\x80\x2e\1\3\1"
DISGUISED = [
    *(blank + GET for blank in ODD_BLANKS),
    *(GET.replace(b" ", blank) for blank in ODD_BLANKS),
    *(
        record + hello("other.test")
        for record in (ALERT, CHANGE, DATA, HEARTBEAT, OLD_HELLO)
    ),
    b"SSH-2.0-x\r\n" + GET,
    b"*1\r\n$4\r\nPING\r\n" + GET,
]


@pytest.mark.parametrize("early", [False, True], ids=["after-200", "before-200"])
@pytest.mark.parametrize("sent", DISGUISED)
async def test_a_client_that_speaks_first_speaks_http_or_tls(
    open_door: OpenDoor, sent: bytes, early: bool
) -> None:
    """On every port. Servers forgive more in front of a request, or of a TLS hello, than anyone can list."""
    reached = False

    async def served(stream: SocketStream) -> None:
        nonlocal reached
        await stream.receive()
        reached = True

    async with (
        server(served) as port,
        open_door(Allow(f"api.test:{port}=127.0.0.1"), Names(NAMES)) as door,
    ):
        await (
            door.exchange(connect(port) + sent)
            if early
            else door.exchange(connect(port), sent[:1], sent[1:])
        )
    assert not reached
    (record,) = door.records
    assert (
        f"tcp://api.test:{port}" in record["reason"]
        or "not a request" in record["reason"]
    )


async def test_a_client_that_speaks_before_a_talkative_server_is_answered_is_refused(
    open_door: OpenDoor,
) -> None:
    """A server's greeting makes nothing of what the client has said already harmless."""
    reached = b""

    async def served(stream: SocketStream) -> None:
        nonlocal reached
        await stream.send(b"220 hello\r\n")
        reached = await stream.receive()

    async with (
        server(served) as port,
        open_door(Allow(f"api.test:{port}=127.0.0.1"), Names(NAMES)) as door,
    ):
        await door.exchange(connect(port) + b"\v" + GET)
    assert reached == b""


async def test_any_protocol_may_be_allowed_and_one_whose_server_speaks_first_needs_no_allowance(
    open_door: OpenDoor,
) -> None:
    async def served(stream: SocketStream) -> None:
        await stream.send(b"220 hello\r\n")
        await stream.send(await stream.receive())

    async with (
        server(echo) as asks,
        server(served) as greets,
        open_door(
            Allow(f"tcp://api.test:{asks}=127.0.0.1", f"api.test:{greets}=127.0.0.1"),
            Names(NAMES),
        ) as door,
    ):
        assert (await door.exchange(connect(asks), b"\vPING", until=44)).endswith(
            b"PING"
        )
        async with await door.dial() as stream:
            await stream.send(connect(greets))
            received = b""
            while not received.endswith(b"hello\r\n"):
                received += await stream.receive()
            await stream.send(b"EHLO x")
            assert await stream.receive() == b"EHLO x"


@pytest.mark.parametrize(
    "settings", [b"\0\0\0\4\0\0\0\0\0", b"\0\0\6\4\0\0\0\0\0\0\3\0\0\0\x64", b"\0\0"]
)
async def test_a_client_that_waits_until_an_http2_server_speaks_reaches_no_other_host(
    open_door: OpenDoor, settings: bytes
) -> None:
    """gRPC servers send their settings at once. The proxy once did not check a client whose server spoke first."""
    reached = b""

    async def served(stream: SocketStream) -> None:
        nonlocal reached
        await stream.send(settings)
        reached = await stream.receive()

    async with (
        server(served) as port,
        open_door(Allow(f"api.test:{port}=127.0.0.1"), Names(NAMES)) as door,
        await door.dial() as stream,
    ):
        await stream.send(connect(port))
        received = await stream.receive()
        with (
            suppress(anyio.EndOfStream, anyio.BrokenResourceError),
            anyio.fail_after(60),
        ):
            while not received.endswith(settings):
                received += await stream.receive()
            await stream.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            await rest_of(stream)
    assert reached == b""
    assert ["tcp://" in record["reason"] for record in door.records] == [True]


async def test_a_server_that_never_answers_is_given_up(open_door: OpenDoor) -> None:
    async def mute(stream: SocketStream) -> None:
        while True:
            await stream.receive()

    allow = Allow("api.test:1-65535=127.0.0.1", limits=DoorLimits(idle=0.1))
    async with server(mute) as port, open_door(allow, Names(NAMES)) as door:
        answer = await door.exchange(request(port))
    assert answer.startswith(b"HTTP/1.1 502")
    assert [(record["verdict"], record["reason"]) for record in door.records] == [
        ("failed", "idle for too long")
    ]


async def whole(stream: SocketStream) -> bytes:
    """One whole answer, in however many pieces it comes."""
    received = b""
    while True:
        head, _, body = received.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head.lower())
        if length and len(body) >= int(length[1]):
            return received
        received += await stream.receive()


@pytest.mark.parametrize("protocol", ["h2c", "TLS/1.0", "websocket, h2c"])
async def test_only_a_websocket_upgrade_is_passed_on(
    open_door: OpenDoor, protocol: str
) -> None:
    """After an upgrade to HTTP/2 or TLS the client could name other hosts unseen."""
    async with server(web) as port, open_door(allowed(port), Names(NAMES)) as door:
        upgrade = (
            f"Upgrade: {protocol}",
            "Connection: Upgrade, HTTP2-Settings",
            "HTTP2-Settings: AAMAAABk",
        )
        async with await door.dial() as stream:
            await stream.send(request(port, "GET", *upgrade))
            answer = await whole(stream)
    assert b"GET /p" in answer
    assert b"upgrade" not in answer.lower()
    assert b"http2-settings" not in answer.lower()


async def test_a_server_that_upgrades_to_another_protocol_is_cut_off(
    open_door: OpenDoor,
) -> None:
    async def turncoat(stream: SocketStream) -> None:
        await read_head(stream)
        await stream.send(
            b"HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
        )
        await echo(stream)

    async with server(turncoat) as port, open_door(allowed(port), Names(NAMES)) as door:
        answer = await door.exchange(
            request(port, "GET", "Connection: Upgrade", "Upgrade: websocket")
        )
    assert answer.startswith(b"HTTP/1.1 502")
