"""The proxy's HTTP, with servers that use every form that HTTP allows."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import h11
import pytest
from anyio.abc import SocketStream
from tests.network.conftest import Names, OpenDoor, server

from belljar import turns
from belljar.network import http_proxy
from belljar.network.allow import Allow
from belljar.network.door import Door
from belljar.network.http_proxy import HttpProxy
from belljar.network.mux import MuxStream

NAMES = {"api.test": ["127.0.0.1"]}


async def read_head(stream: SocketStream) -> tuple[bytes, bytes]:
    data = b""
    while b"\r\n\r\n" not in data:
        data += await stream.receive()
    head, _, rest = data.partition(b"\r\n\r\n")
    return head, rest


def allowed(port: int) -> Allow:
    return Allow(f"api.test:{port}", f"127.0.0.1:{port}")


def request(
    port: int, method: str = "GET", *headers: str, version: str = "1.1"
) -> bytes:
    lines = [
        f"{method} http://api.test:{port}/p HTTP/{version}",
        f"Host: api.test:{port}",
        *headers,
    ]
    return "\r\n".join([*lines, "", ""]).encode()


async def test_a_chunked_body_and_a_chunked_answer_are_passed_on(
    open_door: OpenDoor,
) -> None:
    got = bytearray()

    async def handle(stream: SocketStream) -> None:
        head, rest = await read_head(stream)
        assert b"transfer-encoding: chunked" in head.lower()
        while not rest.endswith(b"0\r\n\r\n"):
            rest += await stream.receive()
        got.extend(rest)
        await stream.send(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
        )

    async with server(handle) as port, open_door(allowed(port), Names(NAMES)) as door:
        answer = await door.exchange(
            request(port, "POST", "Transfer-Encoding: chunked", "Connection: close"),
            b"5\r\nhello\r\n0\r\n\r\n",
        )
    assert b"hello" in got
    assert b"abc" in answer


async def test_expect_100_continue_is_passed_on(open_door: OpenDoor) -> None:
    async def handle(stream: SocketStream) -> None:
        head, rest = await read_head(stream)
        assert b"100-continue" in head
        await stream.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        while len(rest) < 4:
            rest += await stream.receive()
        await stream.send(b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n")

    async with (
        server(handle) as port,
        open_door(allowed(port), Names(NAMES)) as door,
        await door.dial() as stream,
    ):
        await stream.send(
            request(port, "PUT", "Content-Length: 4", "Expect: 100-continue")
        )
        assert b"100" in await stream.receive()
        await stream.send(b"data")
        assert b"201" in await stream.receive()


async def test_an_http_1_0_answer_without_a_length_is_passed_on(
    open_door: OpenDoor,
) -> None:
    async def handle(stream: SocketStream) -> None:
        await read_head(stream)
        await stream.send(b"HTTP/1.0 200 OK\r\n\r\nall there is")

    async with server(handle) as port, open_door(allowed(port), Names(NAMES)) as door:
        answer = await door.exchange(request(port, version="1.0"))
    assert answer.endswith(b"all there is")


async def test_an_upgrade_becomes_raw_bytes(open_door: OpenDoor) -> None:
    async def handle(stream: SocketStream) -> None:
        head, _ = await read_head(stream)
        assert b"upgrade: websocket" in head.lower()
        await stream.send(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nfirst"
        )
        while True:
            await stream.send((await stream.receive()).upper())

    async with (
        server(handle) as port,
        open_door(allowed(port), Names(NAMES)) as door,
        await door.dial() as stream,
    ):
        await stream.send(
            request(port, "GET", "Connection: Upgrade", "Upgrade: websocket")
        )
        received = b""
        while b"first" not in received:
            received += await stream.receive()
        assert received.startswith(b"HTTP/1.1 101")
        await stream.send(b"frame")
        assert await stream.receive() == b"FRAME"


async def test_head_has_no_body_and_the_connection_goes_on(open_door: OpenDoor) -> None:
    async def handle(stream: SocketStream) -> None:
        while True:
            head, _ = await read_head(stream)
            body = b"" if head.startswith(b"HEAD") else b"body"
            await stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n" + body)

    async with server(handle) as port, open_door(allowed(port), Names(NAMES)) as door:
        answer = await door.exchange(
            request(port, "HEAD"), request(port, "GET", "Connection: close")
        )
    assert answer.count(b"200") == 2
    assert answer.endswith(b"body")


async def test_a_server_that_hangs_up_without_an_answer_gives_502(
    open_door: OpenDoor,
) -> None:
    async def handle(stream: SocketStream) -> None:
        await read_head(stream)

    async with server(handle) as port, open_door(allowed(port), Names(NAMES)) as door:
        answer = await door.exchange(request(port))
    assert answer.startswith(b"HTTP/1.1 502")
    assert (
        door.records[0]["verdict"] == "failed" or "broke" in door.records[0]["reason"]
    )


async def test_a_big_body_is_streamed(open_door: OpenDoor) -> None:
    size = 30_000_000

    async def handle(stream: SocketStream) -> None:
        await read_head(stream)
        await stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        for _ in range(size // 100_000):
            await stream.send(b"x" * 100_000)

    async with server(handle) as port, open_door(allowed(port), Names(NAMES)) as door:
        answer = await door.exchange(
            request(port, "GET", "Connection: close"), until=1 << 30
        )
    assert len(answer) > size


async def test_half_sent_requests_do_not_block_other_clients(
    open_door: OpenDoor,
) -> None:
    async def handle(stream: SocketStream) -> None:
        await read_head(stream)
        await stream.send(b"HTTP/1.1 204 No Content\r\n\r\n")

    async with server(handle) as port, open_door(allowed(port), Names(NAMES)) as door:
        slow = [await door.dial() for _ in range(200)]
        for stream in slow:
            await stream.send(b"GET http://api.test/ HTT")
        assert b"204" in await door.exchange(request(port, "GET", "Connection: close"))
        async with anyio.create_task_group() as tasks:
            for stream in slow:
                tasks.start_soon(stream.aclose)


async def test_a_request_may_come_in_any_pieces(open_door: OpenDoor) -> None:
    async def handle(stream: SocketStream) -> None:
        await read_head(stream)
        await stream.send(b"HTTP/1.1 204 No Content\r\n\r\n")

    async with server(handle) as port, open_door(allowed(port), Names(NAMES)) as door:
        whole = request(port, "GET", "X-One: 1", "Connection: close")
        for cut in range(1, len(whole), 3):
            answer = await door.exchange(whole[:cut], whole[cut:])
            assert answer.startswith(b"HTTP/1.1 204"), (cut, answer)


async def test_a_server_that_hangs_up_between_two_requests_is_dialled_again(
    open_door: OpenDoor,
) -> None:
    """Servers hang up after a few idle seconds. The client's own connection goes on."""
    hung_up = anyio.Event()

    async def once(stream: SocketStream) -> None:
        await read_head(stream)
        await stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        await stream.aclose()
        hung_up.set()

    async with (
        server(once) as port,
        open_door(allowed(port), Names(NAMES)) as door,
        await door.dial() as stream,
    ):
        for _ in range(2):
            await stream.send(request(port))
            answer = b""
            while not answer.endswith(b"ok"):
                answer += await stream.receive()
            assert answer.startswith(b"HTTP/1.1 200")
            await hung_up.wait()
    assert [record["verdict"] for record in door.records] == ["allowed", "allowed"]


