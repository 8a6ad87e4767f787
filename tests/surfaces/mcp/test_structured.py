"""Results as structured content."""

from __future__ import annotations

import json
from typing import Any

from jsonschema import validate
from tests.surfaces.mcp.test_server import Desk
from tests.surfaces.mcp.test_server import desk as desk
from tests.surfaces.mcp.test_server import shared as shared
from tests.surfaces.mcp_client import text


async def test_a_result_comes_as_text_and_as_structured_content(desk: Desk) -> None:
    result = await desk.call("cd /tmp; echo out; echo err >&2; false")
    again = await desk.call("pwd")
    assert result.is_error
    assert {"out", "err"} <= set(text(result).split())
    assert result.structured_content["metadata"]["exit_code"] == 1
    assert not again.is_error
    assert text(again).strip() == again.structured_content["output"].strip() == "/tmp"


async def test_long_output_is_sent_once_and_not_also_as_structured_content(
    desk: Desk,
) -> None:
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
        told = json.dumps(result.structured_content).replace(
            json.dumps(arguments["command"])[1:-1], ""
        )
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


async def test_a_command_without_output_still_has_a_text(desk: Desk) -> None:
    assert text(await desk.call("true")) == "(no output)"
