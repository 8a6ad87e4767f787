"""Parameters are checked, and all mistakes are reported at once."""

from __future__ import annotations

from typing import Any

import pytest
from tests.tools.test_registry import registry, schemas_by_name


def test_the_schema_holds_the_documents_numbers() -> None:
    schemas = schemas_by_name("anthropic")
    assert schemas["Bash"]["properties"]["timeout"] == {
        "type": "integer", "default": 120000, "minimum": 1000, "maximum": 600000,
        "description": "Timeout in milliseconds (max 600000)",
    }  # fmt: skip
    assert schemas["terminal-run"]["properties"]["timeout_seconds"]["default"] == 120
    assert "maximum" not in schemas["terminal-run"]["properties"]["timeout_seconds"], (
        "it is clamped, not refused"
    )
    seconds = schemas["shell_execute"]["properties"]["timeout"]
    assert (seconds["default"], seconds["minimum"], seconds["maximum"]) == (
        300,
        1,
        1800,
    )
    assert schemas["run_command"]["properties"]["timeout"]["default"] == 60000
    assert schemas["execute_command"]["required"] == ["command"]


@pytest.mark.parametrize(
    ("name", "params", "wrong"),
    [
        (
            "Bash",
            {"command": " ", "timeout": 999, "colour": "red"},
            {"command", "timeout", "colour"},
        ),
        (
            "Bash",
            {"command": 5, "timeout": "1000", "run_in_background": "yes"},
            {"command", "timeout", "run_in_background"},
        ),
        (
            "Bash",
            {"command": "true", "timeout": 600_001, "yield_after": -1},
            {"timeout", "yield_after"},
        ),
        ("BashOutput", {"shell_id": "x"}, {"bash_id", "shell_id"}),
        ("KillShell", {}, {"shell_id"}),
        (
            "terminal-run",
            {"timeout_seconds": 0, "environment": {"A": 1}},
            {"command", "timeout_seconds", "environment.A"},
        ),
        (
            "execute_command",
            {"command": "", "args": ["ok", 5], "timeout": 0},
            {"command", "args.1", "timeout"},
        ),
        (
            "shell_execute",
            {"command": "", "timeout": 1801, "environment": []},
            {"command", "timeout", "environment"},
        ),
        ("run_command", {"args": "x", "timeout": True}, {"command", "args", "timeout"}),
        ("run_command", ["ls"], {""}),
        ("run_command", {"command": "\ud800"}, {"command"}),
    ],
)
async def test_a_bad_call_names_every_wrong_parameter_at_once(
    name: str, params: Any, wrong: set[str]
) -> None:
    result = await registry.call(name, params)
    assert not result.success
    assert {problem.parameter for problem in result.problems} == wrong
    assert all(parameter in str(result.as_dict()) for parameter in wrong)


async def test_a_null_counts_as_not_given_and_a_whole_float_as_an_integer() -> None:
    result = await registry.call(
        "Bash", {"command": "true", "timeout": 5000.0, "description": None}
    )
    assert result.problems == []
    assert [
        p.code for p in (await registry.call("Bash", {"command": None})).problems
    ] == ["REQUIRED"]
    assert [
        p.code
        for p in (await registry.call("Bash", {"command": "x", "what": None})).problems
    ] == ["UNKNOWN_PARAMETER"]
