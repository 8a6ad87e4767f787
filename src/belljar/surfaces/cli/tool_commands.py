"""`belljar tools` and `belljar call`"""

from __future__ import annotations

import json
from argparse import Namespace
from typing import Any

from belljar.audit import masking
from belljar.errors import PolicyDenied, UsageError
from belljar.surfaces.cli import asking, console
from belljar.surfaces.cli.open_session import opened
from belljar.tools import ToolRegistry
from belljar.tools.base import ToolResult
from belljar.tools.registry import FAMILIES, ON_REQUEST

ALL = (*FAMILIES, *ON_REQUEST)


def tools(args: Namespace) -> int:
    if args.format or args.json:
        console.document(ToolRegistry().schemas(args.format or "anthropic"))
        return 0
    rows = [
        (
            tool["name"],
            family,
            tool["description"].partition("\n\n")[0].replace("\n", " "),
        )
        for family in ALL
        for tool in ToolRegistry(families=(family,)).schemas("anthropic")
    ]
    console.table(rows, "TOOL", "FAMILY", "WHAT IT DOES")
    console.note(
        f"{' and '.join(ON_REQUEST)} are served on request: `belljar mcp --tools bash,files`"
    )
    return 0


async def call(args: Namespace) -> int:
    parameters = _parameters(
        args.parameters, ToolRegistry(families=ALL).get(args.tool).schema()
    )
    async with opened(args, approve=asking.terminal_approver(args)) as box:
        result = await ToolRegistry(box, families=ALL).call(args.tool, parameters)
    console.answer(args, _known(parameters).hide(result.as_dict()), result.text)
    return _status(result)


def _parameters(words: list[str], schema: dict[str, Any]) -> Any:
    """Parameters from one JSON object or from NAME=VALUE words. A value is JSON unless the parameter is a text."""
    if len(words) == 1 and (words[0].lstrip()[:1] in ("{", "[") or "=" not in words[0]):
        return _json(words[0], f"{words[0]!r} is not JSON", schema)
    if unknown := [word for word in words if "=" not in word]:
        raise UsageError(f"{unknown[0]!r} is not a parameter; {_example(schema)}")
    return {
        name: _value(name, text, schema)
        for name, text in (word.split("=", 1) for word in words)
    }


def _value(name: str, text: str, schema: dict[str, Any]) -> Any:
    kind = schema["properties"].get(name, {}).get("type", "string")
    return (
        text
        if kind == "string"
        else _json(text, f"{name}={text}: {name} takes JSON here ({kind})", schema)
    )


def _json(text: str, complaint: str, schema: dict[str, Any]) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise UsageError(f"{complaint}; {_example(schema)}") from None


def _example(schema: dict[str, Any]) -> str:
    name = next(iter(schema.get("required") or schema["properties"]), "NAME")
    return f"""write for example {name}=ls, or '{{"{name}": "ls"}}'"""


def _known(parameters: Any) -> masking.Known:
    if not isinstance(parameters, dict):
        return masking.Known()
    env = parameters.get("environment")
    return masking.Known(
        str(parameters.get("command", "")), env if isinstance(env, dict) else None
    )


def _status(result: ToolResult) -> int:
    if result.success:
        return 0
    if result.result is not None:
        return result.result.exit_code or 1
    if "verdict" in result.metadata:
        return PolicyDenied.exit_status
    return UsageError.exit_status if result.problems else 1
