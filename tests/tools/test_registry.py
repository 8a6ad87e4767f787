"""The registry: look up, describe, and refuse a wrong call with everything that is wrong about it."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import jsonschema
import pytest

from belljar import ToolRegistry
from belljar.errors import UsageError
from belljar.tools import Tool, ToolResult
from belljar.tools.base import Call, truncate
from belljar.tools.parameters import Params

NAMES = [
    "terminal-run", "Bash", "BashOutput", "KillShell", "ListShells", "execute_command", "shell_execute", "run_command",
]  # fmt: skip
SCHEMA = {"anthropic": "input_schema", "openai": "parameters", "mcp": "inputSchema"}

registry = ToolRegistry()


def schemas_by_name(format: str) -> dict[str, dict[str, Any]]:
    made = [entry.get("function", entry) for entry in registry.schemas(format)]  # type: ignore[arg-type]
    return {entry["name"]: entry[SCHEMA[format]] for entry in made}


def test_all_tools_are_registered_in_one_registry() -> None:
    assert list(registry.names()) == NAMES
    assert [tool.name for tool in registry] == NAMES
    assert [tool.name for tool in registry.list()] == NAMES
    assert "Bash" in registry
    assert registry.get("terminal-run").title == "Run Command"


@pytest.mark.parametrize("format", SCHEMA)
def test_every_schema_is_valid_and_describes_every_parameter(format: str) -> None:
    schemas = schemas_by_name(format)
    assert list(schemas) == NAMES
    for name, schema in schemas.items():
        jsonschema.Draft202012Validator.check_schema(schema)
        assert schema["additionalProperties"] is False
        for parameter, shape in schema["properties"].items():
            assert shape.get("description"), f"{name}.{parameter}"
            assert shape.get("type"), f"{name}.{parameter}"
            assert not shape.keys() & {"anyOf", "title", "ge", "le"}, f"{name}.{parameter}"


def test_openai_tools_are_functions() -> None:
    assert {entry["type"] for entry in registry.schemas("openai")} == {"function"}


def test_the_schema_holds_the_documents_numbers() -> None:
    schemas = schemas_by_name("anthropic")
    assert schemas["Bash"]["properties"]["timeout"] == {
        "type": "integer", "default": 120000, "minimum": 1000, "maximum": 600000,
        "description": "Timeout in milliseconds (max 600000)",
    }  # fmt: skip
    assert schemas["terminal-run"]["properties"]["timeout_seconds"]["default"] == 120
    assert "maximum" not in schemas["terminal-run"]["properties"]["timeout_seconds"], "it is clamped, not refused"
    seconds = schemas["shell_execute"]["properties"]["timeout"]
    assert (seconds["default"], seconds["minimum"], seconds["maximum"]) == (300, 1, 1800)
    assert schemas["run_command"]["properties"]["timeout"]["default"] == 60000
    assert schemas["execute_command"]["required"] == ["command"]


@pytest.mark.parametrize(
    ("name", "params", "wrong"),
    [
        ("Bash", {"command": " ", "timeout": 999, "colour": "red"}, {"command", "timeout", "colour"}),
        (
            "Bash",
            {"command": 5, "timeout": "1000", "run_in_background": "yes"},
            {"command", "timeout", "run_in_background"},
        ),
        ("Bash", {"command": "true", "timeout": 600_001, "yield_after": -1}, {"timeout", "yield_after"}),
        ("BashOutput", {"shell_id": "x"}, {"bash_id", "shell_id"}),
        ("KillShell", {}, {"shell_id"}),
        (
            "terminal-run",
            {"timeout_seconds": 0, "environment": {"A": 1}},
            {"command", "timeout_seconds", "environment.A"},
        ),
        ("execute_command", {"command": "", "args": ["ok", 5], "timeout": 0}, {"command", "args.1", "timeout"}),
        ("shell_execute", {"command": "", "timeout": 1801, "environment": []}, {"command", "timeout", "environment"}),
        ("run_command", {"args": "x", "timeout": True}, {"command", "args", "timeout"}),
        ("run_command", ["ls"], {""}),
        ("run_command", {"command": "\ud800"}, {"command"}),
    ],
)
async def test_a_bad_call_names_every_wrong_parameter_at_once(name: str, params: Any, wrong: set[str]) -> None:
    result = await registry.call(name, params)
    assert not result.success
    assert {problem.parameter for problem in result.problems} == wrong
    assert all(parameter in str(result.as_dict()) for parameter in wrong)


async def test_a_null_counts_as_not_given_and_a_whole_float_as_an_integer() -> None:
    result = await registry.call("Bash", {"command": "true", "timeout": 5000.0, "description": None})
    assert result.problems == []
    assert [p.code for p in (await registry.call("Bash", {"command": None})).problems] == ["REQUIRED"]
    assert [p.code for p in (await registry.call("Bash", {"command": "x", "what": None})).problems] == [
        "UNKNOWN_PARAMETER"
    ]


@pytest.mark.parametrize("name", NAMES)
async def test_without_a_session_a_call_says_so(name: str) -> None:
    given = {"BashOutput": {"bash_id": "shell_1"}, "KillShell": {"shell_id": "shell_1"}, "ListShells": {}}
    result = await registry.call(name, given.get(name, {"command": "ls"}))
    assert not registry.available(name)
    assert not result.success
    assert result.error is not None
    assert result.error.startswith("No active terminal session")
    assert "No active terminal session" in result.text


@pytest.mark.parametrize("name", ["terminal-run", "Bash", "execute_command", "shell_execute", "run_command"])
async def test_a_dry_run_runs_nothing_and_still_refuses(name: str) -> None:
    rehearsal = ToolRegistry(dry_run=True)
    result = await rehearsal.call(name, {"command": "ls"})
    assert result.success
    shape = result.as_dict()
    assert "[Dry Run] Would execute: ls" in str(shape)
    assert shape.get("status", "success") == "success"
    assert shape.get("exit_code") in (0, None)
    refused = {"command": "rm", "args": ["-rf", "/"]} if "_command" in name else {"command": "rm -rf /"}
    assert not (await rehearsal.call(name, refused)).success


async def test_an_unknown_tool_format_family_or_configuration_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="choose from terminal-run, Bash"):
        await registry.call("Basho", {})
    with pytest.raises(UsageError, match="anthropic, openai, mcp"):
        registry.schemas("xml")  # type: ignore[arg-type]
    with pytest.raises(UsageError):
        ToolRegistry(families=("fish",))
    with pytest.raises(UsageError):
        ToolRegistry(config={"fish": {}})
    with pytest.raises(UsageError, match="max_concurrent"):
        ToolRegistry(config={"execute_command": {"max_concurrent": 0}})


def test_only_the_families_asked_for_are_there() -> None:
    assert list(ToolRegistry(families=("run_command", "shell_execute")).names()) == ["run_command", "shell_execute"]


class _Hello(Tool):
    name = "hello"
    title = description = "Says hello"
    Params = Params

    async def execute(self, params: Params, call: Call) -> ToolResult:  # type: ignore[valid-type]
        return ToolResult(True, "hello")


def test_a_host_may_register_a_tool_of_its_own_once() -> None:
    own = ToolRegistry()
    own.register(_Hello())
    assert own.get("hello").schema()["properties"] == {}
    with pytest.raises(UsageError, match="already"):
        own.register(_Hello())


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
def test_a_call_can_be_summed_up_before_it_is_made(name: str, params: dict[str, Any], summary: str) -> None:
    assert registry.summary(name, params) == summary


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
def test_a_call_has_a_risk_before_it_is_made(name: str, params: dict[str, Any], risk: str) -> None:
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


def test_schemas_need_no_engine() -> None:
    code = "import sys, belljar; belljar.ToolRegistry().schemas('mcp'); sys.exit('docker' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
