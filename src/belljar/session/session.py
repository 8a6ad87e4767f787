"""`Session`: one sandbox and its commands. The spine of Belljar.

run("make test")
  → admit            the policy judges the command, and asks the approver if needed; only its canonical text goes on
  → RunningCommand   sends it over the link to the init, which spawns it in the sandbox; output is kept up to a limit
  ← Conclusion       how it ended, as the init reports it; by then all its processes are gone
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Never, Self, Unpack

import anyio
from anyio import to_thread

from belljar import host as hosts
from belljar.engines.spec import Network
from belljar.errors import BelljarError, UsageError
from belljar.limits import Limits
from belljar.options import PUBLIC, OwnOptions, SandboxOptions, callable_or_none, known
from belljar.patience import stretched
from belljar.policy import Policy
from belljar.sandbox.cgroup import usage
from belljar.sandbox.sandbox import Sandbox
from belljar.session import options as checks
from belljar.session.aftermath import Aftermath
from belljar.session.judging import Judge
from belljar.session.kept import KeptVerbs
from belljar.session.ledger import Ledger
from belljar.session.network_verbs import NetworkVerbs, under_policy
from belljar.session.options import AttachOptions, Command, Options
from belljar.session.request import Request, encoded, environment, flags_of
from belljar.session.result import Result, Surroundings
from belljar.session.running_command import RunningCommand
from belljar.session.shell_verbs import ShellVerbs
from belljar.session.staged_verbs import StagedVerbs
from belljar.session.standstill import Standstill
from belljar.session.watched_run import Run
from belljar.tasks import beside, see_through
from belljar.workspace.cwd import inside
from belljar.workspace.pinned import Workspace

if TYPE_CHECKING:
    from os import PathLike

    from belljar.audit.writer import Audit
    from belljar.host import EngineName, Host
    from belljar.policy.approvals import Approvals
    from belljar.policy.verdict import Verdict
    from belljar.session.options import Approver

LAST_REFRESH_SECONDS = 1.0  # how long a closing session waits for the init to say how its shells ended
_NOT_OPEN = (
    "this session is not open, or was closed: use it inside `async with belljar.Session(...) as box:` "
    "(belljar.sync: `with`), or open() it first"
)


class Session(ShellVerbs, StagedVerbs, NetworkVerbs, KeptVerbs):
    """One sandbox and the commands that run in it.

    async with belljar.Session(workspace=".", limits=belljar.Limits(memory="1g")) as box:
        result = await box.run("make -j2", timeout=300)
    """

    def __init__(
        self,
        workspace: str | PathLike[str] = ".",
        *,
        approve: Approver | None = None,
        audit: Audit | None = None,
        host: Host | None = None,
        engine: EngineName | None = None,
        **options: Unpack[OwnOptions],
    ) -> None:
        """`options` are the fields of `SandboxOptions`. `approve` is called for commands that need an approval; only
        True approves."""
        known(options, PUBLIC, "Session")
        self._set_up(SandboxOptions(workspace, **options), approve, audit, hosts.chosen(host, engine))

    @classmethod
    def of(
        cls,
        options: SandboxOptions,
        *,
        approve: Approver | None = None,
        audit: Audit | None = None,
        host: Host | None = None,
    ) -> Self:
        """A session with these options, not open yet: `belljar.Session.of(box.options)`."""
        session = cls.__new__(cls)
        session._set_up(options, approve, audit, hosts.chosen(host, None))
        return session

    def _set_up(self, options: SandboxOptions, approve: Approver | None, audit: Audit | None, host: Host) -> None:
        callable_or_none("approve", approve)
        self.host = host
        self._ledger = Ledger(audit or host.audit)
        is_staged = options.changes == "staged"
        self._judge = Judge(options.policy, approve, self._ledger, staged=is_staged)
        if is_staged:
            self._judge.when_admitted = self._before_command
        self.allow = under_policy(options.network, self.policy)
        self.options = replace(
            options,
            policy=self.policy,
            network=self.allow or options.network_mode,
            reserved=(*options.reserved, *([str(audit.where)] if audit else ())),
        )
        self.env, self.metadata = dict(options.env), dict(options.metadata)
        self._surroundings = Surroundings(self.network, options.limits, options.image, is_staged)
        self._sandbox: Sandbox | None = None
        self._opening = self._attached = False
        self._standstill = Standstill(
            lambda: self.sandbox, lambda: self._persistent is not None and self._persistent.is_busy
        )
        ShellVerbs.__init__(self)
        self._aftermath_or_none: Aftermath | None = None

    # Life.

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __enter__(self) -> Never:
        raise UsageError("a Session is asynchronous: write `async with`, or use belljar.sync.Session")

    def __exit__(self, *_: object) -> None: ...

    async def open(self) -> Self:
        """Start the sandbox, or take a warm one. Does nothing if the session is open: `await box.open()`."""
        if self._sandbox is not None:
            return self
        if self._opening:
            raise UsageError("another task is opening this session; use one session per task")
        self._opening = True
        try:
            return await self._open()
        finally:
            self._opening = False

    async def _open(self) -> Self:
        from belljar.session import pool  # imports this module

        claimed = await pool.claim(self.options, self.host)
        return await self._adopt(claimed or await Sandbox.launch(self.options, self.host))

    async def _adopt(self, sandbox: Sandbox) -> Self:
        """Make the sandbox this session's own; it is destroyed if that fails."""
        try:
            self._enter(sandbox)
            self._ledger.record("session_open", image=self.image, workspace=self.workspace.path,
                               network=self.network, policy=self.policy.name)  # fmt: skip
            self._remember_options()
            await self._copy_in()
            await self._open_door()
        except BaseException:
            self._close_door()
            self._sandbox = None
            await sandbox.destroy()
            raise
        return self

    def _enter(self, sandbox: Sandbox) -> None:
        self._sandbox, self._ledger.session = sandbox, sandbox.id
        self._aftermath_or_none = Aftermath(sandbox, self._staged_upper(), self._copied_files())
        self._remember_mount()

    @classmethod
    async def attach(cls, id: str, **options: Unpack[AttachOptions]) -> Self:
        """Enter a kept session (`keep=True`). Its own policy applies, unless `policy=` names another.

        box = await belljar.Session.attach("bj-0123456789ab")
        """
        known(options, AttachOptions.__annotations__.keys(), "Session.attach")
        host = hosts.chosen(options.get("host"), options.get("engine"))
        live: Any = {"approve": options.get("approve"), "audit": options.get("audit"), "host": host}
        given: Any = options
        own = {name: given[name] for name in ("policy", "env") if name in given}
        cls.of(SandboxOptions(**own), **live)  # raises for wrong options, before anything is entered
        sandbox = await Sandbox.attach(id, host)
        try:
            session = cls.of(replace(sandbox.options, **own, keep=True), **live)
            session._attached = True
            session._enter(sandbox)
            await session.refresh()
            await session._reopen_door()
        except BaseException:
            sandbox.disconnect()
            raise
        return session

    @classmethod
    async def adopt(cls, sandbox: Sandbox, options: SandboxOptions, **live: Any) -> Self:
        """A session in a sandbox that was launched ahead; the sandbox is destroyed if the options are wrong."""
        try:
            session = cls.of(options, **live)
        except BaseException:
            await sandbox.destroy()
            raise
        return await session._adopt(sandbox)

    async def close(self) -> None:
        """End the sandbox; a kept one runs on until its lease ends: `await box.close()`."""
        sandbox = self._sandbox
        if sandbox is None:
            return
        keep = self.options.keep
        try:
            await self._last_refresh()
            await self._copy_out_at_last()
        finally:
            self._close_door()
            self._sandbox = None
            if keep:
                sandbox.disconnect()
            elif self._busy or self.is_staged:
                await sandbox.destroy()
                await see_through(to_thread.run_sync(self._forget_if_unchanged, sandbox.id))
            else:
                await sandbox.retire()
        self._ledger.close("detached" if keep else "killed")
        if not (self._attached and keep):  # an attached session that stays kept was not closed
            self._ledger.record("session_close", kept=keep)
        await to_thread.run_sync(self.audit.flush)

    async def _last_refresh(self) -> None:
        """Record how the background shells ended."""
        if not self._ledger.unfinished:
            return
        if self.sandbox.link.lost is not None:
            self._ledger.close("sandbox_lost")
        else:
            with contextlib.suppress(BelljarError), anyio.move_on_after(stretched(LAST_REFRESH_SECONDS)):
                await self.refresh()

    def extend(self, lease: float) -> None:
        """Change the lease: how many seconds the sandbox runs on without a host: `box.extend(3600)`."""
        self.options = replace(self.options, lease=lease)
        self.sandbox.link.lease(lease)

    async def stop(self) -> None:
        """End the sandbox, even a kept one: `await box.stop()`."""
        self.options = replace(self.options, keep=False)
        await self.close()

    @property
    def sandbox(self) -> Sandbox:
        if self._sandbox is None:
            raise UsageError(_NOT_OPEN)
        return self._sandbox

    @property
    def id(self) -> str:
        return self.sandbox.id

    @property
    def image(self) -> str:
        return self.options.image

    @property
    def limits(self) -> Limits:
        return self.options.limits

    @property
    def network(self) -> Network:
        """Of the sandbox itself: none, also where `allow` names hosts that the door lets through."""
        return self.options.network_mode

    @property
    def workspace(self) -> Workspace:
        return self.sandbox.workspace

    @property
    def audit(self) -> Audit:
        return self._ledger.audit

    @property
    def policy(self) -> Policy:
        return self._judge.policy

    @property
    def approvals(self) -> Approvals:
        """Approvals that cover more than one command."""
        return self._judge.approvals

    @property
    def is_open(self) -> bool:
        return self._sandbox is not None and self._sandbox.link.lost is None

    async def ask(self, question: Verdict) -> None:
        """Ask the approver something that is not about a command; PolicyDenied unless the answer is yes."""
        await self._judge.ask(question)

    def usage(self) -> dict[str, int]:
        """Memory (bytes) and processes of the whole sandbox: `box.usage()["memory"]`; empty for a remote engine."""
        return usage(self.sandbox.launched.pid) if self.sandbox.engine.capabilities.sees_groups else {}

    # Commands.

    async def run(self, command: Command | Request, **options: Unpack[Options]) -> Result:
        """Run a command to its end: text in a new bash, a list as an argument vector.

        result = await box.run("pytest -q", timeout=60, env={"CI": "1"}, cwd="src")
        """
        request = await self._admitted(command, options, "run", without=("stdin_open",))
        async with RunningCommand(self, request) as running:
            await running.input.feed()
            return await running.conclude()

    @contextlib.asynccontextmanager
    async def stream(self, command: Command | Request, **options: Unpack[Options]) -> AsyncIterator[Run]:
        """Run a command and watch its events: `Started`, `Output`…, `Ended`. Leaving the block early kills it.

        async with box.stream("npm test") as events:
            async for event in events: ...
        """
        request = await self._admitted(command, options, "stream")
        async with RunningCommand(self, request, paced=True) as running:
            run = Run(running.collector, running.input, lambda: self._take_over(running))
            async with beside() as tasks:
                tasks.start_soon(running.input.feed)
                tasks.start_soon(run.follow, running.conclude)
                yield run
                if running.execution.over:
                    await run.over()

    async def admit(
        self, command: Command, *, policy: Policy | None = None, question: str | None = None, **options: Unpack[Options]
    ) -> Request:
        """Judge a command, and ask the approver if needed. The request may run, once or more, in this session.

        request = await box.admit("make test", timeout=60)
        result = await box.run(request)
        """
        return await self._admit(command, checks.check(options, "admit"), policy, question)

    async def _admitted(
        self, command: Command | Request, options: Options, where: str, without: tuple[str, ...] = ()
    ) -> Request:
        self._check_usable()
        if isinstance(command, Request):
            if command.admitted_by is not self or options:
                raise UsageError("a Request takes no more options and runs only in the session that admitted it")
            request = command
        else:
            request = await self._admit(command, checks.check(options, where, without))
        await self._standstill.passed()
        return request

    async def _admit(
        self, command: Command, options: Options, policy: Policy | None = None, question: str | None = None
    ) -> Request:
        checks.check_command(command)
        cwd = self.resolve_cwd(options.get("cwd"))
        env = {**self.env, **(options.get("env") or {})}
        verdict = await self._judge.admit(command, policy=policy, question=question, cwd=cwd, env=env)
        argv = (encoded(verdict.canonical),) if isinstance(command, str) else tuple(encoded(word) for word in command)
        raw_cwd = b"" if cwd == "/workspace" and not self.is_staged else encoded(cwd)
        return Request(
            verdict, argv, flags_of(command, options), raw_cwd, environment(env, options), options, admitted_by=self
        )

    def resolve_cwd(self, cwd: str | PathLike[str] | None) -> str:
        """The path of a working directory inside the sandbox; UsageError if it is outside the workspace."""
        is_visible = self.sandbox.engine.capabilities.binds and not self.is_staged
        root = self.workspace.descriptor if is_visible else None
        return inside(self.workspace.path, None if cwd is None else os.fspath(cwd), root=root)

    def _check_usable(self) -> None:
        """Raises unless the session is open and used in the event loop that opened it."""
        self.sandbox.link.check_loop()

    @property
    def _aftermath(self) -> Aftermath:
        self._check_usable()
        assert self._aftermath_or_none is not None
        return self._aftermath_or_none

    def _workspace_moved(self) -> None:
        """The workspace was remounted: open directories of the old mount are stale."""
        if self._persistent is not None:
            self._persistent.workspace_moved()
        if self._aftermath_or_none is not None and self._sandbox is not None:
            self._aftermath_or_none.moved(self._staged_upper())
