"""`belljar mcp --http`: who gets access, and the same calls as over pipes."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from tests.surfaces.mcp_client import (
    COMMAND,
    ERAS,
    UNTIL_NO_SLEEP_IS_LEFT,
    Person,
    sessions,
)

from belljar.errors import UsageError
from belljar.surfaces.mcp.http import parse_address

TOKEN = "the-token-of-the-tests"
LISTING = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}


@dataclass
class Served:
    url: str
    process: subprocess.Popen[str]

    def post(self, **headers: str) -> int:
        accept = {"Accept": "application/json, text/event-stream"}
        return httpx2.post(
            self.url, json=LISTING, headers={**accept, **headers}
        ).status_code


@contextmanager
def serving(
    workspace: Path, wrapper: tuple[str, ...] = (), **environment: str
) -> Iterator[Served]:
    process = subprocess.Popen(
        [*wrapper, *COMMAND, "--workspace", str(workspace), "--http", "127.0.0.1:0"],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        env={**os.environ, **environment},
    )  # fmt: skip
    with process:
        try:
            assert process.stderr
            yield Served(process.stderr.readline().split()[-1], process)
        finally:
            process.terminate()
            process.wait(120)


@asynccontextmanager
async def connected(
    served: Served, token: str = TOKEN, **more: Any
) -> AsyncIterator[Client]:
    async with (
        httpx2.AsyncClient(
            headers={"Authorization": f"Bearer {token}"}, timeout=60
        ) as http,
        Client(streamable_http_client(served.url, http_client=http), **more) as mcp,
    ):
        yield mcp


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server for tests that only check access."""
    with serving(
        tmp_path_factory.mktemp("workspace"), BELLJAR_MCP_TOKEN=TOKEN
    ) as served:
        yield served


def test_a_request_without_the_token_is_refused(served: Served) -> None:
    for refused in (
        "",
        "Bearer",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        f"Basic {TOKEN}",
        TOKEN,
    ):
        assert served.post(Authorization=refused) == 401
    assert served.post() == 401
    # The token is accepted. 400 only means that a session must be opened first.
    assert served.post(Authorization=f"Bearer {TOKEN}") == 400


def test_a_web_page_s_request_is_refused_even_with_the_token(served: Served) -> None:
    assert served.post(Authorization=f"Bearer {TOKEN}", Host="evil.example") == 421
    assert served.post(Authorization=f"Bearer {TOKEN}", Host="127.0.0.1:1") == 421
    assert (
        served.post(Authorization=f"Bearer {TOKEN}", Origin="http://evil.example")
        == 403
    )
    assert served.post(Authorization=f"Bearer {TOKEN}", Origin="null") == 403


UPGRADE = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: eA==\r\nSec-WebSocket-Version: 13\r\n"


def test_requests_without_the_token_write_nothing_to_the_log(workspace: Path) -> None:
    """The log may go to a pipe that is never read. Once a full pipe blocked the server for good."""
    with serving(workspace, BELLJAR_MCP_TOKEN=TOKEN) as served:
        port = int(served.url.split(":")[2].partition("/")[0])
        for _ in range(600):
            for said in (
                f"GET /mcp HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{UPGRADE}\r\n",
                "no request\r\n\r\n",
            ):
                with socket.create_connection(("127.0.0.1", port), 20) as line:
                    line.sendall(said.encode())
                    line.recv(100)
        assert served.post() == 401
        assert served.process.stderr is not None
        assert select.select([served.process.stderr], [], [], 0) == ([], [], [])


def test_a_token_is_made_up_and_shown_when_none_is_given(workspace: Path) -> None:
    with serving(workspace) as served:
        token = served.process.stderr.readline().split()[-1]
        assert len(token) >= 32
        assert served.post(Authorization=f"Bearer {token}") == 400


@pytest.mark.parametrize(
    "address",
    ["0.0.0.0:1", "[::]:1", "192.168.0.1:80", "10.0.0.1", "example.com:80", "127.0.0.1:99999", "127.0.0.1:x", ":80",
     "[::1", "2130706433:80", "127.1:80", "localhost.example.com:80", "127.0.0.1@example.com:80"],
)  # fmt: skip
def test_an_address_that_is_not_loopback_is_refused(address: str) -> None:
    with pytest.raises(UsageError):
        parse_address(address)


def test_loopback_addresses_are_accepted() -> None:
    assert parse_address("127.0.0.1:9") == ("127.0.0.1", 9)
    assert parse_address("localhost:0") == ("127.0.0.1", 0)
    assert parse_address("[::1]:9") == ("::1", 9)
    assert parse_address("127.0.0.2") == ("127.0.0.2", 0)


@pytest.mark.parametrize("era", ERAS)
async def test_calls_questions_and_progress_work_over_http(
    workspace: Path, era: str
) -> None:
    person = Person()
    person.will("accept", approve=True)

    async def watch(*_: object) -> None:
        (workspace / "seen").touch()

    with serving(workspace, BELLJAR_MCP_TOKEN=TOKEN) as served:
        async with connected(served, mode=era, elicitation_callback=person) as mcp:
            waits = {
                "command": "echo begun; until [ -e seen ]; do sleep 0.02; done; sudo true; touch ran"
            }
            await mcp.call_tool("Bash", waits, progress_callback=watch)
    assert len(person.questions) == 1
    assert (workspace / "ran").exists()


@pytest.mark.parametrize("era", ERAS)
async def test_a_cancelled_call_leaves_no_process(workspace: Path, era: str) -> None:
    begun = anyio.Event()

    async def watch(*_: object) -> None:
        begun.set()

    with serving(workspace, BELLJAR_MCP_TOKEN=TOKEN) as served:
        async with connected(served, mode=era) as mcp:

            async def call() -> None:
                await mcp.call_tool(
                    "Bash",
                    {"command": "echo begun; sleep 1001"},
                    progress_callback=watch,
                )

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call)
                await begun.wait()
                tasks.cancel_scope.cancel()
            with anyio.fail_after(120):
                await mcp.call_tool("Bash", {"command": UNTIL_NO_SLEEP_IS_LEFT})


async def test_the_server_ends_its_sandbox_and_never_prints_a_given_token(
    workspace: Path,
) -> None:
    before = sessions()
    with serving(workspace, BELLJAR_MCP_TOKEN=TOKEN) as served:
        async with connected(served) as mcp:
            await mcp.call_tool(
                "Bash", {"command": "sleep 1000", "run_in_background": True}
            )
        assert sessions() - before
        served.process.send_signal(signal.SIGTERM)
        written = served.process.stderr.read()
    assert TOKEN not in written
    assert sessions() == before
