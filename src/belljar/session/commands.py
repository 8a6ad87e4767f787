"""`Commands`: admits the commands of a session and starts them in its sandbox.

text or words → judged, asked about → Request → RunningCommand → Result
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from belljar.errors import UsageError
from belljar.layout import WORKSPACE
from belljar.session import options as checks
from belljar.session.conclusion import Conclusion
from belljar.session.options import Command, Options
from belljar.session.request import Request, encoded, environment, flags_of
from belljar.session.running_command import RunningCommand
from belljar.session.users import Identity, identity
from belljar.workspace.cwd import in_sandbox
from belljar.workspace.cwd import inside as inside_workspace

if TYPE_CHECKING:
    from os import PathLike

    from belljar.policy import Policy, Verdict
    from belljar.session.door import SessionDoor
    from belljar.session.inside import Inside
    from belljar.session.judging import Judge
    from belljar.session.ledger import Ledger


class Commands:
    def __init__(self, inside: Inside, judge: Judge, ledger: Ledger, door: SessionDoor) -> None:
        self.inside, self.judge, self.ledger = inside, judge, ledger
        self._door = door

    async def admitted(
        self, command: Command | Request, options: Options, where: str, without: tuple[str, ...] = ()
    ) -> Request:
        """The request for a command, which the caller begins before it awaits anything else."""
        self.inside.link.check_loop()
        if not isinstance(command, Request):
            command = await self.admit(command, checks.check(options, where, without))
        elif command.admitted_by is not self or options:
            raise UsageError("a Request takes no more options and runs only in the session that admitted it")
        await self.inside.ready()
        return command

    async def admit(
        self, command: Command, options: Options, policy: Policy | None = None, question: str | None = None
    ) -> Request:
        checks.check_command(command)
        if self.inside.options.longest is not None:
            options = {**options, "timeout": self.inside.within(options.get("timeout"))}
        cwd = self.resolve_cwd(options.get("cwd"), anywhere=True)
        user = await self._identity(options.get("user"))
        env = {**self.inside.env, **(user.environment if user else {}), **(options.get("env") or {})}
        verdict = await self.judge.admit(command, policy=policy, question=question, cwd=cwd, env=env)
        argv = (encoded(verdict.canonical),) if isinstance(command, str) else tuple(map(encoded, command))
        # The init stands in the workspace that it started with; a staged one may be mounted anew.
        raw_cwd = b"" if cwd == WORKSPACE and not self.inside.is_staged else encoded(cwd)
        return Request(
            verdict, argv, flags_of(command, options), raw_cwd, environment(env, options), options, admitted_by=self,
            user=user.words if user else b"",
        )  # fmt: skip

    async def _identity(self, user: str | int | None) -> Identity | None:
        if user is None:
            return None
        is_root = self.inside.options.root
        own = ("root", 0) if is_root else (self.inside.options.account, self.inside.sandbox.workspace.identity.uid)
        return await identity(user, own, self.inside.files)

    def resolve_cwd(self, cwd: str | PathLike[str] | None, *, anywhere: bool = False) -> str:
        """The path of a working directory in the sandbox. Outside the workspace it is refused, unless `anywhere`."""
        sandbox = self.inside.sandbox
        is_visible = sandbox.engine.capabilities.binds and not self.inside.is_staged
        root = sandbox.workspace.descriptor if is_visible else None
        resolve = in_sandbox if anywhere else inside_workspace
        return resolve(sandbox.workspace.path, None if cwd is None else os.fspath(cwd), root=root)

    def begin(self, request: Request, *, paced: bool = False, ring: int = 0) -> RunningCommand:
        """Start it: `async with commands.begin(request) as running`. With a `ring` it runs in the background."""
        combined = bool(request.options.get("combined") or request.options.get("pty"))
        conclusion = self.conclusion(request.verdict, combined)
        return RunningCommand(self.inside, self.ledger, request, conclusion, paced=paced, ring=ring)

    def conclusion(self, verdict: Verdict, combined: bool = False) -> Conclusion:
        """Called before a command starts: notes what there is now, for its result."""
        return Conclusion.begun(self.inside, self._door, verdict, combined)
