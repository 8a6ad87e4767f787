"""The blocking API, with the same names: for programs that have no event loop.

    from belljar import sync
    with sync.Session(workspace=".") as box:
        result = box.run("make test", timeout=60)

Each host has one event loop, in a thread of its own, for all blocking calls from any thread. Callbacks (`approve`,
`on_output`) are called in that thread: they must not call this API.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from belljar import host as _hosts
from belljar.options import HERE as _HERE
from belljar.options import known as _known
from belljar.session import session as _sessions
from belljar.session.options import AttachOptions, Command, RunOptions
from belljar.session.result import Result
from belljar.sync.loop import Loop as _Loop
from belljar.sync.session import Pool, Session
from belljar.sync.shells import PersistentShell, Run, Shell
from belljar.sync.tools import ToolRegistry

if TYPE_CHECKING:
    from os import PathLike

__all__ = [
    "PersistentShell",
    "Pool",
    "Run",
    "Session",
    "Shell",
    "ToolRegistry",
    "attach",
    "run",
]


def run(
    command: Command,
    workspace: str | PathLike[str] = _HERE,
    **options: Unpack[RunOptions],
) -> Result:
    """Run one command in a throwaway sandbox.

    result = belljar.sync.run("pytest -q", workspace=".", timeout=60)
    """
    _known(options, RunOptions.__annotations__.keys(), "run")
    host = _hosts.either(options.get("host"), options.get("engine"))
    return _Loop(host).call(_sessions.run, command, workspace, **options)


def attach(id: str, **options: Unpack[AttachOptions]) -> Session:
    """Enter a session that another process keeps.

    with belljar.sync.attach("bj-0123456789ab") as box: ...
    """
    return Session.attach(id, **options)
