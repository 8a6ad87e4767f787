"""Many connections over one byte stream."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest
from tests.network.conftest import Names, OpenDoor, echo, free_port, server

from belljar.network import mux as mux_module
from belljar.network.allow import Allow, DoorLimits
from belljar.network.mux import (
    CLOSE,
    DATA,
    HEAD,
    MERGED_MAX,
    OPEN,
    READY,
    WINDOW,
    Mux,
    MuxStream,
)


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
                await stream.send(
                    f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
                )
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


async def test_ten_thousand_connections_one_after_the_other_leave_nothing(
    open_door: OpenDoor,
) -> None:
    async with open_door(
        Allow("api.test", limits=DoorLimits(per_minute=100_000))
    ) as door:
        for _ in range(100):
            streams = [await door.dial() for _ in range(100)]
            for stream in streams:
                await stream.aclose()
        assert (await door.exchange(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")).startswith(
            b"HTTP/1.1 400"
        )
        assert len(door.mux._half_closed) < 2048


async def test_bytes_that_arrive_singly_are_stored_joined() -> None:
    """Single-byte objects take forty times their size, and thousands of connections may be unread."""
    opened: list[MuxStream] = []
    mux = Mux(lambda _: anyio.lowlevel.checkpoint(), opened.append)
    await fed(mux, HEAD.pack(0, READY, 2) + bytes(2) + HEAD.pack(1, OPEN, 2) + bytes(2))
    sent = bytes(range(256)) * 60
    for byte in sent:
        await fed(mux, HEAD.pack(1, DATA, 1) + bytes([byte]))
    (stream,) = opened
    assert len(stream._received) <= 2 + 2 * len(sent) // MERGED_MAX
    received = b""
    while len(received) < len(sent):
        received += await stream.receive()
    assert received == sent


async def fed(mux: Mux, data: bytes) -> None:
    mux.feed(data)
    while mux._behind:
        await anyio.lowlevel.checkpoint()


def ready(*ids: int) -> bytes:
    return (
        HEAD.pack(0, READY, 2)
        + bytes(2)
        + b"".join(HEAD.pack(id, OPEN, 2) + bytes(2) for id in ids)
    )


async def test_a_relay_that_does_not_take_its_credit_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who reads a connection finds that out, and must not be the only one who knows."""
    monkeypatch.setattr(mux_module, "QUEUED_MAX", 1)
    opened, lost = list[MuxStream](), list[bool]()
    mux = Mux(lambda _: anyio.sleep_forever(), opened.append, lambda: lost.append(True))
    await fed(mux, ready(1, 3))
    for stream in opened:
        await fed(mux, HEAD.pack(stream.id, DATA, WINDOW) + bytes(WINDOW))
    assert [len(await stream.receive(WINDOW)) for stream in opened] == [WINDOW] * 2
    for stream in opened:
        mux._grant_credit(stream)
    assert lost == [True]
    with pytest.raises(anyio.BrokenResourceError):
        await opened[0].receive()


async def test_a_cancelled_sender_leaves_no_half_frame() -> None:
    """After one, the relay would take data for heads, and drop all connections."""
    written, room = bytearray(), anyio.Event()

    async def write(data: bytes) -> None:
        written.extend(data[:5])
        await room.wait()
        written.extend(data[5:])

    opened: list[MuxStream] = []
    mux = Mux(write, opened.append)
    await fed(mux, ready(1))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(opened[0].send, b"hello")
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
        room.set()
    assert bytes(written) == HEAD.pack(1, DATA, 5) + b"hello"


async def test_a_cancelled_open_leaves_no_stream() -> None:
    blocked = anyio.Event()
    mux = Mux(lambda _: blocked.wait(), lambda _: None)
    await fed(mux, ready())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(mux._send, b"first")
        await anyio.wait_all_tasks_blocked()
        with anyio.move_on_after(0.01) as scope:
            await mux.open(80)
        blocked.set()
    assert scope.cancelled_caught
    assert not mux._streams


async def test_a_cancelled_close_reaches_the_relay() -> None:
    """Else its connection, and its id, would stay for ever."""
    written, room = bytearray(), anyio.Event()

    async def write(data: bytes) -> None:
        await room.wait()
        written.extend(data)

    opened: list[MuxStream] = []
    mux = Mux(write, opened.append)
    await fed(mux, ready(1))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(mux._send, b"")
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(opened[0].aclose)
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
        room.set()
    assert bytes(written) == HEAD.pack(1, CLOSE, 0)
