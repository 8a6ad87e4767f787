"""The process `belljar mcp`, seen from its pipes: what it writes, and what is left when it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.surfaces.mcp_client import COMMAND, sessions
from tests.surfaces.real_terminal import Terminal

from belljar.surfaces.cli.main import main

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
        assert server.process.wait(60) == 0
        assert server.process.stdout.read() == ""
    assert replies[1]["result"]["isError"]
    assert replies[2]["result"]["content"][0]["text"].strip() == "hi"


@pytest.mark.parametrize("end", ["hang up", signal.SIGTERM, signal.SIGINT])
def test_when_the_client_goes_the_sandbox_goes(workspace: Path, docker_client: Any, end: str | int) -> None:
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
        assert server.process.wait(60) == (128 + end if isinstance(end, int) else 0)
    assert ours not in sessions()
    _await(lambda: not docker_client.api.containers(all=True, filters={"name": f"belljar-{ours}"}))


def test_listing_the_tools_starts_no_sandbox(workspace: Path) -> None:
    before = sessions()
    with serving(workspace) as server:
        server.greet()
        server.send("tools/list", id=1)
        assert server.receive()["result"]["tools"]
        assert sessions() == before


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--tools", "bash,fish"], "fish"),
        (["--policy", "no-such-policy"], "no-such-policy"),
        (["--workspace", "/no/such/directory"], "/no/such/directory"),
        (["--http", "0.0.0.0:8808"], "loopback"),
        (["--http", "127.0.0.1:99999"], "not an address"),
        (["--memory", "12 bananas"], "12 bananas"),
        (["--http", "127.0.0.1:0", "--token", "two words"], "token"),
    ],
)
def test_a_bad_option_is_one_line_and_status_2(
    workspace: Path, capsys: pytest.CaptureFixture[str], options: list[str], said: str
) -> None:
    assert main(["mcp", "--workspace", str(workspace), *options]) == 2
    written = capsys.readouterr()
    assert written.out == ""
    assert said in written.err
    assert written.err.count("\n") == 1


def test_a_missing_sdk_is_named_with_what_to_install(workspace: Path) -> None:
    without = (
        "import sys; sys.modules['mcp_types'] = None; from belljar.surfaces.cli.main import main; sys.exit(main())"
    )
    ended = subprocess.run(
        [COMMAND[0], "-c", without, "mcp", "--workspace", str(workspace)],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, env={**os.environ},
    )  # fmt: skip
    assert ended.returncode == 2
    assert "make setup" in ended.stderr, "this is a checkout"


def _await(true: Any) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_on_a_terminal_it_says_what_it_waits_for(workspace: Path) -> None:
    terminal = Terminal.belljar("mcp", "--workspace", workspace)
    terminal.until("waiting for an MCP client on stdin")
    terminal.type("\x03")
    assert terminal.status() == 128 + signal.SIGINT
