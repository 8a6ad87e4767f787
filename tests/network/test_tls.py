"""TLS through the network door: the name in the handshake decides, and secret headers never enter the sandbox."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Callable

import anyio
import pytest
from anyio.abc import ByteReceiveStream, SocketStream
from tests.network.conftest import ALLOW, NAMES, Names, OpenDoor, ask, secure, server

from belljar.network import tls
from belljar.network.allow import Allow
from belljar.network.authority import Authority
from belljar.network.tls import HelloReader, NotTLS
from belljar.network.tunnel import checked_hello


async def test_tls_to_the_allowed_name_passes(
    open_door: OpenDoor, world: Authority, trust: str, to_443: dict[str, int]
) -> None:
    async with (
        secure(world, "api.test") as port,
        open_door(Allow(*ALLOW), Names(NAMES)) as door,
    ):
        to_443["port"] = port
        async with await door.dial() as stream:
            answer = await ask(
                door.door,
                stream,
                "api.test",
                ssl.create_default_context(cafile=trust),
                "api.test",
            )
    assert b"GET /x HTTP/1.1" in answer


@pytest.mark.parametrize("sni", ["evil.test", None, "api.test.evil.test"])
async def test_another_name_in_the_handshake_is_cut_off(
    open_door: OpenDoor,
    world: Authority,
    trust: str,
    to_443: dict[str, int],
    sni: str | None,
) -> None:
    async with (
        secure(world, "api.test") as port,
        open_door(Allow(*ALLOW), Names(NAMES)) as door,
    ):
        to_443["port"] = port
        async with await door.dial() as stream:
            with pytest.raises(
                (ssl.SSLError, anyio.EndOfStream, anyio.BrokenResourceError)
            ):
                await ask(
                    door.door,
                    stream,
                    "api.test",
                    ssl.create_default_context(cafile=trust),
                    sni,
                )
    assert [r["verdict"] for r in door.records] == ["refused"]
    assert door.records[0]["sent"] == 0


def hello(sni: str) -> bytes:
    """The ClientHello of this Python's TLS."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    talk = ssl.create_default_context().wrap_bio(
        incoming, outgoing, server_hostname=sni
    )
    with contextlib.suppress(ssl.SSLWantReadError):
        talk.do_handshake()
    return outgoing.read()


def test_a_client_hello_is_read_in_pieces_and_across_records() -> None:
    whole = hello("a.test")
    found = HelloReader().feed(whole)
    assert found
    assert (found.name, found.hides_name) == ("a.test", False)
    assert all(HelloReader().feed(whole[:cut]) is None for cut in range(1, len(whole)))
    body = whole[5:]
    split = b"".join(
        b"\x16\x03\x01" + len(part).to_bytes(2, "big") + part
        for part in (body[:7], body[7:])
    )
    again = HelloReader().feed(split)
    assert again
    assert again.name == "a.test"


def with_extension(sni: str, extension: bytes) -> bytes:
    whole = bytearray(hello(sni))
    # Find the length of the extensions, which is in front of the first one.
    at = 5 + 4 + 2 + 32
    at += 1 + whole[at]
    at += 2 + int.from_bytes(whole[at : at + 2], "big")
    at += 1 + whole[at]
    for place, size in ((3, 2), (6, 3), (at, 2)):
        whole[place : place + size] = (
            int.from_bytes(whole[place : place + size], "big") + len(extension)
        ).to_bytes(size, "big")
    return bytes(whole) + extension


def test_an_encrypted_server_name_is_noticed() -> None:
    found = HelloReader().feed(with_extension("a.test", b"\xfe\x0d\x00\x01\x00"))
    assert found
    assert found.hides_name


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n",
        b"\x16\x02",
        b"\x16\x03\x01\x00\x00",
        b"\x16\x03\x01\x00\x05\x02\x00\x00\x01\x00",
        b"SSH-2.0",
    ],
)
def test_bytes_that_are_no_client_hello_are_refused(data: bytes) -> None:
    with pytest.raises(NotTLS):
        HelloReader().feed(data)


async def test_a_header_echoed_in_headers_is_masked(open_door: OpenDoor) -> None:
    async def mirror(stream: SocketStream) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            head += await stream.receive()
        secret = next(
            line for line in head.split(b"\r\n") if line.lower().startswith(b"x-key")
        )
        await stream.send(
            b"HTTP/1.1 200 OK\r\nX-Echo: "
            + secret.partition(b": ")[2]
            + b"\r\nContent-Length: 0\r\n\r\n"
        )

    async with server(mirror) as port:
        allow = Allow(
            f"api.test:{port}",
            f"127.0.0.1:{port}",
            "api.test",
            headers={"api.test": {"X-Key": "s3cret"}},
        )
        async with open_door(allow, Names(NAMES)) as door:
            lines = [
                f"GET http://api.test:{port}/ HTTP/1.1",
                f"Host: api.test:{port}",
                "X-Key: mine",
                "Connection: close",
            ]
            answer = await door.exchange("\r\n".join([*lines, "", ""]).encode())
    assert b"s3cret" not in answer
    assert b"***" in answer


async def test_a_request_that_brings_its_headers_back_is_refused(
    open_door: OpenDoor,
) -> None:
    async def mirror(stream: SocketStream) -> None:
        asked = await stream.receive()
        await stream.send(
            b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(asked) + asked
        )

    async with server(mirror) as port:
        allow = Allow(
            f"api.test:{port}",
            f"127.0.0.1:{port}",
            "api.test",
            headers={"api.test": {"X-Key": "s3cret"}},
        )
        async with open_door(allow, Names({"api.test": ["127.0.0.1"]})) as door:
            asked = f"TRACE http://api.test:{port}/ HTTP/1.1\r\nHost: api.test:{port}\r\nConnection: close\r\n\r\n"
            answer = await door.exchange(asked.encode())
    assert b" 405 " in answer
    assert b"s3cret" not in answer


def test_a_client_hello_that_comes_byte_by_byte_is_scanned_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each byte is in its own record. Scanning all of them again for each one delayed every other session."""
    looked = 0

    def counting(
        data: bytes, real: Callable[[bytes], bool] = tls.starts_handshake
    ) -> bool:
        nonlocal looked
        looked += 1
        return real(data)

    class ByByte(ByteReceiveStream):
        async def receive(self, max_bytes: int = 1) -> bytes:
            return bytes([next(left)])

        async def aclose(self) -> None:
            pass

    message = hello("api.test")[5:]
    left = iter(b"".join(b"\x16\x03\x01\x00\x01" + bytes([byte]) for byte in message))
    monkeypatch.setattr(tls, "starts_handshake", counting)
    _, received = anyio.run(checked_hello, ByByte(), "api.test", b"")
    assert len(received) == 6 * len(message)
    assert looked <= 2 * len(received)
