"""The tools, blocking."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from belljar import host as hosts
from belljar.errors import UsageError
from belljar.sync.loop import Loop
from belljar.sync.session import Session
from belljar.tools import registry

if TYPE_CHECKING:
    from belljar.session.result import Output
    from belljar.tools.base import Tool, ToolResult


class ToolRegistry:
    """The tools of one session.

    tools = belljar.sync.ToolRegistry(box)
    print(tools.call("Bash", {"command": "ls"}).text)
    """

    def __init__(
        self, box: Session | None = None, *, dry_run: bool = False,
        config: Mapping[str, Mapping[str, Any]] | None = None, families: tuple[str, ...] = tuple(registry.FAMILIES),
    ) -> None:  # fmt: skip
        if box is not None and not isinstance(box, Session):
            raise UsageError("belljar.sync.ToolRegistry takes a belljar.sync.Session")
        self.box = box
        self._loop = box._loop if box is not None else Loop(hosts.default())
        session = box._session if box is not None else None
        self._tools = registry.ToolRegistry(session, dry_run=dry_run, config=config, families=families)

    def register(self, tool: Tool) -> None:
        self._tools.register(tool)

    def get(self, name: str) -> Tool:
        return self._tools.get(name)

    def names(self) -> Sequence[str]:
        return self._tools.names()

    def list(self) -> Sequence[Tool]:
        return self._tools.list()

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools)

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def schemas(self, format: registry.Format = "anthropic") -> registry.Schemas:
        """What a model is told of them."""
        return self._tools.schemas(format)

    def call(
        self, name: str, params: Mapping[str, Any] | None = None, *,
        on_output: Callable[[Output], None] | None = None,
    ) -> ToolResult:  # fmt: skip
        """One call to its end. Wrong parameters, refusals and failures are results too; only an unknown tool raises."""
        return self._loop.call(self._tools.call, name, params, on_output=on_output)

    def summary(self, name: str, params: Mapping[str, Any]) -> str:
        return self._tools.summary(name, params)

    def risk(self, name: str, params: Mapping[str, Any]) -> str:
        """The risk of a call, before it is made."""
        return self._tools.risk(name, params)

    def available(self, name: str) -> bool:
        return self._tools.available(name)
