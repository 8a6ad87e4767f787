"""Where the proxy ends TLS: its own certificate authority, and headers that never enter the sandbox."""

from __future__ import annotations

import contextlib
import ssl
from pathlib import Path

import anyio
from anyio.abc import SocketStream
from anyio.streams.tls import TLSStream
from tests.network.conftest import ALLOW, NAMES, Names, OpenDoor, ask, secure

from belljar.network.allow import Allow
from belljar.network.authority import Authority


async def test_a_header_is_added_outside_and_masked_coming_back(
    open_door: OpenDoor,
    world: Authority,
    trust: str,
    to_443: dict[str, int],
    tmp_path: Path,
) -> None:
    ours = Authority(trust)
    (tmp_path / "session.pem").write_bytes(ours.pem)
    allow = Allow(*ALLOW, headers={"api.test": {"Authorization": "Bearer s3cret"}})
    async with (
        secure(world, "api.test") as port,
        open_door(allow, Names(NAMES), authority=ours) as door,
    ):
        to_443["port"] = port
        async with await door.dial() as stream:
            context = ssl.create_default_context(cafile=str(tmp_path / "session.pem"))
            answer = await ask(door.door, stream, "api.test", context, "api.test")
    assert b"Bearer s3cret" in answer  # the test's server echoes the request
    assert "s3cret" not in str(door.records)
    assert "s3cret" not in repr(allow)


async def test_a_websocket_goes_through_where_tls_ends_here(
    open_door: OpenDoor,
    world: Authority,
    trust: str,
    to_443: dict[str, int],
    tmp_path: Path,
) -> None:
    keys: list[bytes] = []

    async def talk(stream: SocketStream) -> None:
        keys.append(await stream.receive())
        await stream.send(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
        )
        await stream.send(b"you said " + await stream.receive())

    ours = Authority(trust)
    (tmp_path / "session.pem").write_bytes(ours.pem)
    context = ssl.create_default_context(cafile=str(tmp_path / "session.pem"))
    allow = Allow(*ALLOW, headers={"api.test": {"Authorization": "Bearer s3cret"}})
    async with (
        secure(world, "api.test", talk) as port,
        open_door(allow, Names(NAMES), authority=ours) as door,
    ):
        to_443["port"] = port
        async with await door.dial() as stream:
            await stream.send(
                b"CONNECT api.test:443 HTTP/1.1\r\nHost: api.test\r\n\r\n"
            )
            assert (await stream.receive()).startswith(b"HTTP/1.1 200")
            inner = await TLSStream.wrap(
                stream,
                hostname="api.test",
                ssl_context=context,
                standard_compatible=False,
            )
            await inner.send(
                b"GET / HTTP/1.1\r\nHost: api.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
            )
            received = await inner.receive()
            await inner.send(b"hello")
            with contextlib.suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                while True:
                    received += await inner.receive()
    assert received.endswith(b"you said hello")
    assert b"Bearer s3cret" in keys[0]
    assert [record["verdict"] for record in door.records] == ["allowed", "allowed"]
