"""How many descriptors sandboxes may use in this process, and what stays free for others."""

from __future__ import annotations

import resource
from contextlib import AsyncExitStack

import anyio
import pytest
from anyio.abc import SocketStream
from tests.network.conftest import OpenDoor, echo, server

from belljar.network import sockets
from belljar.network.allow import Allow
from belljar.network.sockets import Share


def test_a_quarter_of_the_descriptors_is_reserved_for_the_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4096))
    assert sockets.max_connections() == 768
    monkeypatch.setattr(
        resource,
        "getrlimit",
        lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY),
    )
    assert sockets.max_connections() > 100_000


def test_each_share_takes_at_most_half_of_what_is_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    most = Share.all_open + 64
    monkeypatch.setattr(sockets, "max_connections", lambda: most)
    shares = [Share() for _ in range(4)]
    got = []
    for each in shares:
        while not each.is_used_up:
            each.__enter__()
        got.append(each.open)
    assert got == [32, 16, 8, 4]
    before = Share.all_open
    for each in shares:
        while each.open:
            each.__exit__()
    assert Share.all_open == before - 60


async def test_a_program_that_opens_connections_leaves_descriptors_to_other_doors(
    open_door: OpenDoor, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        server(echo) as port,
        open_door(Allow(f"127.0.0.1:{port}")) as one,
        open_door(one.door.allow) as other,
    ):
        most = Share.all_open + 20
        monkeypatch.setattr(sockets, "max_connections", lambda: most)

        async def connected(stream: SocketStream) -> bool:
            await stream.send(
                f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
            )
            try:
                return (await stream.receive()).startswith(b"HTTP/1.1 200")
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                return False

        async with AsyncExitStack() as held:
            tried = [
                await connected(await held.enter_async_context(await one.dial()))
                for _ in range(30)
            ]
            assert tried == [True] * 10 + [False] * 20
            assert await connected(await held.enter_async_context(await other.dial()))
        assert "too many connections" in {record["reason"] for record in one.records}
