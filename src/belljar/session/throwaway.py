"""One command in a sandbox of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from belljar.awaiting import pending
from belljar.session import options as checks
from belljar.session.options import Command, Options, RunOptions
from belljar.session.result import Result
from belljar.session.session import Session

if TYPE_CHECKING:
    from os import PathLike


@pending("belljar")
async def run(command: Command, workspace: str | PathLike[str] = ".", **options: Unpack[RunOptions]) -> Result:
    """Run one command in a throwaway sandbox.

    result = await belljar.run("pytest -q", workspace=".", timeout=60)
    """
    checks.known(options, RunOptions.__annotations__.keys(), "run")
    of_run: Any = {name: value for name, value in options.items() if name in Options.__annotations__}
    of_box: Any = {name: value for name, value in options.items() if name not in of_run}
    checks.check_command(command)
    checks.check(of_run, "run")
    async with Session(workspace, **of_box) as box:
        return await box.run(command, **of_run)
