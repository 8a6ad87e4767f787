"""The MCP SDK's client, connected to a real `belljar mcp` process."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import mcp_types as types
from mcp import Client, StdioServerParameters

COMMAND = [sys.executable, "-m", "belljar", "mcp"]
PASSED = ("BELLJAR", "COVERAGE", "DOCKER", "PYTHON", "XDG")
ERAS = ["auto", "legacy"]
"""Protocol versions: `auto` is 2026-07-28, in which a server may not send requests; `legacy` is 2025-11-25."""

UNTIL_NO_SLEEP_IS_LEFT = (
    "while grep -qa 'sleep.100[1]' /proc/[0-9]*/cmdline 2>/dev/null; do :; done"
)
"""A command that ends when no `sleep 1001` is left."""


def client(workspace: Path, *options: str, era: str = "auto", **more: Any) -> Client:
    args = [*COMMAND[1:], "--workspace", str(workspace), *options]
    env = {name: value for name, value in os.environ.items() if name.startswith(PASSED)}
    return Client(
        StdioServerParameters(command=COMMAND[0], args=args, env=env), mode=era, **more
    )


def text(result: types.CallToolResult) -> str:
    assert isinstance(result.content[0], types.TextContent)
    return result.content[0].text


class Person:
    """Answers questions as it was set to, and records them."""

    def __init__(self) -> None:
        self.questions: list[str] = []
        self.forms: list[dict[str, Any]] = []
        self.answer = types.ElicitResult(action="cancel")

    def will(self, action: str, **content: Any) -> None:
        self.questions.clear()
        self.forms.clear()
        self.answer = types.ElicitResult(action=action, content=content or None)  # type: ignore[arg-type]

    async def __call__(
        self, _: Any, params: types.ElicitRequestParams
    ) -> types.ElicitResult:
        self.questions.append(params.message)
        if isinstance(params, types.ElicitRequestFormParams):
            self.forms.append(params.requested_schema["properties"])
        return self.answer


def sessions() -> set[str]:
    """The sandboxes of this test run."""
    return {entry.name for entry in Path(os.environ["BELLJAR_RUN"]).glob("bj-*")}
