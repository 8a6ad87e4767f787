"""The structured content of a tool's answer.

Models read the text of an answer, so the text always has the output. The structured content has the family's fields. An
output longer than LONGEST_TWICE is left out of it if the text has it.
"""

from __future__ import annotations

import json
from typing import Any

LONGEST_TWICE = 1000
"""Output up to so many characters is sent in both, for clients that read only one of them."""

_LEFT_OUT = f"left out where it is longer than {LONGEST_TWICE} characters: the text has it"
_OUTPUT = {"type": ["string", "null"], "description": f"what it printed; {_LEFT_OUT}"}
_CODE = {"type": ["integer", "null"], "description": "the command's exit status"}
_MORE = {"type": "object", "description": "command, exit code, duration, verdict … of the call"}
_BASH = {
    "success": {"type": "boolean"},
    "output": _OUTPUT,
    "error": {"type": ["string", "null"], "description": "why the call failed"},
    "metadata": _MORE,
}
_FIELDS: dict[str, dict[str, Any]] = {
    "terminal-run": {
        "success": {"type": "boolean"}, "content": _OUTPUT, "message": {"type": ["string", "null"]}, "data": _MORE,
        "errors": {"type": "array", "description": "wrong parameters: parameter, message, code"},
    },
    "execute_command": {
        "status": {"enum": ["success", "error", "timeout"]}, "output": _OUTPUT, "error": {"type": ["string", "null"]},
        "exit_code": _CODE, "metadata": _MORE,
    },
    "shell_execute": {"content": {"type": "array"}, "is_error": {"type": "boolean"}, "metadata": _MORE},
    "run_command": {"exit_code": _CODE, "stdout": _OUTPUT, "stderr": _OUTPUT},
}  # fmt: skip


def output_schema(tool: str) -> dict[str, Any]:
    """The schema of the structured content. No field is required, since long ones may be left out."""
    return {"type": "object", "properties": _FIELDS.get(tool, _BASH)}


def once(fields: dict[str, Any], text: str) -> dict[str, Any]:
    """`fields` without the long texts that are in `text`."""
    return {
        name: once(value, text) if isinstance(value, dict) else value
        for name, value in fields.items()
        if not _holds(text, value)
    }


def _holds(text: str, value: Any) -> bool:
    if not isinstance(value, str) or len(value) <= LONGEST_TWICE:
        return False
    return value in text or json.dumps(value)[1:-1] in text or json.dumps(value, ensure_ascii=False)[1:-1] in text
