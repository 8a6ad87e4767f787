"""Tool family A, `terminal-run`: its document's table and its unit test plan."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import anyio
import pytest

from belljar import Output, Session, ToolRegistry
from belljar.tools import ToolResult

DANGEROUS = [
    "rm -rf /", "rm -rf ~", "rm -rf *", "sudo rm -rf /var", "format C:", "mkfs.ext4 /dev/sda1",
    "dd if=/dev/zero of=/dev/sda", "echo x > /dev/sda", ":(){ :|:& };:", "chmod -R 777 /", "chown -R me /",
]  # fmt: skip


async def run(tools: ToolRegistry, command: str, **params: Any) -> ToolResult:
    return await tools.call("terminal-run", {"command": command, **params})


async def test_id_name_category_tags_and_default_risk(tools: ToolRegistry) -> None:
    tool = tools.get("terminal-run")
    assert (tool.name, tool.title, tool.category) == (
        "terminal-run",
        "Run Command",
        "terminal",
    )
    assert tool.tags == ("terminal", "command", "shell", "execute")
    assert tool.default_risk == "high"
    assert tool.is_available


async def test_run_command_tool_simple_command_succeeds(tools: ToolRegistry) -> None:
    result = await run(tools, "echo hello; echo error >&2")
    assert result.success
    assert result.content == "hello\nerror\n"
    assert result.message is not None
    assert re.fullmatch(r"Command succeeded \((\d{1,3}ms|\d+\.\ds)\)", result.message)
    assert result.message == f"Command succeeded ({result.data.formatted_duration})"
    data = result.data
    assert (data.command, data.exit_code, data.output_length) == (
        "echo hello; echo error >&2",
        0,
        12,
    )
    assert (data.was_truncated, data.was_streamed, data.succeeded) == (
        False,
        False,
        True,
    )
    assert data.working_directory == "/workspace"
    assert data.formatted_duration.endswith("ms") == (round(data["duration"], 1) < 1)
    assert 0 < data["duration"] < 60
    assert set(result.as_dict()) == {"success", "content", "message", "data", "errors"}


async def test_run_command_tool_failing_command_returns_exit_code(
    tools: ToolRegistry,
) -> None:
    result = await run(tools, "echo before; exit 42")
    assert not result.success
    assert (result.content, result.message) == (
        "before\n",
        "Command failed with exit code 42",
    )
    assert (result.data.exit_code, result.data.succeeded) == (42, False)


async def test_run_command_tool_timeout_returns_failed(tools: ToolRegistry) -> None:
    result = await run(tools, "echo partial; sleep 60", timeout_seconds=1)
    assert not result.success
    assert result.message == "Command timed out after 1 seconds"
    assert result.content == "partial\n"


async def test_a_longer_duration_is_shown_in_seconds(tools: ToolRegistry) -> None:
    result = await run(tools, "sleep 1.05")
    assert result.message == f"Command succeeded ({result.data.formatted_duration})"
    assert re.fullmatch(r"\d+\.\ds", result.data.formatted_duration)


@pytest.mark.parametrize("command", DANGEROUS)
async def test_run_command_tool_dangerous_command_blocked(
    tools: ToolRegistry, command: str
) -> None:
    result = await run(tools, command)
    assert not result.success
    assert [(p.parameter, p.code) for p in result.problems] == [
        ("command", "DANGEROUS_COMMAND")
    ]
    assert (
        result.problems[0].message
        == "Potentially dangerous command detected and blocked for safety."
    )
    assert result.as_dict()["errors"] == [result.problems[0].as_dict()]
    assert result.data.verdict["reason"] in (result.message or ""), (
        "the model is told why"
    )


async def test_validate_dangerous_patterns_all_blocked(tools: ToolRegistry) -> None:
    for command in DANGEROUS:
        assert tools.risk("terminal-run", {"command": command}) == "blocked"


@pytest.mark.parametrize("command", [None, "", "   \n"])
async def test_a_missing_or_blank_command_is_required(
    tools: ToolRegistry, command: str | None
) -> None:
    result = await tools.call("terminal-run", {"command": command})
    assert [(p.parameter, p.code) for p in result.problems] == [("command", "REQUIRED")]


async def test_a_timeout_below_one_is_an_invalid_range_and_is_told_with_a_dangerous_command(
    tools: ToolRegistry,
) -> None:
    result = await run(tools, "ls", timeout_seconds=0)
    assert [p.as_dict() for p in result.problems] == [
        {
            "parameter": "timeout_seconds",
            "message": "Timeout must be at least 1 second",
            "code": "INVALID_RANGE",
        }
    ]
    both = await run(tools, "rm -rf /", timeout_seconds=-5)
    assert [p.code for p in both.problems] == ["DANGEROUS_COMMAND", "INVALID_RANGE"]


async def test_a_timeout_over_the_maximum_counts_as_the_maximum(
    tools: ToolRegistry,
) -> None:
    assert (await run(tools, "true", timeout_seconds=100_000)).success


async def test_run_command_tool_working_directory_validated(
    tools: ToolRegistry, place: Path
) -> None:
    assert (
        await run(tools, "pwd", working_directory="sub")
    ).content == "/workspace/sub\n"
    assert (
        await run(tools, "pwd", working_directory=str(place / "sub"))
    ).data.working_directory == "/workspace/sub"
    for outside in ("..", "sub/../../x", "/etc", "out", "missing"):
        result = await run(tools, "pwd", working_directory=outside)
        assert not result.success
        assert (result.message or "").startswith("Invalid working directory: "), outside


async def test_environment_is_added(tools: ToolRegistry) -> None:
    assert (
        await run(tools, 'echo "$A-$HOME"', environment={"A": "x y"})
    ).content == "x y-/home/sandbox\n"


async def test_run_command_tool_long_output_truncated(tools: ToolRegistry) -> None:
    result = await run(tools, "head -c 100001 /dev/zero | tr '\\0' a")
    assert result.content == "a" * 100_000 + "\n\n[Output truncated...]"
    assert (result.data.was_truncated, result.data.output_length) == (True, 100_001)
    exact = await run(tools, "head -c 100000 /dev/zero | tr '\\0' a")
    assert (len(exact.content), exact.data.was_truncated) == (100_000, False)


async def test_the_full_length_is_reported_even_if_most_was_not_kept(
    tools: ToolRegistry,
) -> None:
    result = await run(tools, "python3 -c \"print('日' * 3_000_000, end='')\"")
    assert result.data.output_length == 3_000_000
    assert result.content == "日" * 100_000 + "\n\n[Output truncated...]"


async def test_the_order_of_both_streams_is_exact(tools: ToolRegistry) -> None:
    result = await run(tools, "for i in $(seq 200); do echo o$i; echo e$i >&2; done")
    assert result.content == "".join(f"o{i}\ne{i}\n" for i in range(1, 201))


async def test_without_capture_the_command_goes_on_in_the_session(
    tools: ToolRegistry, box: Session
) -> None:
    result = await run(
        tools, "mkfifo /tmp/a-gate; read x < /tmp/a-gate; echo $x", capture_output=False
    )
    assert result.success
    assert result.content is None
    assert (result.message or "").startswith("Command sent to terminal: mkfifo")
    assert (result.data.was_streamed, result.data.exit_code) == (True, 0)
    shell = box.shell(result.data.shell_id)
    await box.run(
        "until [ -p /tmp/a-gate ]; do sleep 0.01; done; echo went on > /tmp/a-gate"
    )
    assert (await shell.wait(60)).stdout == "went on\n"


async def test_run_command_tool_sudo_critical_risk(tools: ToolRegistry) -> None:
    assert tools.risk("terminal-run", {"command": "sudo apt update"}) == "critical"


@pytest.mark.parametrize(
    "command",
    ["npm install", "pip install x", "gem install x", "cargo install x", "brew install x", "git push", "rm -rf build",
     "dotnet build", "npm run build", "ls", "pwd", "cat x"],
)  # fmt: skip
async def test_run_command_tool_install_high_risk(
    tools: ToolRegistry, command: str
) -> None:
    assert tools.risk("terminal-run", {"command": command}) == "high"


async def test_run_command_tool_no_session_returns_failed() -> None:
    result = await run(ToolRegistry(None), "ls")
    assert not result.success
    assert result.message == "No active terminal session. Please open a terminal first."


async def test_a_caller_may_listen_and_abort(tools: ToolRegistry) -> None:
    abort, heard = anyio.Event(), list[bytes]()

    def listen(output: Output) -> None:
        heard.append(output.data)
        abort.set()

    result = await tools.call(
        "terminal-run", {"command": "echo up; sleep 60"}, on_output=listen, abort=abort
    )
    assert (result.success, result.message, heard) == (
        False,
        "Command aborted",
        [b"up\n"],
    )


async def test_a_refusal_passes_through_an_abortable_call(tools: ToolRegistry) -> None:
    result = await tools.call(
        "terminal-run", {"command": "rm -rf /"}, abort=anyio.Event()
    )
    assert [p.code for p in result.problems] == ["DANGEROUS_COMMAND"]
