"""TLS through the door: the name in the handshake counts, and headers that never enter the sandbox."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import anyio
import pytest
from anyio.abc import SocketStream
from anyio.streams.tls import TLSStream
from tests.network.conftest import Names, Opening, server
from tests.network.test_door import web

from belljar.network import tunnel
from belljar.network.allow import Allow
from belljar.network.authority import Authority
from belljar.network.door import Door
from belljar.network.tls import NotTLS, client_hello


@pytest.fixture(scope="module")
def world() -> Authority:
    """Who signs the servers of these tests."""
    return Authority()


@pytest.fixture(scope="module")
def trust(world: Authority, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("trust") / "world.pem"
    path.write_bytes(world.pem)
    return str(path)


@contextlib.asynccontextmanager
async def secure(
    world: Authority, host: str, serve: Callable[[SocketStream], Awaitable[None]] = web
) -> AsyncIterator[int]:
    async def handle(stream: SocketStream) -> None:
        with contextlib.suppress(ssl.SSLError):
            wrapped = await TLSStream.wrap(
                stream, server_side=True, ssl_context=world.server_context(host), standard_compatible=False
            )
            await serve(wrapped)  # type: ignore[arg-type]
            await wrapped.aclose()

    async with server(handle) as port:
        yield port


@pytest.fixture
def to_443(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Port 443 of any address is this port of loopback: a test may not listen on 443."""
    where: dict[str, int] = {}
    real = anyio.connect_tcp

    async def connect(host: str, port: int) -> SocketStream:
        return await real(host, where.get("port", port) if port == 443 else port)

    monkeypatch.setattr("belljar.network.door.anyio.connect_tcp", connect)
    return where


async def ask(door: Door, stream: SocketStream, name: str, context: ssl.SSLContext, sni: str | None) -> bytes:
    await stream.send(f"CONNECT {name}:443 HTTP/1.1\r\nHost: {name}\r\n\r\n".encode())
    assert (await stream.receive()).startswith(b"HTTP/1.1 200")
    context.check_hostname = False
    inner = await TLSStream.wrap(
        stream, server_side=False, hostname=sni, ssl_context=context, standard_compatible=False
    )
    await inner.send(f"GET /x HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n".encode())
    heard = b""
    with contextlib.suppress(anyio.EndOfStream, anyio.BrokenResourceError):
        while b"|" not in heard:
            heard += await inner.receive()
    if not heard:
        raise anyio.EndOfStream
    return heard


ALLOW = ("api.test", "127.0.0.1:443")
NAMES = {"api.test": ["127.0.0.1"]}


async def test_tls_to_the_allowed_name_passes(
    open_door: Opening, world: Authority, trust: str, to_443: dict[str, int]
) -> None:
    async with secure(world, "api.test") as port, open_door(Allow(*ALLOW), Names(NAMES)) as door:
        to_443["port"] = port
        async with await door.dial() as stream:
            answer = await ask(door.door, stream, "api.test", ssl.create_default_context(cafile=trust), "api.test")
    assert b"GET /x HTTP/1.1" in answer


@pytest.mark.parametrize("sni", ["evil.test", None, "api.test.evil.test"])
async def test_another_name_in_the_handshake_is_cut_off(
    open_door: Opening, world: Authority, trust: str, to_443: dict[str, int], sni: str | None
) -> None:
    async with secure(world, "api.test") as port, open_door(Allow(*ALLOW), Names(NAMES)) as door:
        to_443["port"] = port
        async with await door.dial() as stream:
            with pytest.raises((ssl.SSLError, anyio.EndOfStream, anyio.BrokenResourceError)):
                await ask(door.door, stream, "api.test", ssl.create_default_context(cafile=trust), sni)
    assert [r["verdict"] for r in door.records] == ["refused"]
    assert door.records[0]["sent"] == 0


async def test_what_is_not_tls_is_cut_off_on_443(open_door: Opening, to_443: dict[str, int]) -> None:
    async with server(web) as port, open_door(Allow(*ALLOW), Names(NAMES)) as door:
        to_443["port"] = port
        heard = await door.say(
            b"CONNECT api.test:443 HTTP/1.1\r\nHost: api.test\r\n\r\n", b"GET / HTTP/1.1\r\nHost: evil\r\n\r\n"
        )
    assert heard == b"HTTP/1.1 200 Connection established\r\n\r\n"
    assert "only TLS" in door.records[0]["reason"]


async def test_a_name_allowed_for_plain_bytes_may_speak_anything(open_door: Opening, to_443: dict[str, int]) -> None:
    async with server(web) as port, open_door(Allow("tcp://api.test:443", "127.0.0.1:443"), Names(NAMES)) as door:
        to_443["port"] = port
        async with await door.dial() as stream:
            await stream.send(b"CONNECT api.test:443 HTTP/1.1\r\nHost: api.test\r\n\r\nGET / HTTP/1.1\r\n\r\n")
            heard = await stream.receive()
            while b"GET /" not in heard:
                heard += await stream.receive()


async def test_a_client_that_never_finishes_its_handshake_is_left(
    open_door: Opening, to_443: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tunnel, "HELLO_SECONDS", 0.1)
    async with server(web) as port, open_door(Allow(*ALLOW), Names(NAMES)) as door:
        to_443["port"] = port
        await door.say(b"CONNECT api.test:443 HTTP/1.1\r\nHost: api.test\r\n\r\n", b"\x16\x03\x01")
    assert "no TLS handshake" in door.records[0]["reason"]


