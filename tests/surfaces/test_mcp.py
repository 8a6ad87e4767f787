from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import MCPError
from tests.surfaces.mcp_client import ERAS, Person, client, sessions, text

ASKED = "sudo true; touch ran"
FAMILIES = {
    "bash": {"Bash", "BashOutput", "KillShell", "ListShells"},
    "terminal-run": {"terminal-run"},
    "execute_command": {"execute_command"},
    "shell_execute": {"shell_execute"},
    "run_command": {"run_command"},
}


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def test_a_result_comes_as_text_and_as_structured_content(workspace: Path, era: str) -> None:
    async with client(workspace, era=era) as mcp:
        result = await mcp.call_tool("Bash", {"command": "cd /tmp; echo out; echo err >&2; false"})
        again = await mcp.call_tool("Bash", {"command": "pwd"})
    assert result.is_error
    assert {"out", "err"} <= set(text(result).split())
    assert result.structured_content["metadata"]["exit_code"] == 1
    assert not again.is_error
    assert text(again).strip() == again.structured_content["output"].strip() == "/tmp"


async def test_the_model_is_told_what_the_sandbox_is(workspace: Path, era: str) -> None:
    async with client(workspace, era=era) as mcp:
        assert str(workspace) in (mcp.instructions or "")
        assert "no network" in (mcp.instructions or "")


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
    closed = await _listed(workspace)
    opened = await _listed(workspace, "--network", "full")
    assert _hints(closed["Bash"]) == {"read_only": False, "destructive": True, "idempotent": False, "open_world": False}
    assert _hints(opened["Bash"]) == {"read_only": False, "destructive": True, "idempotent": False, "open_world": True}
    assert _hints(opened["BashOutput"])["read_only"]
    assert _hints(closed["KillShell"])["idempotent"]


async def test_each_family_runs_a_command(workspace: Path) -> None:
    calls: dict[str, dict[str, Any]] = {
        "Bash": {"command": "echo hi"},
        "terminal-run": {"command": "echo hi"},
        "execute_command": {"command": "echo", "args": ["hi"]},
        "shell_execute": {"command": "echo hi"},
        "run_command": {"command": "echo", "args": ["hi"]},
    }
    async with client(workspace, "--tools", "all") as mcp:
        for name, arguments in calls.items():
            result = await mcp.call_tool(name, arguments)
            assert not result.is_error, name
            assert "hi" in json.dumps(result.structured_content), name
            assert "hi" in text(result), name


async def test_a_denied_command_says_why_and_does_not_run(workspace: Path, era: str) -> None:
    async with client(workspace, era=era, elicitation_callback=(person := Person("accept", approve=True))) as mcp:
        result = await mcp.call_tool("Bash", {"command": "touch ran; rm -rf /"})
    assert result.is_error
    assert text(result).startswith("Command blocked for security reasons: ")
    assert not (workspace / "ran").exists()
    assert not person.questions


async def test_a_person_who_approves_lets_the_command_run(workspace: Path, era: str) -> None:
    async with client(workspace, era=era, elicitation_callback=(person := Person("accept", approve=True))) as mcp:
        await mcp.call_tool("Bash", {"command": ASKED})
    assert (workspace / "ran").exists()
    (question,) = person.questions
    assert "Risk: critical" in question
    assert question.endswith(f"Command:\n    {ASKED}")


@pytest.mark.parametrize("answer", [Person("decline"), Person("cancel"), Person("accept", approve=False)])
async def test_without_a_clear_yes_the_command_does_not_run(workspace: Path, era: str, answer: Person) -> None:
    async with client(workspace, era=era, elicitation_callback=answer) as mcp:
        result = await mcp.call_tool("Bash", {"command": ASKED})
    assert result.is_error
    assert not (workspace / "ran").exists()


async def test_a_client_that_cannot_ask_gets_a_denial(workspace: Path, era: str) -> None:
    async with client(workspace, era=era) as mcp:
        result = await mcp.call_tool("Bash", {"command": ASKED})
    assert result.is_error
    assert "blocked" in text(result)
    assert not (workspace / "ran").exists()


