"""Tools, with blocking calls."""

from pathlib import Path
from typing import Any

from belljar import sync
from belljar.tools.base import Call, Tool, ToolResult
from belljar.tools.parameters import Params


class Where(Tool):
    name = title = description = "where"
    Params = Params

    async def execute(self, params: Any, call: Call) -> ToolResult:
        return ToolResult(True, (await self.box.run("pwd")).stdout)


def test_tools_of_a_blocking_session_are_described_and_called(workspace: Path) -> None:
    with sync.Session(workspace) as box:
        tools = sync.ToolRegistry(box)
        assert "Bash" in {each["name"] for each in tools.schemas("anthropic")}
        assert tools.call("Bash", {"command": "echo hi"}).output == "hi\n"


def test_a_tool_of_ones_own_runs_in_the_loop_of_the_session(workspace: Path) -> None:
    with sync.Session(workspace) as box:
        tools = sync.ToolRegistry(box)
        tools.register(Where)
        assert tools.call("where").output == "/workspace\n"
