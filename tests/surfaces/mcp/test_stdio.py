"""The process `belljar mcp`, seen from its pipes: what it writes, and what is left after its end."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.surfaces.mcp_client import COMMAND, sessions

HELLO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "0"},
}


class Server:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def send(self, method: str, params: Any = None, **more: Any) -> None:
        self.write(json.dumps({"jsonrpc": "2.0", "method": method, "params": params or {}, **more}))

    def write(self, line: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def receive(self) -> dict[str, Any]:
        assert self.process.stdout
        message: dict[str, Any] = json.loads(self.process.stdout.readline())
        return message

    def greet(self) -> None:
        self.send("initialize", HELLO, id=0)
        assert self.receive()["result"]["serverInfo"]["name"] == "belljar"
        self.send("notifications/initialized")

    def call(self, command: str, id: int, **more: Any) -> None:
        self.send("tools/call", {"name": "Bash", "arguments": {"command": command}, **more}, id=id)


@contextmanager
def serving(workspace: Path, *options: str) -> Iterator[Server]:
    process = subprocess.Popen(
        [*COMMAND, "--workspace", str(workspace), *options],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    with process:
        try:
            yield Server(process)
        finally:
            process.kill()


def test_nothing_but_the_protocol_is_written_to_stdout(workspace: Path) -> None:
    with serving(workspace) as server:
        server.write("this is no JSON")
        server.write('{"jsonrpc": "2.0"}')
        server.greet()
        server.call("echo loud >&2; rm -rf /", 1)
        server.call("echo hi", 2)
        replies = {message["id"]: message for message in (server.receive(), server.receive())}
        server.process.stdin.close()
        assert server.process.wait(120) == 0
        assert server.process.stdout.read() == ""
    assert replies[1]["result"]["isError"]
    assert replies[2]["result"]["content"][0]["text"].strip() == "hi"


@pytest.mark.parametrize("end", ["hang up", signal.SIGTERM, signal.SIGINT])
def test_the_sandbox_ends_when_the_client_disconnects(workspace: Path, docker_client: Any, end: str | int) -> None:
    before = sessions()
    with serving(workspace) as server:
        server.greet()
        server.call("echo begun; sleep 1000", 1, _meta={"progressToken": "p"})
        assert server.receive()["params"]["message"] == "begun\n"
        (ours,) = sessions() - before
        if isinstance(end, int):
            server.process.send_signal(end)
        else:
            server.process.stdin.close()
        assert server.process.wait(120) == (128 + end if isinstance(end, int) else 0)
    assert ours not in sessions()
    _await(lambda: not docker_client.api.containers(all=True, filters={"name": f"belljar-{ours}"}))


def test_listing_the_tools_starts_no_sandbox(workspace: Path) -> None:
    before = sessions()
    with serving(workspace) as server:
        server.greet()
        server.send("tools/list", id=1)
        assert server.receive()["result"]["tools"]
        assert sessions() == before


def _await(true: Any) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)
