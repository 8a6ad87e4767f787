"""Ports and hosts that are opened in a running session."""

from __future__ import annotations

import errno
import urllib.request
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
from tests.network.conftest import Names
from tests.network.test_in_a_sandbox import box as box
from tests.network.test_in_a_sandbox import site as site

import belljar
from belljar import Allow, Session
from belljar.sandbox import rundir
from belljar.session.ledger import Ledger
from belljar.session.network_door import NetworkDoor

SPEAKS_FIRST = """
import socket
listening = socket.create_server(("127.0.0.1", 8000))
print("up", flush=True)
connection, _ = listening.accept()
connection.sendall(b"x")
connection.recv(9)
"""


async def test_a_host_can_be_allowed_later_and_the_running_shell_gets_the_proxy(
    site: int, base_image: str, workspace: Path
) -> None:
    fetch = f"curl -sSf http://site.test:{site}/hello.txt"
    async with Session(workspace, policy="permissive") as box:
        await box.persistent.run("job() { echo still; }; cd /tmp")
        url = await box.forward(8000)
        assert not (await box.persistent.run(fetch)).ok
        await box.allow_host(f"site.test:{site}=127.0.0.1")
        assert box.door.proxy
        box.door.proxy._resolve = Names({"site.test": ["127.0.0.1"]})
        for result in (
            await box.persistent.run(f"{fetch}; job; pwd"),
            await box.run(fetch),
        ):
            assert result.stdout.startswith("hello from outside"), result.output
        assert (await box.persistent.run("job; pwd")).stdout == "still\n/tmp\n"
        assert await box.forward(8000) == url, "what was forwarded before stays"


FAILING = {
    "presets": (NetworkDoor, "open_presets"),
    "certificates": (NetworkDoor, "install_certificates"),
    "remembering": (rundir, "write_session"),
    "audit": (Ledger, "record"),
}
CONNECT = "curl -sS -o /dev/null -w '%{{http_connect}}' --proxy 127.0.0.1:3128 -p http://site.test:{site}/hello.txt"