async def test_an_approval_is_good_for_the_command_that_was_shown_only(workspace: Path) -> None:
    yes = Person("accept", approve=True)
    async with client(workspace, elicitation_callback=yes) as mcp:
        shown = await mcp.session.call_tool("Bash", {"command": "sudo true"}, allow_input_required=True)
        assert isinstance(shown, types.InputRequiredResult)
        answered = {"input_responses": {"approve": yes.answer}, "request_state": shown.request_state}
        with pytest.raises(MCPError) as refused:
            await mcp.session.call_tool("Bash", {"command": ASKED}, **answered)
        unsealed = await mcp.session.call_tool(
            "Bash", {"command": ASKED}, input_responses={"approve": yes.answer}, allow_input_required=True
        )
    assert refused.value.code == types.INVALID_PARAMS
    assert isinstance(unsealed, types.InputRequiredResult)
    assert not (workspace / "ran").exists()


async def test_output_arrives_while_the_command_runs(workspace: Path, era: str) -> None:
    """The command ends only when its output has been seen."""
    seen: list[tuple[float, str | None]] = []

    async def watch(progress: float, _: float | None, message: str | None) -> None:
        seen.append((progress, message))
        (workspace / "seen").touch()

    waiting = "printf 'begun \\xe2'; printf '\\x82\\xac\\n'; until [ -e seen ]; do sleep 0.02; done; echo end"
    async with client(workspace, era=era) as mcp:
        result = await mcp.call_tool("Bash", {"command": waiting}, progress_callback=watch)
    assert "".join(message or "" for _, message in seen).startswith("begun €")
    assert [progress for progress, _ in seen] == sorted({progress for progress, _ in seen})
    assert text(result).split() == ["begun", "€", "end"]


async def test_a_flood_of_output_becomes_few_notifications(workspace: Path) -> None:
    seen: list[int] = []

    async def watch(_: float, __: float | None, message: str | None) -> None:
        seen.append(len(message or ""))

    async with client(workspace) as mcp:
        await mcp.call_tool("Bash", {"command": "head -c 20000000 /dev/zero | tr '\\0' x"}, progress_callback=watch)
    assert max(seen) <= 8192
    assert sum(seen) < 5_000_000


@pytest.mark.parametrize("tool", ["Bash", "shell_execute"])
async def test_a_cancelled_call_leaves_no_process(workspace: Path, era: str, tool: str) -> None:
    begun = anyio.Event()

    async def watch(*_: object) -> None:
        begun.set()

    async with client(workspace, "--tools", "all", era=era) as mcp:

        async def call() -> None:
            await mcp.call_tool(tool, {"command": "echo begun; (sleep 1001); true"}, progress_callback=watch)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await begun.wait()
            tasks.cancel_scope.cancel()
        left = await mcp.call_tool(tool, {"command": "cat /proc/[0-9]*/comm"})
    assert not left.is_error
    assert "sleep" not in json.dumps(left.structured_content)


async def test_several_calls_run_at_once(workspace: Path) -> None:
    """Each waits for the other: one after the other they would never end."""
    meet = "touch {0}; until [ -e {1} ]; do sleep 0.02; done; echo met"
    results: list[types.CallToolResult] = []

    async def call(mine: str, theirs: str) -> None:
        results.append(await mcp.call_tool("shell_execute", {"command": meet.format(mine, theirs), "timeout": 20}))

    async with client(workspace, "--tools", "shell_execute") as mcp, anyio.create_task_group() as tasks:
        tasks.start_soon(call, "a", "b")
        tasks.start_soon(call, "b", "a")
    assert [result.is_error for result in results] == [False, False]


async def test_wrong_parameters_are_all_named_in_the_result(workspace: Path, era: str) -> None:
    async with client(workspace, era=era) as mcp:
        result = await mcp.call_tool("Bash", {"comand": "ls", "timeout": "soon"})
    assert result.is_error
    assert all(name in text(result) for name in ("command", "comand", "timeout"))


async def test_an_unknown_tool_is_a_protocol_error(workspace: Path, era: str) -> None:
    async with client(workspace, era=era) as mcp:
        with pytest.raises(MCPError, match="Unknown tool: run_command") as error:
            await mcp.call_tool("run_command", {"command": "ls"})
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


async def _listed(workspace: Path, *options: str) -> dict[str, types.Tool]:
    async with client(workspace, *options) as mcp:
        return {tool.name: tool for tool in (await mcp.list_tools()).tools}


def _hints(tool: types.Tool) -> dict[str, bool | None]:
    hints = tool.annotations
    assert hints is not None
    return {
        "read_only": hints.read_only_hint,
        "destructive": hints.destructive_hint,
        "idempotent": hints.idempotent_hint,
        "open_world": hints.open_world_hint,
    }
