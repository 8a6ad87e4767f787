"""The shell tools of model APIs: their calls and replies in the APIs' own format."""

import pytest

from belljar import Session, ToolRegistry
from belljar.errors import UsageError
from belljar.tools.adapters import anthropic_bash, openai_shell


def use(**given: object) -> dict[str, object]:
    return {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": given}


async def test_anthropics_bash_is_the_persistent_shell(box: Session) -> None:
    tools = ToolRegistry(box)
    await anthropic_bash(tools, use(command="cd sub; export A=1"))
    reply = await anthropic_bash(tools, use(command="echo $A $PWD"))
    assert reply == {
        "type": "tool_result", "tool_use_id": "toolu_1", "content": "1 /workspace/sub\n", "is_error": False
    }  # fmt: skip
    assert "restarted" in (await anthropic_bash(tools, use(restart=True)))["content"]
    assert (await anthropic_bash(tools, use(command="echo $A $PWD")))[
        "content"
    ] == "/workspace\n"
    refused = await anthropic_bash(tools, use(command="rm -rf /"))
    assert refused["is_error"]
    assert "blocked" in refused["content"]
    assert (await anthropic_bash(tools, use()))["is_error"]
    assert (await anthropic_bash(tools, use(command="true")))[
        "content"
    ] == "(no output)"


async def test_openais_shell_runs_each_command_and_returns_each_outcome(
    box: Session,
) -> None:
    action = {
        "commands": ["echo out; echo err >&2; exit 3", "sleep 60", "rm -rf /"],
        "timeout_ms": 500,
    }
    reply = await openai_shell(
        box, {"type": "shell_call", "call_id": "call_1", "action": action}
    )
    assert (reply["type"], reply["call_id"]) == ("shell_call_output", "call_1")
    first, second, third = reply["output"]
    assert first == {
        "stdout": "out\n",
        "stderr": "err\n",
        "outcome": {"type": "exit", "exit_code": 3},
    }
    assert second["outcome"] == {"type": "timeout"}
    assert third["outcome"] == {"type": "exit", "exit_code": 126}
    assert third["stderr"]


async def test_openais_output_is_as_long_as_it_asked_for(box: Session) -> None:
    action = {"commands": ["seq 10000"], "max_output_length": 1000}
    reply = await openai_shell(
        box, {"type": "shell_call", "call_id": "c", "action": action}
    )
    assert reply["max_output_length"] == 1000
    assert len(reply["output"][0]["stdout"]) <= 1000


async def test_openais_local_shell_is_an_argument_vector(box: Session) -> None:
    action = {
        "type": "exec",
        "command": ["sh", "-c", "echo $A; pwd"],
        "env": {"A": "1"},
        "working_directory": "sub",
    }
    reply = await openai_shell(
        box, {"type": "local_shell_call", "call_id": "c", "action": action}
    )
    assert reply == {
        "type": "local_shell_call_output",
        "call_id": "c",
        "output": "1\n/workspace/sub\n",
    }


@pytest.mark.parametrize(
    "call",
    [{}, {"action": None}, {"type": "shell_call", "action": {}}, "text"],
    ids=repr,
)
async def test_an_invalid_call_is_refused(box: Session, call: object) -> None:
    with pytest.raises(UsageError):
        await openai_shell(box, call)  # type: ignore[arg-type]


def test_descriptions_tell_what_the_sandbox_is(box: Session) -> None:
    described = {
        tool["name"]: tool["description"]
        for tool in ToolRegistry(box).schemas("anthropic")
    }
    for name in (
        "Bash",
        "terminal-run",
        "execute_command",
        "shell_execute",
        "run_command",
    ):
        assert "There is no network." in described[name], name
        assert f"{box.limits.memory >> 20} MiB" in described[name], name
        assert "Image: base" in described[name], name
        for untrue in ("dotnet", "integrated terminal", "specialized file tools"):
            assert untrue not in described[name], name
    assert "container" not in described["BashOutput"], "it runs nothing"
