"""Name lookups block nothing else."""

from __future__ import annotations

import threading

import anyio
import anyio.lowlevel
import pytest
from tests.network.conftest import Names, OpenDoor, server, web

from belljar.network.addresses import Resolver, Unresolved
from belljar.network.allow import Address, Allow


async def test_a_hanging_lookup_does_not_block_others(open_door: OpenDoor) -> None:
    stuck = anyio.Event()

    class Hanging(Names):
        async def __call__(self, name: str, port: int) -> list[Address]:
            if name == "slow.test":
                await stuck.wait()
            return await super().__call__(name, port)

    names = Hanging({"api.test": ["127.0.0.1"]})
    async with (
        server(web) as port,
        open_door(Allow("slow.test", f"api.test:{port}=127.0.0.1"), names) as door,
    ):
        waiting = [await door.dial() for _ in range(50)]
        for stream in waiting:
            await stream.send(
                b"CONNECT slow.test:443 HTTP/1.1\r\nHost: slow.test\r\n\r\n"
            )
        request = f"GET http://api.test:{port}/ HTTP/1.1\r\nHost: api.test:{port}\r\nConnection: close\r\n\r\n".encode()
        assert (await door.exchange(request)).startswith(b"HTTP/1.1 200")
        for stream in waiting:
            await stream.aclose()


async def test_a_lookup_that_never_ends_is_a_refusal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended = threading.Event()
    monkeypatch.setattr(
        "belljar.network.addresses.lookup", lambda name, port: ended.wait(60)
    )
    with pytest.raises(Unresolved, match="did not answer"):
        await Resolver(seconds=0.05)("a.test", 443)
    ended.set()