def hello(sni: str) -> bytes:
    """What this Python's own TLS says first."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    talk = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname=sni)
    with contextlib.suppress(ssl.SSLWantReadError):
        talk.do_handshake()
    return outgoing.read()


def test_a_hello_is_read_in_pieces_and_over_records() -> None:
    whole = hello("a.test")
    found = client_hello(whole)
    assert found
    assert (found.name, found.hides_name) == ("a.test", False)
    assert all(client_hello(whole[:cut]) is None for cut in range(1, len(whole)))
    body = whole[5:]
    split = b"".join(b"\x16\x03\x01" + len(part).to_bytes(2, "big") + part for part in (body[:7], body[7:]))
    again = client_hello(split)
    assert again
    assert again.name == "a.test"


def with_extension(sni: str, extension: bytes) -> bytes:
    whole = bytearray(hello(sni))
    # The extensions' length stands in front of the first extension; walk there.
    at = 5 + 4 + 2 + 32
    at += 1 + whole[at]
    at += 2 + int.from_bytes(whole[at : at + 2], "big")
    at += 1 + whole[at]
    for place, size in ((3, 2), (6, 3), (at, 2)):
        whole[place : place + size] = (int.from_bytes(whole[place : place + size], "big") + len(extension)).to_bytes(
            size, "big"
        )
    return bytes(whole) + extension


def test_a_hidden_name_is_noticed() -> None:
    found = client_hello(with_extension("a.test", b"\xfe\x0d\x00\x01\x00"))
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
def test_what_is_no_hello_is_said_so(data: bytes) -> None:
    with pytest.raises(NotTLS):
        client_hello(data)


async def test_a_header_is_added_outside_and_masked_coming_back(
    open_door: Opening, world: Authority, trust: str, to_443: dict[str, int], tmp_path: Path
) -> None:
    ours = Authority(trust)
    (tmp_path / "session.pem").write_bytes(ours.pem)
    allow = Allow(*ALLOW, headers={"api.test": {"Authorization": "Bearer s3cret"}})
    async with secure(world, "api.test") as port, open_door(allow, Names(NAMES), authority=ours) as door:
        to_443["port"] = port
        async with await door.dial() as stream:
            context = ssl.create_default_context(cafile=str(tmp_path / "session.pem"))
            answer = await ask(door.door, stream, "api.test", context, "api.test")
    assert (
        b"Bearer s3cret" in answer
    )  # the test's server echoes the request in its body, which is the caller's own affair
    assert "s3cret" not in str(door.records)
    assert "s3cret" not in repr(allow)


async def test_a_websocket_goes_through_where_tls_ends_here(
    open_door: Opening, world: Authority, trust: str, to_443: dict[str, int], tmp_path: Path
) -> None:
    keys: list[bytes] = []

    async def talk(stream: SocketStream) -> None:
        keys.append(await stream.receive())
        await stream.send(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        await stream.send(b"you said " + await stream.receive())

    ours = Authority(trust)
    (tmp_path / "session.pem").write_bytes(ours.pem)
    context = ssl.create_default_context(cafile=str(tmp_path / "session.pem"))
    allow = Allow(*ALLOW, headers={"api.test": {"Authorization": "Bearer s3cret"}})
    async with secure(world, "api.test", talk) as port, open_door(allow, Names(NAMES), authority=ours) as door:
        to_443["port"] = port
        async with await door.dial() as stream:
            await stream.send(b"CONNECT api.test:443 HTTP/1.1\r\nHost: api.test\r\n\r\n")
            assert (await stream.receive()).startswith(b"HTTP/1.1 200")
            inner = await TLSStream.wrap(stream, hostname="api.test", ssl_context=context, standard_compatible=False)
            await inner.send(b"GET / HTTP/1.1\r\nHost: api.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
            heard = await inner.receive()
            await inner.send(b"hello")
            with contextlib.suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                while True:
                    heard += await inner.receive()
    assert heard.endswith(b"you said hello")
    assert b"Bearer s3cret" in keys[0]
    assert [record["verdict"] for record in door.records] == ["allowed", "allowed"]


async def test_a_header_echoed_in_headers_is_masked(open_door: Opening) -> None:
    async def mirror(stream: SocketStream) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            head += await stream.receive()
        secret = next(line for line in head.split(b"\r\n") if line.lower().startswith(b"x-key"))
        await stream.send(
            b"HTTP/1.1 200 OK\r\nX-Echo: " + secret.partition(b": ")[2] + b"\r\nContent-Length: 0\r\n\r\n"
        )

    async with server(mirror) as port:
        allow = Allow(f"api.test:{port}", f"127.0.0.1:{port}", "api.test", headers={"api.test": {"X-Key": "s3cret"}})
        async with open_door(allow, Names(NAMES)) as door:
            lines = [
                f"GET http://api.test:{port}/ HTTP/1.1",
                f"Host: api.test:{port}",
                "X-Key: mine",
                "Connection: close",
            ]
            answer = await door.say("\r\n".join([*lines, "", ""]).encode())
    assert b"s3cret" not in answer
    assert b"***" in answer


async def test_a_request_that_brings_its_headers_back_is_refused(open_door: Opening) -> None:
    async def mirror(stream: SocketStream) -> None:
        asked = await stream.receive()
        await stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(asked) + asked)

    async with server(mirror) as port:
        allow = Allow(f"api.test:{port}", f"127.0.0.1:{port}", "api.test", headers={"api.test": {"X-Key": "s3cret"}})
        async with open_door(allow, Names({"api.test": ["127.0.0.1"]})) as door:
            asked = f"TRACE http://api.test:{port}/ HTTP/1.1\r\nHost: api.test:{port}\r\nConnection: close\r\n\r\n"
            answer = await door.say(asked.encode())
    assert b" 405 " in answer
    assert b"s3cret" not in answer
