"""The shells that model APIs bring themselves: a model's call goes in as it came, what is sent back comes out.

    reply = await anthropic_bash(tools, block)      # a `tool_use` block of {"type": "bash_20250124", "name": "bash"}
    reply = await openai_shell(box, item)           # a `shell_call` or `local_shell_call` item

Both run in the sandbox, judged by its policy; a refusal is part of the reply.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from belljar.errors import BelljarError, UsageError
from belljar.session.result import Result
from belljar.session.session import Session
from belljar.tools.base import truncate
from belljar.tools.registry import ToolRegistry

ANTHROPIC_BASH = {"type": "bash_20250124", "name": "bash"}
"""What `tools=[…]` of the Messages API takes."""
OPENAI_SHELL = {"type": "shell"}
"""What `tools=[…]` of the Responses API takes."""
TIMEOUT_MS = 120_000
MAX_OUTPUT = 30_000
RESTARTED = "The shell was restarted."


async def anthropic_bash(tools: ToolRegistry, call: Mapping[str, Any]) -> dict[str, Any]:
    """The `tool_result` block for a `tool_use` block: in the persistent shell, or that shell anew."""
    given = _part(call, "input")
    if given.get("restart") is True and tools.box is not None:
        await tools.box.persistent.restart()
        return _tool_result(call, RESTARTED, error=False)
    result = await tools.call("Bash", {name: value for name, value in given.items() if name != "restart"})
    return _tool_result(call, result.text or "(no output)", error=not result.success)


def _tool_result(call: Mapping[str, Any], text: str, *, error: bool) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call.get("id"), "content": text, "is_error": error}


async def openai_shell(box: Session, call: Mapping[str, Any]) -> dict[str, Any]:
    """The output item for a `shell_call` (texts, one after the other) or a `local_shell_call` (an argument vector)."""
    action = _part(call, "action")
    if call.get("type") == "local_shell_call":
        output = await _one(box, action.get("command"), action, cwd=action.get("working_directory"))
        said = output["stdout"] + output["stderr"]
        return {"type": "local_shell_call_output", "call_id": call.get("call_id"), "output": said or "(no output)"}
    commands = action.get("commands")
    if not isinstance(commands, list):
        raise UsageError("the action of a shell_call must have a list of commands")
    outputs = [await _one(box, command, action) for command in commands]
    reply = {"type": "shell_call_output", "call_id": call.get("call_id"), "output": outputs}
    longest = action.get("max_output_length")
    return reply if longest is None else {**reply, "max_output_length": longest}


async def _one(box: Session, command: Any, action: Mapping[str, Any], cwd: str | None = None) -> dict[str, Any]:
    timeout = (action.get("timeout_ms") or TIMEOUT_MS) / 1000
    try:
        result = await box.run(command, timeout=timeout, env=action.get("env"), cwd=cwd)
    except BelljarError as refusal:
        return {"stdout": "", "stderr": str(refusal), "outcome": {"type": "exit", "exit_code": refusal.exit_status}}
    longest = action.get("max_output_length") or MAX_OUTPUT
    hints = "".join(f"\nHint: {hint}" for hint in result.hints_for("agent"))
    return {
        "stdout": truncate(result.stdout, longest)[0],
        "stderr": truncate(result.stderr, longest)[0] + hints,
        "outcome": _outcome(result),
    }


def _outcome(result: Result) -> dict[str, Any]:
    if result.cause == "timeout":
        return {"type": "timeout"}
    return {"type": "exit", "exit_code": result.exit_code}


def _part(call: Any, name: str) -> Mapping[str, Any]:
    part = call.get(name) if isinstance(call, Mapping) else None
    if not isinstance(part, Mapping):
        raise UsageError(f"the call must have an object {name!r}")
    return part
