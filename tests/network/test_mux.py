"""Many connections over one byte stream."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest
from tests.network.conftest import Names, OpenDoor, echo, free_port, server

from belljar.network.allow import Allow, DoorLimits
from belljar.network.mux import DATA, HEAD, MERGED_MAX, OPEN, READY, Mux, MuxStream


async def test_without_the_relay_there_is_no_network(open_door: OpenDoor) -> None:
    async with open_door(Allow("api.test"), Names({"api.test": ["192.0.2.1"]})) as door:
        door.process.kill()
        await door.process.wait()
        with pytest.raises(OSError, match="connect"):
            await door.dial()


async def test_a_thousand_connections_at_once(open_door: OpenDoor) -> None:
    async with server(echo) as port, open_door(Allow(f"127.0.0.1:{port}")) as door:
        together = anyio.Event()
        reached = 0

        async def one(number: int) -> None:
            nonlocal reached
            async with await door.dial() as stream:
                await stream.send(f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
                assert (await stream.receive()).startswith(b"HTTP/1.1 200")
                reached += 1
                if reached == 1000:
                    together.set()
                await together.wait()
                await stream.send(b"%d" % number)
                assert await stream.receive() == b"%d" % number

        async with anyio.create_task_group() as tasks:
            for number in range(1000):
                tasks.start_soon(one, number)


async def test_a_port_inside_is_reached_from_the_host(open_door: OpenDoor) -> None:
    async with server(echo) as port, open_door(Allow("api.test")) as door:
        stream = await door.mux.open(port)
        await stream.send(b"ping")
        assert await stream.receive() == b"ping"
        await stream.send_eof()
        with pytest.raises(anyio.EndOfStream):
            await stream.receive()
        await stream.aclose()
        nobody = await door.mux.open(free_port())
        with pytest.raises(anyio.BrokenResourceError):
            await nobody.receive()
        await nobody.aclose()


async def test_ten_thousand_connections_one_after_the_other_leave_nothing(open_door: OpenDoor) -> None:
    async with open_door(Allow("api.test", limits=DoorLimits(per_minute=100_000))) as door:
        for _ in range(100):
            streams = [await door.dial() for _ in range(100)]
            for stream in streams:
                await stream.aclose()
        assert (await door.exchange(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")).startswith(b"HTTP/1.1 400")
        assert len(door.mux._half_closed) < 2048


async def test_bytes_that_arrive_singly_are_stored_joined() -> None:
    """Single-byte objects take forty times their size, and thousands of connections may be unread."""
    opened: list[MuxStream] = []
    mux = Mux(lambda _: anyio.lowlevel.checkpoint(), opened.append)
    mux.feed(HEAD.pack(0, READY, 2) + bytes(2) + HEAD.pack(1, OPEN, 2) + bytes(2))
    sent = bytes(range(256)) * 200
    for byte in sent:
        mux.feed(HEAD.pack(1, DATA, 1) + bytes([byte]))
    (stream,) = opened
    assert len(stream._received) <= 2 + 2 * len(sent) // MERGED_MAX
    received = b""
    while len(received) < len(sent):
        received += await stream.receive()
    assert received == sent
