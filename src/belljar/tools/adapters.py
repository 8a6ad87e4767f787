"""Adapters for the shell tools that model APIs define themselves: the model's call goes in, the API's reply comes out.

    reply = await anthropic_bash(tools, block)      # a `tool_use` block of {"type": "bash_20250124", "name": "bash"}
    reply = await openai_shell(box, item)           # a `shell_call` or `local_shell_call` item

Both run in the sandbox under its policy. A refusal is part of the reply.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from belljar.errors import BelljarError, UsageError
from belljar.session.session import Session
from belljar.tools.base import truncate
from belljar.tools.registry import ToolRegistry

ANTHROPIC_BASH = {"type": "bash_20250124", "name": "bash"}
"""The entry for `tools=[…]` of the Messages API."""
OPENAI_SHELL = {"type": "shell"}
"""The entry for `tools=[…]` of the Responses API."""
TIMEOUT_MS = 120_000
MAX_OUTPUT = 30_000
RESTARTED = "The shell was restarted."


async def anthropic_bash(
    tools: ToolRegistry, call: Mapping[str, Any]
) -> dict[str, Any]:
    """The `tool_result` block for a `tool_use` block: runs a command in the persistent shell, or restarts the shell."""
    parameters = _part(call, "input")
    if parameters.get("restart") is True and tools.box is not None:
        await tools.box.persistent.restart()
        return _tool_result(call, RESTARTED, error=False)
    result = await tools.call(
        "Bash", {name: value for name, value in parameters.items() if name != "restart"}
    )
    return _tool_result(call, result.text or "(no output)", error=not result.success)


def _tool_result(call: Mapping[str, Any], text: str, *, error: bool) -> dict[str, Any]:
    return {
        "type": "tool_result",
        "tool_use_id": call.get("id"),
        "content": text,
        "is_error": error,
    }


async def openai_shell(box: Session, call: Mapping[str, Any]) -> dict[str, Any]:
    """The output item for a `shell_call` (a list of bash texts) or a `local_shell_call` (an argument vector)."""
    action = _part(call, "action")
    if call.get("type") == "local_shell_call":
        result = await _run(
            box, action.get("command"), action, cwd=action.get("working_directory")
        )
        output = result["stdout"] + result["stderr"] or "(no output)"
        return {
            "type": "local_shell_call_output",
            "call_id": call.get("call_id"),
            "output": output,
        }
    commands = action.get("commands")
    if not isinstance(commands, list):
        raise UsageError("the action of a shell_call must have a list of commands")
    outputs = [await _run(box, command, action) for command in commands]
    reply = {
        "type": "shell_call_output",
        "call_id": call.get("call_id"),
        "output": outputs,
    }
    longest = action.get("max_output_length")
    return reply if longest is None else {**reply, "max_output_length": longest}


async def _run(
    box: Session, command: Any, action: Mapping[str, Any], cwd: str | None = None
) -> dict[str, Any]:
    timeout = (action.get("timeout_ms") or TIMEOUT_MS) / 1000
    try:
        result = await box.run(command, timeout=timeout, env=action.get("env"), cwd=cwd)
    except BelljarError as refusal:
        return {
            "stdout": "",
            "stderr": str(refusal),
            "outcome": {"type": "exit", "exit_code": refusal.exit_status},
        }
    longest = action.get("max_output_length") or MAX_OUTPUT
    hints = "".join(f"\nHint: {hint}" for hint in result.hints_for("agent"))
    timed_out = result.cause == "timeout"
    return {
        "stdout": truncate(result.stdout, longest)[0],
        "stderr": truncate(result.stderr, longest)[0] + hints,
        "outcome": {"type": "timeout"}
        if timed_out
        else {"type": "exit", "exit_code": result.exit_code},
    }


def _part(call: Any, name: str) -> Mapping[str, Any]:
    part = call.get(name) if isinstance(call, Mapping) else None
    if not isinstance(part, Mapping):
        raise UsageError(f"the call must have an object {name!r}")
    return part
