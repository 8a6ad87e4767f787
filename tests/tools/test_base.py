"""What all tools share."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from pydantic import Field
from tests.tools.test_registry import NAMES, registry

from belljar import Session, ToolRegistry
from belljar.tools.base import Tool, truncate
from belljar.tools.parameters import Params, Text


@pytest.mark.parametrize("name", NAMES)
async def test_without_a_session_a_call_says_so(name: str) -> None:
    given = {
        "BashOutput": {"bash_id": "shell_1"},
        "KillShell": {"shell_id": "shell_1"},
        "ListShells": {},
    }
    result = await registry.call(name, given.get(name, {"command": "ls"}))
    assert not registry.available(name)
    assert not result.success
    assert result.error is not None
    assert result.error.startswith("No active terminal session")
    assert "No active terminal session" in result.text


@pytest.mark.parametrize(
    "name", ["terminal-run", "Bash", "execute_command", "shell_execute", "run_command"]
)
async def test_a_dry_run_runs_nothing_and_still_refuses(name: str) -> None:
    rehearsal = ToolRegistry(dry_run=True)
    result = await rehearsal.call(name, {"command": "ls"})
    assert result.success
    shape = result.as_dict()
    assert "[Dry Run] Would execute: ls" in str(shape)
    assert shape.get("status", "success") == "success"
    assert shape.get("exit_code") in (0, None)
    refused = (
        {"command": "rm", "args": ["-rf", "/"]}
        if "_command" in name
        else {"command": "rm -rf /"}
    )
    assert not (await rehearsal.call(name, refused)).success


@pytest.mark.parametrize(
    ("name", "params", "summary"),
    [
        ("terminal-run", {"command": "x" * 60}, "Run: " + "x" * 60),
        ("terminal-run", {"command": "x" * 61}, "Run: " + "x" * 57 + "..."),
        ("Bash", {}, "Run: "),
        ("BashOutput", {"bash_id": "shell_1"}, "Read output of shell_1"),
        ("KillShell", {"shell_id": "shell_1"}, "Kill shell_1"),
        ("ListShells", {}, "List shells"),
    ],
)
def test_a_call_has_a_summary_before_it_is_made(
    name: str, params: dict[str, Any], summary: str
) -> None:
    assert registry.summary(name, params) == summary


def test_file_and_staged_calls_have_a_summary_too() -> None:
    on_request = ToolRegistry(families=("files", "staged"))
    assert on_request.summary("apply_changes", {}) == "Apply changes"
    assert on_request.summary("read_file", {"path": "app.py"}) == "Read file: app.py"


@pytest.mark.parametrize(
    ("name", "params", "risk"),
    [
        ("terminal-run", {"command": "ls"}, "high"),
        ("terminal-run", {"command": "rm -rf /"}, "blocked"),
        ("terminal-run", {}, "high"),
        ("Bash", {"command": "ls"}, "low"),
        ("Bash", {"command": "rm -rf /"}, "blocked"),
        ("Bash", {"command": 5}, "high"),
        ("BashOutput", {"bash_id": "x"}, "low"),
        ("KillShell", {"shell_id": "x"}, "medium"),
        ("execute_command", {"command": "curl", "args": ["x"]}, "blocked"),
        ("run_command", {"command": "rm", "args": ["-rf", "/"]}, "blocked"),
    ],
)
def test_a_call_has_a_risk_before_it_is_made(
    name: str, params: dict[str, Any], risk: str
) -> None:
    assert registry.risk(name, params) == risk


@pytest.mark.parametrize("limit", [60, 61, 100, 1000])
def test_truncation_keeps_head_and_tail_within_the_limit(limit: int) -> None:
    text = "".join(chr(0x1F600 + i % 50) for i in range(5000))
    cut, truncated = truncate(text, limit)
    assert truncated
    assert len(cut) <= limit
    head, _, rest = cut.partition("\n[... ")
    missing, _, tail = rest.partition(" characters truncated ...]\n")
    assert text.startswith(head)
    assert text.endswith(tail)
    assert len(head) + len(tail) + int(missing) >= len(text)


def test_what_fits_is_not_truncated() -> None:
    assert truncate("abc", 3) == ("abc", False)


@pytest.mark.engine
async def test_the_example_of_a_tool_works_and_is_judged(
    box: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    class CountParams(Params):
        path: Text = Field(description="The file")

    example = inspect.getdoc(Tool)
    assert example is not None
    made: dict[str, Any] = {"Tool": Tool, "CountParams": CountParams}
    exec(example[example.index("class CountWords") :], made)
    await box.files.write("three.txt", "one two three\n")
    tools = ToolRegistry(box)
    tools.register(made["CountWords"])
    assert (await tools.call("count_words", {"path": "three.txt"})).text.split()[
        0
    ] == "3"
    assert not (await tools.call("count_words", {"path": "missing.txt"})).success
    assert tools.risk("count_words", {"path": "three.txt"}) == "low"
    rehearsal = made["CountWords"](box, dry_run=True)
    assert "wc -w three.txt" in (await rehearsal.call({"path": "three.txt"})).text
    monkeypatch.setattr(
        made["CountWords"], "command", lambda tool, params: ["rm", "-rf", "/"]
    )
    assert (
        await tools.call("count_words", {"path": "three.txt"})
    ).code == "policy_denied"
