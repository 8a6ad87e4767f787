"""An independent client: the command line of the MCP project's inspector, on Node.js."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.surfaces.mcp.test_http import TOKEN, serving
from tests.surfaces.mcp_client import COMMAND

PACKAGE = "@modelcontextprotocol/inspector"
VERSION = "1.0.3"
"""The newest version that also runs on Node.js 20."""


@pytest.fixture(scope="module")
def inspector() -> Path:
    """Installed once, outside the repository."""
    cache = (
        Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        / "belljar-tests"
    )
    home = cache / f"inspector-{VERSION}"
    program = home / "node_modules" / PACKAGE / "cli" / "build" / "cli.js"
    if not shutil.which("node") or not (program.exists() or shutil.which("npm")):
        pytest.skip("the inspector needs Node.js and npm, which are not installed here")
    if not program.exists():
        _install(home)
    return program


def _install(home: Path) -> None:
    """Install completely or not at all: another test run may do the same at this moment."""
    home.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix="installing-", dir=home.parent))
    npm = [
        "npm",
        "install",
        "--no-fund",
        "--no-audit",
        "--ignore-scripts",
        "--prefix",
        str(beside),
    ]
    installed = subprocess.run(
        [*npm, f"{PACKAGE}@{VERSION}"], capture_output=True, text=True, timeout=300
    )
    if installed.returncode == 0:
        with suppress(OSError):  # the other run was first
            beside.rename(home)
    shutil.rmtree(beside, ignore_errors=True)
    if installed.returncode:
        pytest.skip(
            f"npm can't install the inspector here: {installed.stderr.strip()[-200:]}"
        )


def inspect(inspector: Path, target: list[str], *options: str) -> Any:
    words = ["node", str(inspector), "--cli", *target, *options]
    ended = subprocess.run(
        words, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def test_the_inspector_lists_the_tools(inspector: Path, workspace: Path) -> None:
    listed = inspect(
        inspector, _command(workspace, "--tools", "all"), "--method", "tools/list"
    )
    assert {
        "Bash",
        "terminal-run",
        "execute_command",
        "shell_execute",
        "run_command",
    } <= {tool["name"] for tool in listed["tools"]}
    assert all(tool["inputSchema"]["type"] == "object" for tool in listed["tools"])


def test_the_inspector_calls_a_tool(inspector: Path, workspace: Path) -> None:
    call = [
        "--method",
        "tools/call",
        "--tool-name",
        "Bash",
        "--tool-arg",
        "command=echo hi > made; cat made",
    ]
    result = inspect(inspector, _command(workspace), *call)
    assert result["content"][0]["text"].strip() == "hi"
    assert result["structuredContent"]["metadata"]["exit_code"] == 0
    assert (workspace / "made").read_text() == "hi\n"


def test_the_inspector_gets_a_denial(inspector: Path, workspace: Path) -> None:
    call = [
        "--method",
        "tools/call",
        "--tool-name",
        "Bash",
        "--tool-arg",
        "command=rm -rf /",
    ]
    result = inspect(inspector, _command(workspace), *call)
    assert result["isError"] is True
    assert "blocked" in result["content"][0]["text"]


def test_the_inspector_calls_a_tool_over_http(inspector: Path, workspace: Path) -> None:
    call = [
        "--method",
        "tools/call",
        "--tool-name",
        "Bash",
        "--tool-arg",
        "command=echo hi",
    ]
    with serving(workspace, BELLJAR_MCP_TOKEN=TOKEN) as served:
        result = inspect(
            inspector, [served.url], "--header", f"Authorization: Bearer {TOKEN}", *call
        )
    assert result["content"][0]["text"].strip() == "hi"


def _command(workspace: Path, *options: str) -> list[str]:
    return [*COMMAND, "--workspace", str(workspace), *options]
