"""The tools, blocking."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from belljar import host as hosts
from belljar.errors import UsageError
from belljar.sync.facade import Facade, blocking, same
from belljar.sync.loop import Loop
from belljar.sync.session import Session
from belljar.tools import registry
from belljar.tools.base import Tool


class ToolRegistry(Facade[registry.ToolRegistry]):
    """The tools of one session.

    tools = belljar.sync.ToolRegistry(box)
    print(tools.call("Bash", {"command": "ls"}).text)
    """

    def __init__(
        self,
        box: Session | None = None,
        *,
        dry_run: bool = False,
        config: Mapping[str, Mapping[str, Any]] | None = None,
        families: tuple[str, ...] = tuple(registry.FAMILIES),
    ) -> None:
        if box is not None and not isinstance(box, Session):
            raise UsageError("belljar.sync.ToolRegistry takes a belljar.sync.Session")
        self.box = box
        loop, session = (
            (box._loop, box._of) if box is not None else (Loop(hosts.default()), None)
        )
        super().__init__(
            loop,
            registry.ToolRegistry(
                session, dry_run=dry_run, config=config, families=families
            ),
        )

    register = same(registry.ToolRegistry.register)
    get = same(registry.ToolRegistry.get)
    names = same(registry.ToolRegistry.names)
    list = same(registry.ToolRegistry.list)
    schemas = same(registry.ToolRegistry.schemas)
    call = blocking(registry.ToolRegistry.call)
    summary = same(registry.ToolRegistry.summary)
    risk = same(registry.ToolRegistry.risk)
    available = same(registry.ToolRegistry.available)

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._of)

    def __contains__(self, name: object) -> bool:
        return name in self._of
