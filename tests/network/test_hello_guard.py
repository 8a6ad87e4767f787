"""A client that sends a second ClientHello must name the allowed host again."""

from __future__ import annotations

import ssl

import anyio
import pytest
from tests.network.conftest import ALLOW, NAMES, Names, OpenDoor, secure, server
from tests.network.test_tls import hello, with_extension

from belljar.network.allow import Allow
from belljar.network.authority import Authority

CHANGE = b"\x14\x03\x03\x00\x01\x01"
ENCRYPTED = b"\x17\x03\x03\x00\x20" + bytes(32)
EARLY_DATA = b"\x00\x2a\x00\x00"
GOOD, EVIL = hello("api.test"), hello("evil.test")


def in_pieces(whole: bytes) -> bytes:
    """Each byte of the message in its own record."""
    return b"".join(
        whole[:3] + b"\x00\x01" + whole[at : at + 1] for at in range(5, len(whole))
    )


def together(*hellos: bytes) -> bytes:
    """Several messages in one record."""
    messages = b"".join(each[5:] for each in hellos)
    return b"\x16\x03\x01" + len(messages).to_bytes(2, "big") + messages


@pytest.mark.parametrize(
    "sent",
    [
        [GOOD, EVIL],
        [GOOD + EVIL],
        [GOOD, CHANGE + EVIL],
        [GOOD, CHANGE, EVIL],
        [GOOD, CHANGE, in_pieces(EVIL)],
        [GOOD, GOOD, EVIL],
        [GOOD, b"\x15\x03\x03\x00\x02\x01\x5a" + EVIL],
        [GOOD, EVIL[:3], EVIL[3:]],
        [together(GOOD, EVIL)],
        [with_extension("api.test", EARLY_DATA) + ENCRYPTED + EVIL],
        [with_extension("api.test", EARLY_DATA), ENCRYPTED, CHANGE, EVIL],
        [GOOD, b"\x16\x03\x03\x00\x00" + EVIL],
        [GOOD, b"\x18\x03\x03\x00\x01\x01" + EVIL],
        [GOOD * 1000],  # each costs the proxy more than it costs the client
        [GOOD, CHANGE * 1000],
    ],
)
async def test_a_second_client_hello_cannot_name_another_host(
    open_door: OpenDoor, to_443: dict[str, int], sent: list[bytes]
) -> None:
    """Some servers accept the name in the ClientHello that follows a HelloRetryRequest."""
    got = bytearray()

    async def served(stream: anyio.abc.SocketStream) -> None:
        while True:
            got.extend(await stream.receive())

    async with server(served) as port, open_door(Allow(*ALLOW), Names(NAMES)) as door:
        to_443["port"] = port
        await door.exchange(
            b"CONNECT api.test:443 HTTP/1.1\r\nHost: api.test\r\n\r\n", *sent
        )
    assert b"evil.test" not in got
    assert [record["verdict"] for record in door.records] == ["refused"]


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("curve", ["prime256v1", "secp521r1"])
async def test_a_handshake_with_a_hello_retry_works(
    open_door: OpenDoor,
    world: Authority,
    trust: str,
    to_443: dict[str, int],
    version: ssl.TLSVersion,
    curve: str,
) -> None:
    """The server wants a curve for which the client sent no key. Then the session is resumed."""
    world.server_context("api.test").set_ecdh_curve(curve)
    context = ssl.create_default_context(cafile=trust)
    context.minimum_version = context.maximum_version = version
    session: ssl.SSLSession | None = None
    async with (
        secure(world, "api.test") as port,
        open_door(Allow(*ALLOW), Names(NAMES)) as door,
    ):
        to_443["port"] = port
        for _ in range(2):
            session = await anyio.to_thread.run_sync(
                _fetch, door.port, context, session
            )
    assert [(record["verdict"], record["reason"]) for record in door.records] == [
        ("allowed", "")
    ] * 2


def _fetch(
    port: int, context: ssl.SSLContext, session: ssl.SSLSession | None
) -> ssl.SSLSession | None:
    import socket

    with socket.create_connection(("127.0.0.1", port)) as plain:
        plain.sendall(b"CONNECT api.test:443 HTTP/1.1\r\nHost: api.test\r\n\r\n")
        assert plain.recv(100).startswith(b"HTTP/1.1 200")
        with context.wrap_socket(
            plain, server_hostname="api.test", session=session
        ) as line:
            line.sendall(b"GET /x HTTP/1.1\r\nHost: api.test\r\n\r\n" + b"x" * 100_000)
            assert b"GET /x" in line.recv(1000)
            return line.session
