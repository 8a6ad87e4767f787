"""Headers that the proxy sets, drops and masks."""

from __future__ import annotations

import pytest
from anyio.abc import SocketStream
from tests.network.conftest import NAMES, Names, OpenDoor, server, web
from tests.network.test_http_proxy import allowed, read_head, request

from belljar.network.allow import Allow


async def test_headers_behind_the_body_are_dropped(open_door: OpenDoor) -> None:
    seen = b""

    async def served(stream: SocketStream) -> None:
        nonlocal seen
        _head, seen = await read_head(stream)
        while b"0\r\n" not in seen:
            seen += await stream.receive()
        await stream.send(
            b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        )

    body = b"3;ext=a\r\nabc\r\n0\r\nHost: other.test\r\nAuthorization: mine\r\n\r\n"
    async with (
        server(served) as port,
        open_door(allowed(port), Names(NAMES)) as door,
        await door.dial() as stream,
    ):
        await stream.send(
            request(port, "POST", "Transfer-Encoding: chunked", "Trailer: Host") + body
        )
        assert (await stream.receive()).startswith(b"HTTP/1.1 200")
    assert b"abc" in seen
    assert b"ext=a" not in seen
    assert b"other.test" not in seen
    assert b"mine" not in seen


@pytest.mark.parametrize("named", ["Content-Length", "Transfer-Encoding"])
async def test_a_connection_header_cannot_take_the_bodys_length_away(
    open_door: OpenDoor, named: str
) -> None:
    async with server(web) as port, open_door(allowed(port), Names(NAMES)) as door:
        answer = await door.exchange(
            request(port, "POST", "Content-Length: 3", f"Connection: {named}") + b"abc"
        )
    assert answer.startswith(b"HTTP/1.1 400")


async def test_secret_headers_are_sent_in_clear_only_to_a_port_that_was_named(
    open_door: OpenDoor,
) -> None:
    """`api.test` alone means ports 80 and 443. A token is sent unencrypted only to a port that is written down."""
    allow = Allow(
        "api.test=127.0.0.1", headers={"api.test": {"Authorization": "Bearer s3cret"}}
    )
    async with open_door(allow, Names(NAMES)) as door:
        answer = await door.exchange(
            b"GET http://api.test/ HTTP/1.1\r\nHost: api.test\r\n\r\n"
        )
    assert answer.startswith(b"HTTP/1.1 403")
    assert b"https only" in answer
    assert not door.records[0]["address"]


async def test_a_secret_in_a_reason_phrase_is_masked(open_door: OpenDoor) -> None:
    async def mirror(stream: SocketStream) -> None:
        await read_head(stream)
        await stream.send(b"HTTP/1.1 401 no s3cret here\r\nContent-Length: 0\r\n\r\n")

    async with server(mirror) as port:
        allow = Allow(
            f"api.test:{port}=127.0.0.1",
            headers={"api.test": {"X-Key": "Bearer s3cret"}},
        )
        async with open_door(allow, Names(NAMES)) as door:
            answer = await door.exchange(request(port, "GET", "Connection: close"))
    assert answer.startswith(b"HTTP/1.1 401 no *** here")


async def test_a_secret_in_a_redirect_is_masked_however_it_is_written(
    open_door: OpenDoor,
) -> None:
    async def mirror(stream: SocketStream) -> None:
        await read_head(stream)
        where = b"Location: /?a=k%2fe%2By%3d%3d&b=k/e%2By%3D%3D&c=k/e+y==&d=bearer+K%2FE%2BY%3D%3D"
        await stream.send(
            b"HTTP/1.1 302 Found\r\n" + where + b"\r\nContent-Length: 0\r\n\r\n"
        )

    async with server(mirror) as port:
        allow = Allow(
            f"api.test:{port}=127.0.0.1",
            headers={"api.test": {"X-Key": "Bearer k/e+y=="}},
        )
        async with open_door(allow, Names(NAMES)) as door:
            answer = await door.exchange(request(port, "GET", "Connection: close"))
    assert b"/?a=***&b=***&c=***&d=***" in answer


@pytest.mark.parametrize("asked", ["[::1]", "API.test."])
async def test_the_forwarded_host_header_is_normalised(
    open_door: OpenDoor, asked: str
) -> None:
    """An IPv6 address is in brackets; a name is in lower case and has no final dot."""
    async with server(web, host="::1") as port:
        allow = Allow(f"[::1]:{port}", f"api.test:{port}=::1")
        async with open_door(allow, Names({"api.test": ["::1"]})) as door:
            lines = [
                f"GET http://{asked}:{port}/ HTTP/1.1",
                f"Host: {asked}:{port}",
                "Connection: close",
                "",
                "",
            ]
            answer = await door.exchange("\r\n".join(lines).encode())
    assert f"host: {asked.lower().rstrip('.')}:{port}".encode() in answer.lower().split(
        b"|"
    )


@pytest.mark.parametrize("method", ["TRACE", "Trace", "TRACK"])
async def test_methods_that_echo_are_refused_where_a_secret_is_sent(
    open_door: OpenDoor, method: str
) -> None:
    async with server(web) as port:
        allow = Allow(
            f"api.test:{port}=127.0.0.1", headers={"api.test": {"X-Key": "s3cret"}}
        )
        async with open_door(allow, Names(NAMES)) as door:
            answer = await door.exchange(request(port, method, "Connection: close"))
    assert b" 405 " in answer
    assert b"s3cret" not in answer


@pytest.mark.parametrize(
    "line",
    [
        "X: a\r\n\r\nGET / HTTP/1.1",
        "X: a\0b",
        "X: a\rY: b",
        "X\r: a",
        "X y: a",
        ": a",
        "X: a\x0bb",
        "\tX: a",
    ],
)
async def test_no_header_can_be_injected(open_door: OpenDoor, line: str) -> None:
    """Values that would end a header or the whole head early."""
    seen = list[bytes]()

    async def served(stream: SocketStream) -> None:
        seen.append((await read_head(stream))[0])
        await stream.send(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")

    async with server(served) as port, open_door(allowed(port), Names(NAMES)) as door:
        answer = await door.exchange(request(port, "GET", line, "Connection: close"))
    assert b"HTTP/1.1 400" in answer
    assert len(seen) == line.startswith("X: a\r\n\r\n"), (
        "the first request alone was whole"
    )
