"""A host that is not allowed: a person is asked once, if one can be asked. The connection waits meanwhile."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from tests.surfaces.invoking import belljar
from tests.surfaces.mcp_client import Person, client
from tests.surfaces.real_terminal import Terminal

from belljar import Allow, Session
from belljar.policy import Verdict


async def test_a_callback_is_asked_once_and_its_answer_is_recorded(
    base_image: str, workspace: Path, fetch: str
) -> None:
    asked: list[Verdict] = []

    async def approve(verdict: Verdict) -> bool:
        asked.append(verdict)
        return len(asked) == 1

    async with Session(
        workspace, network=Allow(ask_hosts=True), approve=approve
    ) as box:
        assert (await box.run(fetch)).stdout == "hello\n"
        again = await box.run(fetch)
        assert again.stdout == "hello\n"
        refused = await box.run(fetch.replace("127.0.0.1", "evil.test"))
        id = box.id
    assert [
        "127.0.0.1" in asked[0].reason,
        "evil.test" in asked[1].reason,
        len(asked),
    ] == [True, True, 2]
    (visit,) = again.network
    assert (visit["verdict"], visit["method"], visit["received"] > 6) == (
        "allowed",
        "GET",
        True,
    )
    assert "s3cretvalue" not in str(visit)
    assert [visit["verdict"] for visit in refused.network] == ["refused"]
    shown = belljar("audit", "show", "--kind", "network", "--session", id, "--json")
    assert [record["verdict"] for record in json.loads(shown.stdout)] == [
        "allowed",
        "allowed",
        "refused",
    ]
    assert "s3cretvalue" not in shown.stdout
    answers = json.loads(
        belljar("audit", "show", "--kind", "approval", "--session", id, "--json").stdout
    )
    assert [answer["approved"] for answer in answers] == [True, False]


async def test_an_mcp_client_s_user_is_asked_about_a_host(
    base_image: str, workspace: Path, fetch: str
) -> None:
    person = Person()
    async with client(
        workspace, "--ask-hosts", era="legacy", elicitation_callback=person
    ) as mcp:
        person.will("accept", approve=True)
        await mcp.call_tool("Bash", {"command": "true"})
        for _ in range(2):
            assert "hello" in str(
                (await mcp.call_tool("Bash", {"command": fetch})).content
            )
    assert ["127.0.0.1" in question for question in person.questions] == [True]


async def test_a_client_that_cannot_be_asked_during_a_call_gets_the_host_to_allow(
    base_image: str, workspace: Path, fetch: str
) -> None:
    person = Person()
    async with client(
        workspace, "--ask-hosts", era="auto", elicitation_callback=person
    ) as mcp:
        person.will("accept", approve=True)
        for _ in range(2):
            assert "--allow 127.0.0.1" in str(
                (await mcp.call_tool("Bash", {"command": fetch})).content
            )
    assert person.questions == []


def test_a_terminal_user_is_asked_about_a_host(
    base_image: str, workspace: Path, fetch: str
) -> None:
    terminal = Terminal.belljar(
        "run", "--ask-hosts", "--workspace", workspace, "--", "bash", "-c", fetch
    )
    terminal.until("127.0.0.1")
    terminal.insist("y\r", "hello")
    assert terminal.status() == 0


def test_safe_mode_asks_once_per_host_and_records_the_answer(
    base_image: str, workspace: Path, fetch: str
) -> None:
    """It asks while a program uses the terminal. "always" for one host allows no other host."""
    terminal = Terminal.belljar("shell", "--ask-hosts", "--workspace", workspace)
    id = terminal.until(" on ").split()[-1]
    terminal.line(fetch)
    assert "wants to reach 127.0.0.1 on port" in terminal.until(
        "allow it? [y]es / [n]o:"
    )
    terminal.type("always\r")
    terminal.until("hello\r\n")
    terminal.line(fetch)
    assert "allow it?" not in terminal.until("hello\r\n")
    elsewhere = "curl -sS http://evil.test/"
    terminal.line(elsewhere)
    assert "wants to reach evil.test on port 80" in terminal.until(
        "allow it? [y]es / [n]o:"
    )
    terminal.type("n\r")
    terminal.until("--allow evil.test")
    terminal.line(elsewhere)
    assert "allow it?" not in terminal.until("--allow evil.test")
    terminal.line(":quit")
    terminal.status()
    answers, visits = (belljar("audit", "show", "--kind", kind, "--session", id, "--json").json for kind in
                       ("approval", "network"))  # fmt: skip
    assert [answer["approved"] for answer in answers] == [True, False]
    assert [visit["verdict"] for visit in visits] == [
        "allowed",
        "allowed",
        "refused",
        "refused",
    ]


IMPATIENT = """
from belljar.network import allow
from belljar.surfaces.cli.main import main
limits = allow.DoorLimits
allow.DoorLimits = lambda: limits(ask=0.2)
raise SystemExit(main())
"""


def test_a_question_whose_connection_is_gone_is_not_asked(
    base_image: str, workspace: Path, fetch: str
) -> None:
    """A background job connects while safe mode is at its prompt, where it cannot ask."""
    for name in ("go", "over"):
        os.mkfifo(workspace / name)
        (workspace / name).chmod(0o666)
    terminal = Terminal(
        sys.executable,
        "-c",
        IMPATIENT,
        "shell",
        "--ask-hosts",
        "--workspace",
        workspace,
    )
    terminal.line(f"{{ read < go; {fetch} > over; }} &")
    terminal.until("exit 0")
    (workspace / "go").write_text("\n")
    assert "--allow 127.0.0.1" in (workspace / "over").read_text()
    terminal.line("echo $((6 * 7))")
    assert "allow it?" not in terminal.until("42\r\n")
    terminal.line(":quit")
    assert terminal.status() == 0
