"""The structured content of a tool's answer.

Models read the text of an answer, so the text always has the output. The structured content has the family's fields. An
output longer than LONGEST_TWICE is left out of it if the text has it.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import Field

from belljar import codec

LONGEST_TWICE = 1000
"""Output up to so many characters is sent in both, for clients that read only one of them."""

_LEFT_OUT = (
    f"left out where it is longer than {LONGEST_TWICE} characters: the text has it"
)
_Output = Annotated[str | None, Field(description=f"what it printed; {_LEFT_OUT}")]
_Code = Annotated[int | None, Field(description="the command's exit status")]
_Error = Annotated[str | None, Field(description="why the call failed")]
_More = Annotated[
    dict[str, Any],
    Field(description="command, exit code, duration, verdict … of the call"),
]
_Problems = Annotated[
    list[Any], Field(description="wrong parameters: parameter, message, code")
]
_BASH: dict[str, Any] = {
    "success": bool,
    "output": _Output,
    "error": _Error,
    "metadata": _More,
}
_FIELDS: dict[str, dict[str, Any]] = {
    "terminal-run": {
        "success": bool,
        "content": _Output,
        "message": str | None,
        "data": _More,
        "errors": _Problems,
    },
    "execute_command": {
        "status": Literal["success", "error", "timeout"],
        "output": _Output,
        "error": _Error,
        "exit_code": _Code,
        "metadata": _More,
    },
    "shell_execute": {"content": list[Any], "is_error": bool, "metadata": _More},
    "run_command": {"exit_code": _Code, "stdout": _Output, "stderr": _Output},
}


def output_schema(tool: str) -> dict[str, Any]:
    """The schema of the structured content. No field is required, since long ones may be left out."""
    return codec.schema(
        codec.shape("the call's result", optional=_FIELDS.get(tool, _BASH))
    )


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
    return (
        value in text
        or json.dumps(value)[1:-1] in text
        or json.dumps(value, ensure_ascii=False)[1:-1] in text
    )
