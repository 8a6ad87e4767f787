"""The registry of tools: look up, describe, and refuse a wrong call with all its mistakes."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import jsonschema
import pytest

from belljar import ToolRegistry
from belljar.errors import UsageError
from belljar.tools import Tool, ToolResult
from belljar.tools.base import Call
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
            assert not shape.keys() & {"anyOf", "title", "ge", "le"}, (
                f"{name}.{parameter}"
            )


def test_openai_tools_are_functions() -> None:
    assert {entry["type"] for entry in registry.schemas("openai")} == {"function"}


async def test_an_unknown_tool_format_family_or_configuration_is_a_usage_error() -> (
    None
):
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
    assert list(ToolRegistry(families=("run_command", "shell_execute")).names()) == [
        "run_command",
        "shell_execute",
    ]


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


def test_schemas_need_no_engine() -> None:
    code = "import sys, belljar; belljar.ToolRegistry().schemas('mcp'); sys.exit('docker' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