@pytest.mark.parametrize("step", FAILING)
async def test_a_door_that_fails_to_open_is_closed_and_can_be_opened_again(
    step: str,
    site: int,
    base_image: str,
    workspace: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host, connect = f"site.test:{site}=127.0.0.1", CONNECT.format(site=site)
    async with Session(workspace, policy="permissive") as box:
        with monkeypatch.context() as patch:
            patch.setattr(*FAILING[step], _fails)
            with pytest.raises(OSError, match="No space"):
                await box.allow_host(host)
        refused = await box.run(connect)
        assert (refused.exit_code, refused.network) == (7, ()), "nothing listens there"
        await box.allow_host(host)
        assert (await box.run(connect)).network, "the port was free again"


async def test_a_cancelled_allow_host_leaves_nothing_open(
    site: int, base_image: str, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Session(workspace, policy="permissive") as box:
        with anyio.CancelScope() as scope, monkeypatch.context() as patch:
            patch.setattr(
                NetworkDoor, "install_certificates", lambda *_: _cancels(scope)
            )
            await box.allow_host(f"site.test:{site}=127.0.0.1")
        assert (await box.run(CONNECT.format(site=site))).exit_code == 7
        await box.allow_host("other.test")


@pytest.mark.parametrize("step", ["remembering", "audit"])
async def test_a_host_that_could_not_be_added_stays_closed(
    step: str, base_image: str, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Session(
        workspace, policy="permissive", network=Allow("a.example")
    ) as box:
        with monkeypatch.context() as patch:
            patch.setattr(*FAILING[step], _fails)
            with pytest.raises(OSError, match="No space"):
                await box.allow_host("b.example")
        result = await box.run("curl -sS https://b.example")
        assert [(each["host"], each["verdict"]) for each in result.network] == [
            ("b.example", "refused")
        ]


def _fails(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


async def _cancels(scope: anyio.CancelScope) -> None:
    scope.cancel()
    await anyio.lowlevel.checkpoint()


async def test_a_port_inside_is_forwarded(base_image: str, workspace: Path) -> None:
    """Many connections with keep-alive. The sandbox itself has no network."""
    (workspace / "page.txt").write_text("served from inside")
    async with Session(workspace) as box:
        shell = await box.start("python3 -u -m http.server 8000 --bind 127.0.0.1")
        while "Serving" not in (await shell.read(offset=0, wait=5)).stdout:
            pass
        url = await box.forward(8000)
        port = int(url.rpartition(":")[2])
        assert await box.forward(8000) == await box.forward(8000, at=port) == url
        with pytest.raises(belljar.BelljarError, match=f"already forwarded, at {port}"):
            await box.forward(8000, at=port - 1)

        async def fetch() -> None:
            page = await anyio.to_thread.run_sync(
                lambda: urllib.request.urlopen(f"{url}/page.txt", timeout=60).read()
            )
            assert page == b"served from inside"

        async with anyio.create_task_group() as tasks:
            for _ in range(50):
                tasks.start_soon(fetch)
        with pytest.raises(belljar.BelljarError, match="65535"):
            await box.forward(0)
    with pytest.raises(OSError, match="failed"):
        await anyio.connect_tcp("127.0.0.1", port)


async def test_closing_a_session_ends_its_forwarded_connections(
    base_image: str, workspace: Path
) -> None:
    async with Session(workspace) as box:
        (workspace / "serve.py").write_text(SPEAKS_FIRST)
        shell = await box.start("python3 serve.py")
        await shell.read(wait=30)
        stream = await anyio.connect_tcp(
            "127.0.0.1", int((await box.forward(8000)).rpartition(":")[2])
        )
        assert await stream.receive() == b"x"
    with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
        await stream.receive()
    await stream.aclose()


async def test_attaching_restores_the_hosts_that_were_allowed(
    base_image: str, workspace: Path
) -> None:
    """It does not ask clients in the sandbox again: by now the agent may have changed their settings."""
    box = await Session(
        workspace, network=Allow("a.example", ask_hosts=True), keep=True, lease=30
    ).open()
    await box.allow_host("b.example")
    id = box.id
    await box.close()
    again = await Session.attach(id)
    try:
        assert again.door.proxy, "opened again"
        assert again.allow
        assert (again.allow.hosts, again.allow.presets) == (
            ("a.example", "b.example"),
            (),
        )
        assert "HTTPS_PROXY" in (await again.run("env")).stdout
    finally:
        await again.sandbox.destroy()
        await again.close()


TALKING = """
import asyncio
async def talk(reader, writer):
    head = await reader.readuntil(b"\\r\\n\\r\\n")
    while b"Upgrade: websocket" not in head:
        writer.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nhi")
        head = await reader.readuntil(b"\\r\\n\\r\\n")
    writer.write(b"HTTP/1.1 101 Switching Protocols\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\n\\r\\n")
    while data := await reader.read(100):
        writer.write(data)
    writer.close()
async def main():
    server = await asyncio.start_server(talk, "127.0.0.1", 8000, backlog=1000)
    print("up", flush=True)
    await server.serve_forever()
asyncio.run(main())
"""
MANY = 1000


async def test_a_thousand_connections_are_kept_alive_and_become_websockets(
    base_image: str, workspace: Path
) -> None:
    async with Session(workspace) as box:
        await box.files.write("talking.py", TALKING)
        shell = await box.start("python3 talking.py")
        assert (await shell.read(wait=30)).stdout == "up\n"
        port = int((await box.forward(8000)).rpartition(":")[2])
        talkers = [await anyio.connect_tcp("127.0.0.1", port) for _ in range(MANY)]

        async def talk(stream: anyio.abc.SocketStream, number: int) -> None:
            for _ in range(2):  # two requests over one connection
                await stream.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                assert (await stream.receive()).endswith(b"\r\n\r\nhi")
            await stream.send(
                b"GET / HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
            )
            assert (await stream.receive()).startswith(b"HTTP/1.1 101 ")
            await stream.send(b"%d" % number)
            assert await stream.receive() == b"%d" % number
            await stream.aclose()

        async with anyio.create_task_group() as tasks:
            for number, stream in enumerate(talkers):
                tasks.start_soon(talk, stream, number)


async def test_two_who_forward_a_port_at_once_get_the_same(workspace: Path) -> None:
    async with Session(workspace) as box:
        await box.start("python3 -m http.server 8000")
        urls = await gathered(
            *(lambda: box.forward(8000) for _ in range(5)), lambda: box.forward(8001)
        )
        assert len(set(urls[:5])) == 1
        assert urls[5] not in urls[:5]
        relays = await box.run("pgrep -fc '[r]elay 0'")
        assert relays.stdout == "1\n"
    for url in set(urls):
        with pytest.raises(OSError, match="connect"):
            await anyio.connect_tcp("127.0.0.1", int(url.rpartition(":")[2]))


async def test_two_who_allow_hosts_at_once_open_one_door(workspace: Path) -> None:
    async with Session(workspace) as box:
        await gathered(
            *(lambda name=name: box.allow_host(f"{name}.example") for name in "abc")
        )
        assert box.allow is not None
        assert {*box.allow.hosts} == {"a.example", "b.example", "c.example"}
        assert box.door.proxy is not None
        assert {*box.door.proxy.allow.hosts} == {*box.allow.hosts}


async def gathered(*calls: Callable[[], Awaitable[Any]]) -> list[Any]:
    results: list[Any] = [None] * len(calls)

    async def one(index: int) -> None:
        results[index] = await calls[index]()

    async with anyio.create_task_group() as tasks:
        for index in range(len(calls)):
            tasks.start_soon(one, index)
    return results
