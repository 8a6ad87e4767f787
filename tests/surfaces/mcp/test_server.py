"""What a client gets from `belljar mcp`, in both eras of the protocol."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from jsonschema import validate
from mcp import Client, MCPError
from tests.surfaces.mcp_client import ERAS, GONE, Person, client, sessions, text

from belljar import host as hosts
from belljar.staged.area import StagedArea
from belljar.surfaces.cli.parser import parse
from belljar.surfaces.mcp.command import build

ASKED = "sudo true; touch ran"
FAMILIES = {
    "bash": {"Bash", "BashOutput", "KillShell", "ListShells"},
    "terminal-run": {"terminal-run"},
    "execute_command": {"execute_command"},
    "shell_execute": {"shell_execute"},
    "run_command": {"run_command"},
}


@dataclass
class Desk:
    """A client, the workspace of its server, and the person in front of it."""

    mcp: Client
    workspace: Path
    person: Person

    async def call(self, command: str, tool: str = "Bash", **more: Any) -> types.CallToolResult:
        return await self.mcp.call_tool(tool, {"command": command}, **more)

    def appeared(self, name: str) -> bool:
        return (self.workspace / name).exists()


@pytest.fixture(scope="module", params=ERAS)
async def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Desk]:
    workspace = tmp_path_factory.mktemp("workspace")
    if os.geteuid() == 0:
        os.chown(workspace, 1000, 1000)
    person = Person()
    async with client(workspace, "--tools", "all", era=request.param, elicitation_callback=person) as mcp:
        yield Desk(mcp, workspace, person)


@pytest.fixture
async def desk(shared: Desk) -> Desk:
    """As if nobody had been here before."""
    shared.person.will("cancel")
    for left in shared.workspace.iterdir():
        left.unlink()
    await shared.call("cd /workspace")
    return shared


async def test_a_result_comes_as_text_and_as_structured_content(desk: Desk) -> None:
    result = await desk.call("cd /tmp; echo out; echo err >&2; false")
    again = await desk.call("pwd")
    assert result.is_error
    assert {"out", "err"} <= set(text(result).split())
    assert result.structured_content["metadata"]["exit_code"] == 1
    assert not again.is_error
    assert text(again).strip() == again.structured_content["output"].strip() == "/tmp"


async def test_long_output_goes_out_once(desk: Desk) -> None:
    long = "x" * 5000
    calls: dict[str, dict[str, Any]] = {
        "Bash": {"command": f"echo {long}"},
        "terminal-run": {"command": f"echo {long}"},
        "execute_command": {"command": "echo", "args": [long]},
        "shell_execute": {"command": f"echo {long}"},
        "run_command": {"command": "echo", "args": [long]},
    }
    for name, arguments in calls.items():
        result = await desk.mcp.call_tool(name, arguments)
        assert text(result).count(long) == 1, name
        told = json.dumps(result.structured_content).replace(json.dumps(arguments["command"])[1:-1], "")
        assert long not in told, name


async def test_every_answer_fits_its_published_schema(desk: Desk) -> None:
    tools = {tool.name: tool for tool in (await desk.mcp.list_tools()).tools}
    calls: list[tuple[str, dict[str, Any]]] = [
        ("Bash", {"command": "echo hi"}), ("Bash", {"command": "rm -rf /"}), ("Bash", {"command": ""}),
        ("BashOutput", {"bash_id": "shell_00000000"}), ("ListShells", {}), ("terminal-run", {"command": "false"}),
        ("execute_command", {"command": "nonsense"}), ("shell_execute", {"command": "echo hi"}),
        ("run_command", {"command": "echo", "args": ["hi"]}),
    ]  # fmt: skip
    for name, arguments in calls:
        schema = tools[name].output_schema
        assert schema is not None
        result = await desk.mcp.call_tool(name, arguments)
        validate(result.structured_content, schema)


async def test_the_model_is_told_what_the_sandbox_is(desk: Desk) -> None:
    assert str(desk.workspace) in (desk.mcp.instructions or "")
    assert "no network" in (desk.mcp.instructions or "")


async def test_each_family_runs_a_command(desk: Desk) -> None:
    calls: dict[str, dict[str, Any]] = {
        "Bash": {"command": "echo hi"},
        "terminal-run": {"command": "echo hi"},
        "execute_command": {"command": "echo", "args": ["hi"]},
        "shell_execute": {"command": "echo hi"},
        "run_command": {"command": "echo", "args": ["hi"]},
    }
    for name, arguments in calls.items():
        result = await desk.mcp.call_tool(name, arguments)
        assert not result.is_error, name
        assert "hi" in json.dumps(result.structured_content), name
        assert "hi" in text(result), name


async def test_a_background_shell_is_started_read_and_ended(desk: Desk) -> None:
    started = await desk.mcp.call_tool("Bash", {"command": "echo hi; exec sleep 1001", "run_in_background": True})
    shell = started.structured_content["metadata"]["shell_id"]
    seen = ""
    with anyio.fail_after(120):
        while not seen:
            seen = (await desk.mcp.call_tool("BashOutput", {"bash_id": shell})).structured_content["metadata"]["stdout"]
    assert seen == "hi\n"
    assert shell in text(await desk.mcp.call_tool("ListShells", {}))
    assert not (await desk.mcp.call_tool("KillShell", {"shell_id": shell})).is_error
    with anyio.fail_after(120):
        await desk.call(GONE)


async def test_a_denied_command_says_why_and_does_not_run(desk: Desk) -> None:
    desk.person.will("accept", approve=True)
    result = await desk.call("touch ran; rm -rf /")
    assert result.is_error
    assert text(result).startswith("Command blocked for security reasons: ")
    assert not desk.appeared("ran")
    assert not desk.person.questions


async def test_a_person_who_approves_lets_the_command_run(desk: Desk) -> None:
    desk.person.will("accept", approve=True)
    await desk.call(ASKED)
    assert desk.appeared("ran")
    (question,) = desk.person.questions
    assert "Risk: critical" in question
    assert question.endswith(f"Command:\n    {ASKED}")


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("terminal-run", {"command": ASKED}),
        ("shell_execute", {"command": ASKED}),
        ("run_command", {"command": "sudo", "args": ["true"]}),
    ],
)
async def test_every_family_asks_once(desk: Desk, tool: str, arguments: dict[str, Any]) -> None:
    desk.person.will("accept", approve=True)
    await desk.mcp.call_tool(tool, arguments)
    assert len(desk.person.questions) == 1


async def test_nobody_is_asked_about_a_command_too_long_to_read(desk: Desk) -> None:
    desk.person.will("accept", approve=True)
    result = await desk.call(f"sudo true; touch ran; echo {'x' * 30_000}")
    assert result.is_error
    assert not desk.person.questions
    assert not desk.appeared("ran")


async def test_a_silent_command_still_has_a_text(desk: Desk) -> None:
    assert text(await desk.call("true")) == "(no output)"


async def test_a_command_cannot_pose_as_the_question(desk: Desk) -> None:
    await desk.call("sudo true # \u202eevil\nRisk: low")
    for question in desk.person.questions:
        assert "\u202e" not in question
        assert "\nRisk: low" not in question


@pytest.mark.parametrize("answer", [("decline", {}), ("cancel", {}), ("accept", {"approve": False})])
async def test_without_a_clear_yes_the_command_does_not_run(desk: Desk, answer: tuple[str, dict[str, Any]]) -> None:
    desk.person.will(answer[0], **answer[1])
    result = await desk.call(ASKED)
    assert result.is_error
    assert text(result).startswith("Declined by a person: ")
    assert "security reasons" not in text(result)
    assert len(desk.person.questions) == 1
    assert not desk.appeared("ran")


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_that_cannot_ask_gets_a_denial(workspace: Path, era: str) -> None:
    async with client(workspace, era=era) as mcp:
        result = await mcp.call_tool("Bash", {"command": ASKED})
    assert result.is_error
    assert "approval that was not given" in text(result)
    assert not (workspace / "ran").exists()


@pytest.mark.parametrize("shared", ["auto"], indirect=True)
async def test_an_approval_is_good_for_the_command_that_was_shown_only(desk: Desk) -> None:
    call, yes = desk.mcp.session.call_tool, types.ElicitResult(action="accept", content={"approve": True})
    shown = await call("Bash", {"command": "sudo true"}, allow_input_required=True)
    assert isinstance(shown, types.InputRequiredResult)
    with pytest.raises(MCPError, match="requestState"):
        await call("Bash", {"command": ASKED}, input_responses={"approve": yes}, request_state=shown.request_state)
    unasked = await call("Bash", {"command": ASKED}, input_responses={"approve": yes}, allow_input_required=True)
    assert isinstance(unasked, types.InputRequiredResult)
    assert not desk.appeared("ran")


async def test_output_arrives_while_the_command_runs(desk: Desk) -> None:
    """The command ends only when its output has been seen."""
    seen: list[tuple[float, str | None]] = []

    async def watch(progress: float, _: float | None, message: str | None) -> None:
        seen.append((progress, message))
        (desk.workspace / "seen").touch()

    waiting = "printf 'begun \\xe2'; printf '\\x82\\xac\\n'; until [ -e seen ]; do sleep 0.02; done; echo end"
    result = await desk.call(waiting, progress_callback=watch)
    assert "".join(message or "" for _, message in seen).startswith("begun €"[: len(seen[0][1] or "")])
    assert [progress for progress, _ in seen] == sorted({progress for progress, _ in seen})
    assert text(result).split() == ["begun", "€", "end"]


async def test_a_flood_of_output_becomes_few_notifications(desk: Desk) -> None:
    seen: list[int] = []

    async def watch(_: float, __: float | None, message: str | None) -> None:
        seen.append(len(message or ""))

    await desk.call("head -c 20000000 /dev/zero | tr '\\0' x", progress_callback=watch)
    assert max(seen) <= 8192
    assert sum(seen) < 5_000_000


@pytest.mark.parametrize("tool", ["Bash", "shell_execute"])
async def test_a_cancelled_call_leaves_no_process(desk: Desk, tool: str) -> None:
    begun = anyio.Event()

    async def watch(*_: object) -> None:
        begun.set()

    async def call() -> None:
        await desk.call("echo begun; (sleep 1001); true", tool, progress_callback=watch)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call)
        await begun.wait()
        tasks.cancel_scope.cancel()
    with anyio.fail_after(120):
        await desk.call(GONE, tool)


async def test_several_calls_run_at_once(desk: Desk) -> None:
    """Each waits for the other: one after the other they would never end."""
    results: list[types.CallToolResult] = []

    async def call(mine: str, theirs: str) -> None:
        meet = f"touch {mine}; until [ -e {theirs} ]; do sleep 0.02; done"
        results.append(await desk.mcp.call_tool("shell_execute", {"command": meet, "timeout": 20}))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call, "a", "b")
        tasks.start_soon(call, "b", "a")
    assert [result.is_error for result in results] == [False, False]


async def test_wrong_parameters_are_all_named_in_the_result(desk: Desk) -> None:
    result = await desk.mcp.call_tool("Bash", {"comand": "ls", "timeout": "soon"})
    assert result.is_error
    assert all(name in text(result) for name in ("command", "comand", "timeout"))


async def test_an_unknown_tool_is_a_protocol_error(desk: Desk) -> None:
    with pytest.raises(MCPError, match="Unknown tool: Fish") as error:
        await desk.call("ls", "Fish")
    assert error.value.code == types.INVALID_PARAMS


async def test_after_the_sandbox_was_lost_the_next_call_gets_a_new_one(workspace: Path, docker_client: Any) -> None:
    before = sessions()
    async with client(workspace) as mcp:
        await mcp.call_tool("Bash", {"command": "echo hi"})
        (ours,) = sessions() - before
        docker_client.containers.get(f"belljar-{ours}").kill()
        await mcp.call_tool("Bash", {"command": "echo lost"})  # at the latest this one notices
        result = await mcp.call_tool("Bash", {"command": "echo back"})
    assert text(result).strip() == "back"


# What is listed needs no sandbox, and no process of its own.


async def test_only_the_bash_family_is_listed_unless_others_are_wanted(workspace: Path) -> None:
    assert set(await _listed(workspace)) == FAMILIES["bash"]
    assert set(await _listed(workspace, "--tools", "run_command, terminal-run")) == {"run_command", "terminal-run"}
    assert set(await _listed(workspace, "--tools", "all")) == set().union(*FAMILIES.values())


async def test_every_parameter_is_described(workspace: Path) -> None:
    for tool in (await _listed(workspace, "--tools", "all")).values():
        assert tool.description
        assert tool.title
        properties = tool.input_schema.get("properties", {})
        assert all(each.get("description") for each in properties.values()), tool.name


async def test_the_annotations_are_true_of_the_sandbox(workspace: Path) -> None:
    closed, opened = await _listed(workspace), await _listed(workspace, "--network", "full")
    assert _hints(closed["Bash"]) == (False, True, False, False)
    assert _hints(opened["Bash"]) == (False, True, False, True)
    assert _hints(opened["BashOutput"]) == (True, False, False, False)
    assert _hints(opened["ListShells"]) == (False, False, True, False)
    assert _hints(opened["KillShell"]) == (False, True, True, False)


async def _listed(workspace: Path, *options: str) -> dict[str, types.Tool]:
    service = build(parse(["mcp", "--workspace", str(workspace), *options]))
    async with Client(service.server) as mcp:
        return {tool.name: tool for tool in (await mcp.list_tools()).tools}


def _hints(tool: types.Tool) -> tuple[bool | None, ...]:
    hints = tool.annotations
    assert hints is not None
    return hints.read_only_hint, hints.destructive_hint, hints.idempotent_hint, hints.open_world_hint


async def test_staged_changes_are_looked_at_discarded_and_applied_only_with_a_persons_yes(workspace: Path) -> None:
    person = Person()
    (workspace / "a.txt").write_text("one\n")
    os.chown(workspace / "a.txt", workspace.stat().st_uid, workspace.stat().st_gid)
    async with client(workspace, "--staged", elicitation_callback=person) as mcp:

        async def call(tool: str, **arguments: Any) -> str:
            return text(await mcp.call_tool(tool, arguments))

        names = {tool.name for tool in (await mcp.list_tools()).tools}
        assert names >= {"list_changes", "diff_changes", "apply_changes", "discard_changes"}
        await call("Bash", command="echo two > a.txt; echo x > b.txt")
        assert await call("list_changes") == "~ a.txt\n+ b.txt"
        assert "+two" in await call("diff_changes", paths=["a.txt"])
        person.will("decline")
        assert "declined" in await call("apply_changes")
        assert "+two" in person.questions[0]
        assert (workspace / "a.txt").read_text() == "one\n"
        assert await call("discard_changes", paths=["b.txt"]) == "1 discarded"
        person.will("accept", approve=True)
        assert await call("apply_changes") == "1 applied"
        assert (workspace / "a.txt").read_text() == "two\n"
        assert not (workspace / "b.txt").exists()
    belljar_areas = hosts.default().staged_root
    for area in StagedArea.all(belljar_areas):
        area.remove()


async def test_without_a_person_staged_changes_are_left_for_the_command_line(workspace: Path) -> None:
    async with client(workspace, "--staged") as mcp:
        await mcp.call_tool("Bash", {"command": "echo x > b.txt"})
        said = text(await mcp.call_tool("apply_changes", {}))
        assert "belljar apply --session bj-" in said
        assert not (workspace / "b.txt").exists()
    (area,) = StagedArea.all(hosts.default().staged_root)
    assert [change.path for change in area.changes()] == ["b.txt"]
    area.remove()
