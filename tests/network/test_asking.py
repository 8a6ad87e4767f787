"""A host that nobody allowed is asked about, once, wherever a person can be asked; meanwhile the connection waits."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.surfaces.invoking import belljar
from tests.surfaces.mcp_client import Person, client
from tests.surfaces.real_terminal import Terminal

from belljar import Allow, Session
from belljar.policy import Verdict


class Hello(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "6")
        self.end_headers()
        self.wfile.write(b"hello\n")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def fetch() -> Iterator[str]:
    """A command that fetches something from this machine, by number: a name would not be let in there."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Hello) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"curl -s --noproxy '' http://127.0.0.1:{server.server_port}/?token=s3cretvalue"
        server.shutdown()


async def test_a_callback_is_asked_once_and_its_answer_is_recorded(
    base_image: str, workspace: Path, fetch: str
) -> None:
    asked: list[Verdict] = []

    async def approve(verdict: Verdict) -> bool:
        asked.append(verdict)
        return len(asked) == 1

    async with Session(workspace, network=Allow(ask_hosts=True), approve=approve) as box:
        assert (await box.run(fetch)).stdout == "hello\n"
        again = await box.run(fetch)
        assert again.stdout == "hello\n"
        refused = await box.run(fetch.replace("127.0.0.1", "evil.test"))
        id = box.id
    assert ["127.0.0.1" in asked[0].reason, "evil.test" in asked[1].reason, len(asked)] == [True, True, 2]
    (visit,) = again.network
    assert (visit["verdict"], visit["method"], visit["received"] > 6) == ("allowed", "GET", True)
    assert "s3cretvalue" not in str(visit)
    assert [visit["verdict"] for visit in refused.network] == ["refused"]
    shown = belljar("audit", "show", "--kind", "network", "--session", id, "--json")
    assert [record["verdict"] for record in json.loads(shown.stdout)] == ["allowed", "allowed", "refused"]
    assert "s3cretvalue" not in shown.stdout
    answers = json.loads(belljar("audit", "show", "--kind", "approval", "--session", id, "--json").stdout)
    assert [answer["approved"] for answer in answers] == [True, False]


async def test_the_person_at_an_mcp_client_is_asked(base_image: str, workspace: Path, fetch: str) -> None:
    person = Person()
    async with client(workspace, "--ask-hosts", era="legacy", elicitation_callback=person) as mcp:
        person.will("accept", approve=True)
        await mcp.call_tool("Bash", {"command": "true"})
        for _ in range(2):
            assert "hello" in str((await mcp.call_tool("Bash", {"command": fetch})).content)
    assert ["127.0.0.1" in question for question in person.questions] == [True]


async def test_a_client_that_cannot_be_asked_in_the_middle_is_told_what_to_allow(
    base_image: str, workspace: Path, fetch: str
) -> None:
    person = Person()
    async with client(workspace, "--ask-hosts", era="auto", elicitation_callback=person) as mcp:
        person.will("accept", approve=True)
        for _ in range(2):
            assert "--allow 127.0.0.1" in str((await mcp.call_tool("Bash", {"command": fetch})).content)
    assert person.questions == []


def test_the_person_at_a_terminal_is_asked(base_image: str, workspace: Path, fetch: str) -> None:
    terminal = Terminal.belljar("run", "--ask-hosts", "--workspace", workspace, "--", "bash", "-c", fetch)
    terminal.until("127.0.0.1")
    terminal.insist("y\r", "hello")
    assert terminal.status() == 0
