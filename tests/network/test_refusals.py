"""Disguised hosts, clients that never finish, and parts that fail: nothing gets out."""

from __future__ import annotations

import contextlib

import anyio
import pytest
from anyio.abc import SocketStream
from tests.network.conftest import LOCAL, Names, OpenDoor, echo, server
from tests.network.test_tls import with_extension

from belljar import Allow
from belljar.network import door, http_proxy


@pytest.mark.parametrize(
    "host",
    [
        "аpi.test:443",  # a Cyrillic а
        "xn--pi-6kc.test:443",  # the same name as a resolver would get it
        "api.test。evil.test:443",
        "api.test%2eevil.test:443",
        "api.test\\evil.test:443",
        "api.test\x00.evil.test:443",
        "evil.test/api.test:443",
        "evil.test?api.test:443",
        "api.test:443@evil.test:443",
        "wild.test:443",
        "evilwild.test:443",
        ".wild.test:443",
        "api.test..:443",
        "api.test:0",
        "api.test:65536",
        "api.test:+443",
        "api.test:443:443",
        "api.test: 443",
        "[api.test]:443",
        "0x7f.1:443",
        "0177.0.0.1:443",
        "127.0.0.1:443",
        "[::1]:443",
        "[::ffff:7f00:1]:443",
        "[fe80::1%25lo]:443",
        "localhost:443",
        "169.254.169.254:443",
    ],
)
async def test_a_disguised_host_name_is_refused_and_never_resolved(
    open_door: OpenDoor, host: str
) -> None:
    """The proxy does not resolve a refused name: the name could carry a secret out."""
    names = Names(LOCAL)
    async with open_door(Allow("api.test", "*.wild.test"), names) as opened:
        answer = await opened.exchange(
            f"CONNECT {host} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
        )
    assert answer.startswith(b"HTTP/1.1 4"), answer
    assert names.asked == []


@pytest.mark.parametrize(
    "sent",
    [b"", b"GET http://api.test/ HT", b"\x05\x01"],
    ids=["nothing", "half a line", "socks"],
)
async def test_a_client_that_never_finishes_its_request_is_dropped(
    open_door: OpenDoor, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    for module in (door, http_proxy):
        monkeypatch.setattr(module, "HEAD_SECONDS", 0.1)
    monkeypatch.setattr("belljar.network.socks.SECONDS", 0.1)
    async with open_door(Allow("api.test")) as opened:
        with anyio.fail_after(120):
            assert await opened.exchange(*([sent] if sent else [])) == b""


async def test_a_half_closed_client_still_gets_its_answer(open_door: OpenDoor) -> None:
    async def late(stream: SocketStream) -> None:
        with contextlib.suppress(anyio.EndOfStream):
            while True:
                await stream.receive()
        await stream.send(b"the answer")

    async with (
        server(late) as port,
        open_door(Allow(f"127.0.0.1:{port}")) as opened,
        await opened.dial() as stream,
    ):
        await stream.send(
            f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
        )
        assert (await stream.receive()).startswith(b"HTTP/1.1 200")
        await stream.send(b"\x00question")
        await stream.send_eof()
        assert await stream.receive() == b"the answer"


async def test_a_refused_upload_gets_the_reason(open_door: OpenDoor) -> None:
    """If the proxy hung up at once, a client that still sends would get a reset and no reason."""
    async with open_door(Allow("api.test")) as opened:
        head = b"POST http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\nContent-Length: 200000\r\n\r\n"
        answer = await opened.exchange(head, bytes(100_000), bytes(100_000))
    assert b"--allow evil.test" in answer


@pytest.mark.parametrize("extension", [b"\xfe\x0d\x00\x01\x00", b"\x00\x00\x00\x0b\x00\x09\x00\x00\x06b.test"],
                         ids=["hidden", "two names"])  # fmt: skip
async def test_a_handshake_with_a_hidden_or_second_name_is_cut_off(
    open_door: OpenDoor, extension: bytes
) -> None:
    async with (
        server(echo) as port,
        open_door(Allow(f"api.test:{port}=127.0.0.1"), Names(LOCAL)) as opened,
    ):
        asked = f"CONNECT api.test:{port} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
        await opened.exchange(asked, with_extension("api.test", extension))
    assert [(record["verdict"], record["sent"]) for record in opened.records] == [
        ("refused", 0)
    ]


async def test_the_relay_ends_with_the_host_process(open_door: OpenDoor) -> None:
    """`kill -9` of the proxy closes the relay's pipes. The relay ends, and its port is closed."""
    async with server(echo) as port, open_door(Allow(f"127.0.0.1:{port}")) as opened:
        opened.process.stdin.close()
        await opened.process.wait()
        with pytest.raises(OSError, match="failed"):
            await opened.dial()


async def test_a_refused_private_address_comes_with_the_option_that_allows_it(
    open_door: OpenDoor,
) -> None:
    names = Names({"mirror.test": ["10.1.2.3"], "here.test": ["127.0.0.1"]})
    async with open_door(Allow("mirror.test", "here.test"), names) as opened:
        answer = await opened.exchange(
            b"CONNECT mirror.test:443 HTTP/1.1\r\nHost: mirror.test:443\r\n\r\n"
        )
        assert b" 403 " in answer
        assert b"`--allow mirror.test=ADDRESS`" in answer
        answer = await opened.exchange(
            b"CONNECT here.test:443 HTTP/1.1\r\nHost: here.test:443\r\n\r\n"
        )
        assert b"loopback" in answer
        assert b"--allow" not in answer, "nobody is advised to open this machine"
