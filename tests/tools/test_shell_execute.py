"""Tool family D, `shell_execute`: its document's table, with results in MCP's format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from belljar import Limits, Session, ToolRegistry
from belljar.audit.writer import Audit
from belljar.tools import ToolResult


async def execute(tools: ToolRegistry, command: str, **params: Any) -> ToolResult:
    return await tools.call("shell_execute", {"command": command, **params})


def said(result: ToolResult) -> str:
    return str(result.as_dict()["content"][0]["text"])


async def test_a_successful_command_has_exit_code_0_and_output(
    tools: ToolRegistry,
) -> None:
    result = await execute(tools, "echo out; echo err >&2")
    shape = result.as_dict()
    assert shape["content"] == [
        {"type": "text", "text": "Command executed successfully"}
    ]
    assert shape["is_error"] is False
    facts = shape["metadata"]
    assert (facts["command"], facts["exit_code"], facts["stdout"], facts["stderr"]) == (
        "echo out; echo err >&2",
        0,
        "out\n",
        "err\n",
    )
    assert facts["working_directory"] == "/workspace"
    assert facts["execution_time_ms"] >= 0


async def test_a_failing_command_has_its_exit_code(tools: ToolRegistry) -> None:
    result = await execute(tools, "ls /nonexistent")
    assert (said(result), result.as_dict()["is_error"]) == (
        "Command failed with exit code 2",
        True,
    )
    assert result.metadata.exit_code == 2
    assert "No such file or directory" in result.metadata.stderr


async def test_a_timeout_keeps_the_partial_output(tools: ToolRegistry) -> None:
    result = await execute(tools, "echo some; echo more >&2; sleep 60", timeout=3)
    assert said(result) == "Command timed out after 3 seconds"
    facts = result.as_dict()["metadata"]
    assert (
        facts["timeout_seconds"],
        facts["partial_stdout"],
        facts["partial_stderr"],
    ) == (3, "some\n", "more\n")
    assert (facts["command"], facts["working_directory"]) == (
        "echo some; echo more >&2; sleep 60",
        "/workspace",
    )
    assert "some\n" in result.text


async def test_environment_and_directory_are_applied(
    tools: ToolRegistry, place: Path
) -> None:
    result = await execute(
        tools,
        "echo $A; pwd",
        environment={"A": "1"},
        working_directory=str(place / "sub"),
    )
    assert (result.metadata.stdout, result.metadata.working_directory) == (
        "1\n/workspace/sub\n",
        "/workspace/sub",
    )
    outside = await execute(tools, "pwd", working_directory="../..")
    assert said(outside).startswith("Invalid working directory")


async def test_a_missing_command_is_reported_clearly(tools: ToolRegistry) -> None:
    result = await execute(tools, "nosuchcommand --flag")
    assert said(result) == "Command failed with exit code 127"
    assert (
        result.content[1]["text"]
        == "Command not found: bash: line 1: nosuchcommand: command not found"
    )


async def test_a_denied_permission_is_reported_clearly(tools: ToolRegistry) -> None:
    result = await execute(tools, "touch /tmp/plain; /tmp/plain")
    assert said(result) == "Command failed with exit code 126"
    assert result.content[1]["text"].startswith("Permission denied: ")


async def test_exhausted_memory_is_reported_with_diagnostics(place: Path) -> None:
    async with Session(place, limits=Limits(memory="64m")) as box:
        result = await execute(
            ToolRegistry(box), 'python3 -c "x = bytearray(500_000_000)"'
        )
    assert result.as_dict()["is_error"] is True
    assert "Resource exhaustion: the memory limit of 64 MiB was reached" in result.text


async def test_memory_and_cpu_use_are_reported(tools: ToolRegistry) -> None:
    result = await execute(
        tools, 'python3 -c "x = bytearray(40_000_000); sum(range(3_000_000))"'
    )
    assert result.metadata.peak_memory_bytes > 40_000_000
    assert result.metadata.cpu_time_ms > 10


async def test_invalid_parameters_are_all_named(tools: ToolRegistry) -> None:
    result = await tools.call(
        "shell_execute", {"timeout": 0, "environment": {"A": 1}, "extra": 1}
    )
    for name in ("command", "timeout", "environment.A", "extra"):
        assert f"'{name}'" in said(result)


async def test_a_denied_command_says_why(tools: ToolRegistry) -> None:
    result = await execute(tools, "rm -rf /")
    assert said(result).startswith("Command blocked for security reasons: rm -rf /")
    assert result.metadata.verdict["reason"] in said(result)


async def test_an_abort_ends_the_command_and_keeps_what_it_said(
    tools: ToolRegistry,
) -> None:
    abort = anyio.Event()
    params = {"command": "echo up; sleep 7654322"}
    result = await tools.call(
        "shell_execute", params, on_output=lambda _: abort.set(), abort=abort
    )
    assert (said(result), result.metadata.stdout) == ("Command aborted", "up\n")
    assert (
        await execute(tools, "pgrep -cf 'sleep 765432[2]'")
    ).metadata.stdout == "0\n"


async def test_an_abort_that_never_comes_changes_nothing(tools: ToolRegistry) -> None:
    result = await tools.call(
        "shell_execute", {"command": "echo x"}, abort=anyio.Event()
    )
    assert result.metadata.stdout == "x\n"


async def test_commands_can_be_filtered_by_configuration(box: Session) -> None:
    tools = ToolRegistry(
        box, config={"shell_execute": {"blocked_commands": ["uname", "py*"]}}
    )
    assert (await execute(tools, "echo x")).success
    for command in (
        "uname",
        "echo x | uname",
        "echo $(uname -a)",
        "/usr/bin/python3 -V",
    ):
        result = await execute(tools, command)
        assert said(result).startswith("Command not allowed by configuration: "), (
            command
        )
    only = ToolRegistry(
        box, config={"shell_execute": {"allowed_commands": ["echo", "cat"]}}
    )
    assert (await execute(only, "echo x | cat")).success
    assert not (await execute(only, "echo x | sort")).success


async def test_environment_is_filtered(box: Session, tools: ToolRegistry) -> None:
    result = await execute(
        tools,
        "echo $LD_PRELOAD-$OK",
        environment={"LD_PRELOAD": "/tmp/x.so", "OK": "1"},
    )
    assert (result.metadata.stdout, result.metadata.filtered_environment) == (
        "-1\n",
        ["LD_PRELOAD"],
    )
    strict = ToolRegistry(
        box, config={"shell_execute": {"allowed_environment": ["RUST_*"]}}
    )
    result = await execute(
        strict, "echo $RUST_LOG-$OTHER", environment={"RUST_LOG": "debug", "OTHER": "1"}
    )
    assert result.metadata.stdout == "debug-\n"


async def test_every_command_is_in_the_audit_trail_with_its_time(
    place: Path, tmp_path: Path, base_image: str
) -> None:
    import json

    trail = Audit(tmp_path)
    async with Session(place, audit=trail) as box:
        await execute(ToolRegistry(box), "echo audited")
    lines = [
        json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()
    ]
    kinds = [line["kind"] for line in lines]
    assert [kind for kind in kinds if kind in ("verdict", "start", "end")] == [
        "verdict",
        "start",
        "end",
    ]
    start = next(line for line in lines if line["kind"] == "start")
    assert start["command"] == "echo audited"
    assert start["time"]


@pytest.mark.parametrize("timeout", [1, 1800])
async def test_the_range_of_the_timeout_is_inclusive(
    tools: ToolRegistry, timeout: int
) -> None:
    assert (await execute(tools, "true", timeout=timeout)).success
