"""One command in a sandbox of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from belljar.options import known
from belljar.session import options as checks
from belljar.session.options import Command, Options, RunOptions
from belljar.session.result import Result
from belljar.session.session import Session

if TYPE_CHECKING:
    from os import PathLike


async def run(command: Command, workspace: str | PathLike[str] = ".", **options: Unpack[RunOptions]) -> Result:
    """Run one command in a throwaway sandbox: `result = await belljar.run("pytest -q", workspace=".", timeout=60)`."""
    known(options, RunOptions.__annotations__.keys(), "run")
    command_options: Any = {name: value for name, value in options.items() if name in Options.__annotations__}
    session_options: Any = {name: value for name, value in options.items() if name not in command_options}
    checks.check_command(command)
    checks.check(command_options, "run")
    async with Session(workspace, **session_options) as box:
        return await box.run(command, **command_options)
