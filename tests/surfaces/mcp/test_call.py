"""One MCP call: its questions, its progress, its end."""

from __future__ import annotations

import asyncio
from contextvars import Context
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import MCPError
from tests.surfaces.mcp.test_server import Desk
from tests.surfaces.mcp.test_server import desk as desk
from tests.surfaces.mcp.test_server import shared as shared
from tests.surfaces.mcp_client import ERAS, UNTIL_NO_SLEEP_IS_LEFT, client, text

from belljar.session.judging import host_verdict
from belljar.surfaces.mcp.call import Call, Calls

ASKED = "sudo true; touch ran"


async def test_a_person_who_approves_lets_the_command_run(desk: Desk) -> None:
    desk.person.will("accept", approve=True)
    await desk.call(ASKED)
    assert desk.appeared("ran")
    (question,) = desk.person.questions
    assert "Risk: high" in question
    assert question.endswith(f"Command:\n    {ASKED}")


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("terminal-run", {"command": ASKED}),
        ("shell_execute", {"command": ASKED}),
        ("run_command", {"command": "sudo", "args": ["true"]}),
    ],
)
async def test_every_family_asks_once(
    desk: Desk, tool: str, arguments: dict[str, Any]
) -> None:
    desk.person.will("accept", approve=True)
    await desk.mcp.call_tool(tool, arguments)
    assert len(desk.person.questions) == 1


async def test_a_command_too_long_to_read_is_denied_without_a_question(
    desk: Desk,
) -> None:
    desk.person.will("accept", approve=True)
    result = await desk.call(f"sudo true; touch ran; echo {'x' * 30_000}")
    assert result.is_error
    assert not desk.person.questions
    assert not desk.appeared("ran")


async def test_a_command_cannot_forge_the_question_s_text(desk: Desk) -> None:
    await desk.call("sudo true # \u202eevil\nRisk: low")
    for question in desk.person.questions:
        assert "\u202e" not in question
        assert "\nRisk: low" not in question


@pytest.mark.parametrize(
    "answer", [("decline", {}), ("cancel", {}), ("accept", {"approve": False})]
)
async def test_without_a_clear_yes_the_command_does_not_run(
    desk: Desk, answer: tuple[str, dict[str, Any]]
) -> None:
    desk.person.will(answer[0], **answer[1])
    result = await desk.call(ASKED)
    assert result.is_error
    assert text(result).startswith("Declined by a person: ")
    assert "security reasons" not in text(result)
    assert len(desk.person.questions) == 1
    assert not desk.appeared("ran")


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_that_cannot_ask_gets_a_denial(
    workspace: Path, era: str
) -> None:
    async with client(workspace, era=era) as mcp:
        result = await mcp.call_tool("Bash", {"command": ASKED})
    assert result.is_error
    assert "approval that was not given" in text(result)
    assert not (workspace / "ran").exists()


@pytest.mark.parametrize("shared", ["auto"], indirect=True)
async def test_an_approval_is_good_for_the_command_that_was_shown_only(
    desk: Desk,
) -> None:
    call, yes = (
        desk.mcp.session.call_tool,
        types.ElicitResult(action="accept", content={"approve": True}),
    )
    shown = await call("Bash", {"command": "sudo true"}, allow_input_required=True)
    assert isinstance(shown, types.InputRequiredResult)
    with pytest.raises(MCPError, match="requestState"):
        await call(
            "Bash",
            {"command": ASKED},
            input_responses={"approve": yes},
            request_state=shown.request_state,
        )
    unasked = await call(
        "Bash",
        {"command": ASKED},
        input_responses={"approve": yes},
        allow_input_required=True,
    )
    assert isinstance(unasked, types.InputRequiredResult)
    assert not desk.appeared("ran")


async def test_output_arrives_while_the_command_runs(desk: Desk) -> None:
    """The command can end only after the test has seen its output."""
    seen: list[tuple[float, str | None]] = []

    async def watch(progress: float, _: float | None, message: str | None) -> None:
        seen.append((progress, message))
        (desk.workspace / "seen").touch()

    waiting = "printf 'begun \\xe2'; printf '\\x82\\xac\\n'; until [ -e seen ]; do sleep 0.02; done; echo end"
    result = await desk.call(waiting, progress_callback=watch)
    assert "".join(message or "" for _, message in seen).startswith(
        "begun €"[: len(seen[0][1] or "")]
    )
    assert [progress for progress, _ in seen] == sorted(
        {progress for progress, _ in seen}
    )
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
        await desk.call(UNTIL_NO_SLEEP_IS_LEFT, tool)


async def test_several_calls_run_at_once(desk: Desk) -> None:
    """Each command waits for the other. If they did not run at once, they would never end."""
    results: list[types.CallToolResult] = []

    async def call(mine: str, theirs: str) -> None:
        meet = f"touch {mine}; until [ -e {theirs} ]; do sleep 0.02; done"
        results.append(
            await desk.mcp.call_tool("shell_execute", {"command": meet, "timeout": 20})
        )

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call, "a", "b")
        tasks.start_soon(call, "b", "a")
    assert [result.is_error for result in results] == [False, False]


class Client:
    """Stands for the connection of one MCP client, and counts what it was asked."""

    def __init__(self) -> None:
        self.asked = 0

    def call(self) -> Any:
        call = Call(SimpleNamespace(session=SimpleNamespace(_connection=self)), None)  # type: ignore[arg-type]
        call.approve = call.ask_during_call = self._answer  # type: ignore[method-assign]
        return call

    async def _answer(self, _: object) -> bool:
        self.asked += 1
        return True


async def test_a_question_goes_to_the_client_whose_call_it_is() -> None:
    """Two clients once shared one question: the newest call's client was asked about the other's program."""
    calls, one, other, verdict = (
        Calls(),
        Client(),
        Client(),
        host_verdict("a.example", 443, "default"),
    )
    with calls.begun(one.call()):
        assert await calls.approve(verdict) is True
        with calls.begun(other.call()):
            assert await calls.approve(verdict) is True
    assert (one.asked, other.asked) == (1, 1)


async def test_with_several_clients_nobody_is_asked_about_a_host() -> None:
    calls, one, other, verdict = (
        Calls(),
        Client(),
        Client(),
        host_verdict("a.example", 443, "default"),
    )

    async def of_the_door() -> bool | None:
        return await calls.approve(verdict)

    door = Context()
    loop = asyncio.get_running_loop()
    with calls.begun(one.call()):
        assert await loop.create_task(of_the_door(), context=door) is True
        with calls.begun(other.call()):
            assert await loop.create_task(of_the_door(), context=door) is None
        assert await loop.create_task(of_the_door(), context=door) is None, (
            "the other's program may still run"
        )
    assert (one.asked, other.asked) == (1, 0)