async def test_a_head_that_comes_byte_by_byte_is_scanned_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A byte costs a program inside almost nothing. Scanning all again for each one delayed every other session."""
    real, looked_at = http_proxy._BARE_OR_FOLDED, 0

    class Counting:
        @staticmethod
        def search(text: bytes, start: int = 0) -> object:
            nonlocal looked_at
            looked_at += len(text) - start
            return real.search(text, start)

    monkeypatch.setattr(http_proxy, "_BARE_OR_FOLDED", Counting)
    proxy = HttpProxy(Door(Allow("api.test")), None)  # type: ignore[arg-type]
    head = b"GET http://api.test/ HTTP/1.1\r\nA: " + b"a" * 5000 + b"\r\nB: b"
    for byte in head:
        proxy._feed(bytes([byte]))
    assert looked_at < 5 * len(head)


@pytest.mark.parametrize(
    "odd", [b"A: 1\n", b"A: 1\r\n 2\r\n", b"A: 1\r\n\t2\r\n", b"A: 1\rB: 2\r\n"]
)
@pytest.mark.parametrize("how", ["at once", "by bytes", "behind another"])
async def test_line_ends_that_can_be_read_in_two_ways_are_refused(
    open_door: OpenDoor, odd: bytes, how: str
) -> None:
    async def answer(stream: SocketStream) -> None:
        while True:
            await read_head(stream)
            await stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    async with server(answer) as port, open_door(allowed(port), Names(NAMES)) as door:
        strange = request(port)[:-2] + odd + b"\r\n"
        pieces = {
            "at once": [strange],
            "by bytes": [strange[at : at + 1] for at in range(len(strange))],
            "behind another": [request(port) + strange],
        }[how]
        received = await door.exchange(*pieces)
    assert b"HTTP/1.1 400" in received
    assert received.count(b"HTTP/1.1 200") == (how == "behind another")


@pytest.mark.parametrize(
    "early", [False, True], ids=["chunks of a byte", "a flood of 103s"]
)
async def test_a_server_s_tiny_pieces_are_passed_on_together(
    open_door: OpenDoor, monkeypatch: pytest.MonkeyPatch, early: bool
) -> None:
    """Each on its own cost a write to the relay, and all those of one read the same turn of the loop: 66 seconds."""
    monkeypatch.setattr(turns, "SLICE", 3600.0)
    pieces = b"HTTP/1.1 103 Early Hints\r\n\r\n" if early else b"1\r\nx\r\n"
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"

    async def served(stream: SocketStream) -> None:
        await read_head(stream)
        await stream.send(
            pieces * 500 + head + b"0\r\n\r\n"
            if early
            else head + pieces * 500 + b"0\r\n\r\n"
        )
        await anyio.sleep_forever()

    sends, real = list[int](), MuxStream.send

    async def counted(stream: MuxStream, item: bytes) -> None:
        sends.append(len(item))
        await real(stream, item)

    monkeypatch.setattr(MuxStream, "send", counted)
    async with (
        server(served) as port,
        open_door(allowed(port), Names(NAMES)) as door,
        await door.dial() as stream,
    ):
        await stream.send(request(port))
        received = b""
        while not received.endswith(b"0\r\n\r\n"):
            received += await stream.receive()
    assert (
        received.count(b"103") == 500 if early else received.count(b"1\r\nx\r\n") == 500
    )
    assert len(sends) < 20


async def test_between_tiny_pieces_the_loop_turns(
    open_door: OpenDoor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many pieces one read brings: each may use a turn up."""
    monkeypatch.setattr(turns, "SLICE", 0.0)

    async def served(stream: SocketStream) -> None:
        await read_head(stream)
        await stream.send(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
            + b"1\r\nx\r\n" * 500
            + b"0\r\n\r\n"
        )
        await anyio.sleep_forever()

    async with (
        server(served) as port,
        open_door(allowed(port), Names(NAMES)) as door,
        await door.dial() as stream,
    ):
        proxy, taken, most = door.door, 0, 0

        async def watch() -> None:
            nonlocal taken, most
            while True:
                before = taken
                await anyio.lowlevel.checkpoint()
                most = max(most, taken - before)

        real = h11.Connection.next_event

        def counted(connection: h11.Connection) -> object:
            nonlocal taken
            taken += 1
            return real(connection)

        monkeypatch.setattr(h11.Connection, "next_event", counted)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            await stream.send(request(port))
            received = b""
            while not received.endswith(b"0\r\n\r\n"):
                received += await stream.receive()
            tasks.cancel_scope.cancel()
    assert proxy.visits[0].verdict == "allowed"
    assert taken > 500
    assert most <= 10
