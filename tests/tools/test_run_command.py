"""Tool family E, `run_command`: JSON with exit code, stdout and stderr, in the project directory, without variables."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest

from belljar import Session, ToolRegistry
from belljar.tools.run_command import RunCommandResult


async def run(
    tools: ToolRegistry, command: str, *args: str, **params: Any
) -> RunCommandResult:
    result = await tools.call(
        "run_command",
        {"command": command, **({"args": list(args)} if args else {}), **params},
    )
    assert isinstance(result, RunCommandResult)
    return result


async def test_the_result_is_json_with_exit_code_stdout_and_stderr(
    tools: ToolRegistry,
) -> None:
    result = await run(
        tools,
        "python3",
        "-c",
        "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)",
    )
    assert json.loads(result.content) == {
        "exit_code": 3,
        "stdout": "out\n",
        "stderr": "err\n",
    }
    assert result.as_dict() == {"exit_code": 3, "stdout": "out\n", "stderr": "err\n"}
    assert (result.success, result.exit_code, result.stdout, result.stderr) == (
        False,
        3,
        "out\n",
        "err\n",
    )


async def test_commands_run_in_the_project_directory(tools: ToolRegistry) -> None:
    assert (await run(tools, "pwd")).stdout == "/workspace\n"
    assert "sub" in (await run(tools, "ls", "-a")).stdout


async def test_the_environment_is_empty(
    tools: ToolRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "x")
    assert (await run(tools, "env")).stdout == ""
    assert "x" not in (await run(tools, "echo $SECRET $HOME $USER")).stdout


async def test_arguments_are_passed_on_exactly(tools: ToolRegistry) -> None:
    assert (
        await run(tools, "echo", "$HOME; ls", "a  b", "*")
    ).stdout == "$HOME; ls a  b *\n"
    assert (await run(tools, "echo", "")).stdout == "\n"


async def test_a_command_without_arguments_may_be_a_line_for_the_shell(
    tools: ToolRegistry,
) -> None:
    assert (await run(tools, "echo a | tr a b && echo c")).stdout == "b\nc\n"


async def test_the_timeout_is_enforced(tools: ToolRegistry) -> None:
    result = await run(tools, "echo x; sleep 60", timeout=1000)
    assert (result.exit_code, result.stdout) == (124, "x\n")
    assert result.as_dict()["error"] == "Command timed out after 1000ms"


async def test_a_command_that_is_not_found_has_exit_code_127(
    tools: ToolRegistry,
) -> None:
    result = await run(tools, "nosuchcommand", "x")
    assert result.exit_code == 127
    assert "nosuchcommand" in (result.error or "")


async def test_a_denied_command_does_not_run_and_says_why(tools: ToolRegistry) -> None:
    result = await run(tools, "rm", "-rf", "/")
    assert (result.exit_code, result.stdout, result.code) == (126, "", "policy_denied")
    assert (result.error or "").startswith("Command blocked: ")


async def test_specific_commands_can_be_allowed_or_blocked(box: Session) -> None:
    tools = ToolRegistry(box, config={"run_command": {"blocked_commands": ["date"]}})
    refused = await run(tools, "date")
    assert (refused.exit_code, refused.error) == (
        126,
        "Command not allowed by configuration: date",
    )
    assert (await run(tools, "echo x; date")).exit_code == 126
    only = ToolRegistry(box, config={"run_command": {"allowed_commands": ["echo"]}})
    assert (await run(only, "echo", "x")).success
    assert not (await run(only, "ls")).success


async def test_the_host_may_give_variables(box: Session) -> None:
    tools = ToolRegistry(
        box, config={"run_command": {"environment": {"MIX_ENV": "test"}}}
    )
    assert (await run(tools, "env")).stdout == "MIX_ENV=test\n"


async def test_an_abort_ends_it(tools: ToolRegistry) -> None:
    abort = anyio.Event()
    params = {"command": "echo up; sleep 60"}
    result = await tools.call(
        "run_command", params, on_output=lambda _: abort.set(), abort=abort
    )
    assert result.error == "Command aborted"


async def test_invalid_utf8_is_replaced(tools: ToolRegistry) -> None:
    assert (await run(tools, "printf 'a\\377b'")).stdout == "a�b"
