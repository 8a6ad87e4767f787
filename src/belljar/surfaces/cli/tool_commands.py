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
        (tool["name"], family, tool["description"].split("\n")[0])
        for family in ALL
        for tool in ToolRegistry(families=(family,)).schemas("anthropic")
    ]
    console.table(rows, "TOOL", "FAMILY", "WHAT IT DOES")
    console.note(f"{' and '.join(ON_REQUEST)} are served on request: `belljar mcp --tools bash,files`")
    return 0


async def call(args: Namespace) -> int:
    try:
        parameters = json.loads(args.parameters)
    except ValueError as error:
        raise UsageError(f"the parameters are not JSON: {error}") from None
    ToolRegistry(families=ALL).get(args.tool)
    async with opened(args, approve=asking.whoever_sits_here(args)) as box:
        result = await ToolRegistry(box, families=ALL).call(args.tool, parameters)
    console.answer(args, _known(parameters).hide(result.as_dict()), result.text)
    return _status(result)


def _known(parameters: Any) -> masking.Known:
    if not isinstance(parameters, dict):
        return masking.Known()
    env = parameters.get("environment")
    return masking.Known(str(parameters.get("command", "")), env if isinstance(env, dict) else None)


def _status(result: ToolResult) -> int:
    if result.success:
        return 0
    if result.result is not None:
        return result.result.exit_code or 1
    if "verdict" in result.metadata:
        return PolicyDenied.exit_status
    return UsageError.exit_status if result.problems else 1
