"""The registry of tools: find one, describe them to a model, call one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeVar

import anyio

from belljar.errors import UsageError
from belljar.session.result import Output
from belljar.session.session import Session
from belljar.tools.base import Call, Tool, ToolResult
from belljar.tools.bash import Bash, BashOutput, KillShell, ListShells
from belljar.tools.execute_command import ExecuteCommand
from belljar.tools.files import EditFile, ListFiles, ReadFile, SearchFiles, WriteFile
from belljar.tools.run_command import RunCommand
from belljar.tools.shell_execute import ShellExecute
from belljar.tools.staged import ApplyChanges, DiffChanges, DiscardChanges, ListChanges
from belljar.tools.terminal_run import TerminalRun

Format = Literal["anthropic", "openai", "mcp"]
Schemas = list[dict[str, Any]]
T = TypeVar("T")

FAMILIES: dict[str, tuple[type[Tool], ...]] = {
    "terminal-run": (TerminalRun,),
    "bash": (Bash, BashOutput, KillShell, ListShells),
    "execute_command": (ExecuteCommand,),
    "shell_execute": (ShellExecute,),
    "run_command": (RunCommand,),
}
"""The families that a registry has by default."""
ON_REQUEST: dict[str, tuple[type[Tool], ...]] = {
    "files": (ReadFile, WriteFile, EditFile, ListFiles, SearchFiles),
    "staged": (ListChanges, DiffChanges, ApplyChanges, DiscardChanges),
}


def chosen_families(option: str | None, *, staged: bool = False) -> tuple[str, ...]:
    """The families named in `--tools a,b`, by default the Bash family. A staged session adds its own."""
    known = [*FAMILIES, *ON_REQUEST]
    names = [name.strip() for name in (option or "bash").split(",")]
    if unknown := [name for name in names if name not in (*known, "all")]:
        raise UsageError(
            f"--tools: unknown: {', '.join(unknown)}; choose from {', '.join(known)}, all"
        )
    if "staged" in names and not staged:
        raise UsageError(
            "--tools staged: these are the tools of a staged session; add --staged"
        )
    if "all" in names:
        names = [name for name in known if name != "staged"]
    return tuple(dict.fromkeys((*names, "staged") if staged else names))


class ToolRegistry:
    """The tools of one session. Without a session it gives schemas and risks only.

    tools = belljar.ToolRegistry(box)
    await tools.call("Bash", {"command": "ls"})
    tools.schemas("anthropic")
    """

    def __init__(
        self,
        box: Session | None = None,
        *,
        dry_run: bool = False,
        config: Mapping[str, Mapping[str, Any]] | None = None,
        families: tuple[str, ...] = tuple(FAMILIES),
    ) -> None:
        if box is not None and not hasattr(box, "persistent"):
            raise UsageError(
                f"box: {box!r} is not a session; write belljar.ToolRegistry(box)"
            )
        if not isinstance(dry_run, bool) or isinstance(families, str):
            raise UsageError(
                "dry_run must be True or False, and families a tuple of names"
            )
        self.box = box
        self._tools: dict[str, Tool] = {}
        classes = [
            tool
            for family in families
            for tool in _lookup(family, FAMILIES | ON_REQUEST)
        ]
        for name in config or {}:
            _lookup(name, {tool.name: tool for tool in classes})
        for tool in classes:
            self.register(tool(box, (config or {}).get(tool.name), dry_run=dry_run))

    def register(self, tool: Tool | type[Tool]) -> None:
        """Add a tool of your own: `tools.register(MyTool)`."""
        tool = tool(self.box) if isinstance(tool, type) else tool
        if tool.name in self._tools:
            raise UsageError(f"a tool {tool.name} exists already")
        self._tools[tool.name] = tool

    def get(self, name: str) -> Tool:
        """One tool: `tools.get("Bash")`."""
        return _lookup(name, self._tools)

    def names(self) -> Sequence[str]:
        """`tools.names()` is ["terminal-run", "Bash", …]."""
        return [*self._tools]

    def list(self) -> Sequence[Tool]:
        """All tools: `for tool in tools.list(): print(tool.name, tool.description)`."""
        return [*self._tools.values()]

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def schemas(self, format: Format = "anthropic") -> Schemas:
        """What a model API takes as its tools: `tools.schemas("openai")`."""
        shape = _lookup(format, _SHAPES)
        return [shape(tool) for tool in self]

    async def call(
        self,
        name: str,
        params: Mapping[str, Any] | None = None,
        *,
        on_output: Callable[[Output], None] | None = None,
        abort: anyio.Event | None = None,
    ) -> ToolResult:
        """Call a tool. Wrong parameters, refusals and failures are results too; only an unknown tool raises.

        print((await tools.call("Bash", {"command": "ls"})).text)
        """
        return await self.get(name).call(
            {} if params is None else params, Call(on_output, abort)
        )

    def summary(self, name: str, params: Mapping[str, Any]) -> str:
        """A short description of a call: `tools.summary("Bash", {"command": "ls"})` is "Run: ls"."""
        return self.get(name).summary(params)

    def risk(self, name: str, params: Mapping[str, Any]) -> str:
        """The risk of a call before it is made: `tools.risk("Bash", {"command": "ls"})` is "low"."""
        return self.get(name).risk(params)

    def available(self, name: str) -> bool:
        """Whether a call could run now: `tools.available("Bash")`."""
        return self.get(name).is_available


def _lookup(name: str, known: Mapping[str, T]) -> T:
    if name not in known:
        raise UsageError(f"Unknown: {name}; choose from {', '.join(known)}")
    return known[name]


def _named(tool: Tool) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.described()}


_SHAPES: dict[str, Callable[[Tool], dict[str, Any]]] = {
    "anthropic": lambda tool: {**_named(tool), "input_schema": tool.schema()},
    "openai": lambda tool: {
        "type": "function",
        "function": {**_named(tool), "parameters": tool.schema()},
    },
    "mcp": lambda tool: {
        **_named(tool),
        "title": tool.title,
        "inputSchema": tool.schema(),
    },
}
