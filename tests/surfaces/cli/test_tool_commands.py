"""Tools from the command line."""

from __future__ import annotations

import json

import pytest
from tests.surfaces.cli.test_session_commands import session as session
from tests.surfaces.invoking import belljar

from belljar.surfaces.cli.main import main


def test_tools_are_listed_and_described(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tools"]) == 0
    listed = capsys.readouterr().out
    assert "KillShell" in listed
    assert "functions and options hold from one call to the next." in listed, (
        "a whole sentence"
    )
    assert main(["tools", "--format", "openai"]) == 0
    assert {each["type"] for each in json.loads(capsys.readouterr().out)} == {
        "function"
    }


def test_a_tool_call_can_go_to_a_session(session: str) -> None:
    answer = belljar(
        "call",
        "Bash",
        '{"command": "echo tool > /tmp/tool; cat /tmp/tool"}',
        "--session",
        session,
    )
    assert (answer.status, answer.stdout.strip()) == (0, "tool")
    assert belljar("run", "--session", session, "cat /tmp/tool").stdout == "tool\n"


@pytest.mark.parametrize(
    ("tool", "parameters", "status"),
    [
        ("Bash", {"command": "exit 3"}, 3),
        ("Bash", {"command": "rm -rf /"}, 126),
        ("Bash", {"comand": "ls"}, 2),
        ("Bash", [], 2),
        ("run_command", {"command": "true"}, 0),
    ],
)
def test_a_tool_call_s_exit_status_follows_its_result(
    session: str, tool: str, parameters: object, status: int
) -> None:
    answer = belljar(
        "call", tool, json.dumps(parameters), "--session", session, "--json"
    )
    assert answer.status == status
    assert isinstance(answer.json, dict)


def test_secrets_of_a_tool_call_are_masked(session: str) -> None:
    parameters = {
        "command": "echo $API_KEY",
        "environment": {"API_KEY": "hunter2secret"},
    }
    answer = belljar(
        "call", "terminal-run", json.dumps(parameters), "--session", session, "--json"
    )
    assert "hunter2secret" not in answer.stdout
    assert "***" in answer.stdout


def test_parameters_may_be_written_as_name_equals_value(session: str) -> None:
    answer = belljar(
        "call",
        "--session",
        session,
        "Bash",
        "command=echo a=b $((6 * 7))",
        "timeout=5000",
    )
    assert (answer.status, answer.stdout.strip()) == (0, "a=b 42")


@pytest.mark.parametrize(
    "words",
    [["ls"], ["{command: ls}"], ["command=ls", "fast"], ["command=ls", "timeout=soon"]],
)
def test_an_invalid_parameter_is_answered_with_an_example(words: list[str]) -> None:
    refused = belljar("call", "Bash", *words)
    assert refused.status == 2
    assert (
        """write for example command=ls, or '{"command": "ls"}'""" in refused.complaint
    )


def test_a_value_of_the_wrong_kind_is_answered_with_the_kind() -> None:
    refused = belljar("call", "Bash", "command=ls", "timeout=soon")
    assert "timeout=soon: timeout takes JSON here (integer)" in refused.complaint
