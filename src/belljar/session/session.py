"""`Session`: one sandbox and its commands. The spine of Belljar.

run("make test")
  → admit            the policy judges the command, and asks the approver if needed; only its canonical text goes on
  → RunningCommand   sends it over the link to the init, which spawns it in the sandbox; output is kept up to a limit
  ← Conclusion       how it ended, as the init reports it; by then all its processes are gone
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Never, Self, Unpack

import anyio
from anyio import to_thread

from belljar import host as hosts
from belljar.engines.spec import Network
from belljar.errors import BelljarError, UsageError
from belljar.limits import Limits
from belljar.patience import stretched
from belljar.policy import Policy
from belljar.sandbox import extras
from belljar.sandbox.cgroup import usage
from belljar.sandbox.sandbox import Plan, Sandbox
from belljar.sandbox.staging import Changes
from belljar.session import kept
from belljar.session import options as checks
from belljar.session.aftermath import Aftermath
from belljar.session.judging import Judge
from belljar.session.kept import KeptVerbs
from belljar.session.ledger import Ledger
from belljar.session.network_verbs import NetworkVerbs, under_policy
from belljar.session.options import AttachOptions, Checkpoints, Command, Options, SessionOptions
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
    from belljar.network.allow import Allow
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
        image: str = "base",
        limits: Limits | None = None,
        policy: str | Policy = "default",
        network: Network | Allow = "none",
        changes: Changes = "direct",
        checkpoints: Checkpoints = "off",
        approve: Approver | None = None,
        env: Mapping[str, str] | None = None,
        lease: float = 30.0,
        keep: bool = False,
        id: str | None = None,
        audit: Audit | None = None,
        host: Host | None = None,
        engine: EngineName | None = None,
        allow_home: bool = False,
        root: bool = False,
        debug: bool = False,
        mounts: Mapping[str, str | PathLike[str]] | None = None,
        cache: Mapping[str, str] | None = None,
        metadata: Mapping[str, str] | None = None,
        **unknown: Never,
    ) -> None:
        """`approve` is called for commands that need an approval; only True approves. With `keep` the sandbox outlives
        this process by `lease` seconds, and `Session.attach(id)` enters it. With `changes="staged"` the workspace does
        not change until someone calls `apply`; `checkpoints="auto"` makes a checkpoint before risky commands. With
        `root` commands run as root inside, without rights outside, and may change the whole file system (engine oci);
        with `debug` they may trace their own processes (gdb, strace). `mounts={"/data": "/srv/data"}` are read-only;
        `cache={"pip": "~/.cache/pip"}` is kept for later sessions of the same owner."""
        checks.known(unknown, SessionOptions.__annotations__.keys() | {"workspace", "keep", "id"}, "Session")
        checks.check_session(workspace, image, limits, network, approve, env, lease, keep, id)
        checks.flag("allow_home", allow_home)
        checks.tracing(root, debug)
        self.host = hosts.chosen(host, engine)
        self.image, self.limits = image, limits or Limits()
        staged = checks.one_of("changes", changes, Changes) == "staged"
        self.network: Network = network if isinstance(network, str) else "none"
        self.env = dict(env or {})
        self._surroundings = Surroundings(self.network, self.limits, image, staged)
        self._ledger = Ledger(audit or self.host.audit)
        self._judge = Judge(policy, approve, self._ledger, staged=staged)
        self._checkpoint_mode = checks.one_of("checkpoints", checkpoints, Checkpoints)
        if staged:
            self._judge.when_admitted = self._before_command
        self.allow = under_policy(network, self.policy)
        reserved = (str(audit.where),) if audit else ()
        self._plan = Plan(
            os.fspath(workspace), image, self.limits, self.network, lease, keep, allow_home=allow_home,
            changes=changes, reserved=reserved, root=root, debug=debug,
            mounts=extras.mounts_of(mounts), cache=extras.caches_of(cache), door=self.allow is not None,
        )  # fmt: skip
        self.metadata = checks.metadata_of(metadata)
        self._id = id
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

        claimed = None if self._id else await pool.claim(self._plan, self.host)
        if claimed is None and self._plan.door and not self._id:
            claimed = await pool.claim(replace(self._plan, door=False), self.host)
        return await self._adopt(claimed or await Sandbox.launch(self._plan, self.host, self._id))

    async def _adopt(self, sandbox: Sandbox) -> Self:
        """Make the sandbox this session's own; it is destroyed if that fails."""
        try:
            self._enter(sandbox)
            self._ledger.record("session_open", image=self._plan.image, workspace=self.workspace.path,
                               network=self.network, policy=self.policy.name)  # fmt: skip
            self._remember_metadata()
            self._remember_policy()
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
        checks.known(options, AttachOptions.__annotations__.keys(), "Session.attach")
        host = cls(**options).host  # raises for wrong options, before anything is entered
        sandbox = await Sandbox.attach(id, host)
        try:
            own = {} if "policy" in options else {"policy": await to_thread.run_sync(kept.policy, sandbox.run_dir)}
            session = cls._of(sandbox.plan, keep=True, **{**options, **own, "host": host, "engine": None})
            session._attached = True
            session._enter(sandbox)
            session.metadata = kept.metadata(sandbox.run_dir)
            await session.refresh()
            await session._reopen_door()
        except BaseException:
            sandbox.disconnect()
            raise
        return session

    @classmethod
    async def adopt(cls, sandbox: Sandbox, **options: Any) -> Self:
        """A session in a sandbox that was launched ahead; the sandbox is destroyed if the options are wrong."""
        try:
            session = cls._of(sandbox.plan, **options)
        except BaseException:
            await sandbox.destroy()
            raise
        return await session._adopt(sandbox)

    @classmethod
    def _of(cls, plan: Plan, **options: Any) -> Self:
        """A session for a sandbox of this plan, not open yet."""
        from_plan = {"image": plan.image, "limits": plan.limits, "lease": plan.lease, "network": plan.network,
                     "changes": plan.changes, "allow_home": plan.allow_home, "root": plan.root, "debug": plan.debug,
                     "mounts": dict(plan.mounts), "cache": dict(plan.cache)}  # fmt: skip
        return cls(plan.workspace, **{**from_plan, **options})

    async def close(self) -> None:
        """End the sandbox; a kept one runs on until its lease ends: `await box.close()`."""
        sandbox = self._sandbox
        if sandbox is None:
            return
        keep = self._plan.keep
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
        checks.seconds("lease", lease, optional=False)
        self.sandbox.link.lease(lease)
        self._plan = replace(self._plan, lease=lease)

    async def stop(self) -> None:
        """End the sandbox, even a kept one: `await box.stop()`."""
        self._plan = replace(self._plan, keep=False)
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
        is_visible = self.sandbox.engine.capabilities.binds and self._plan.changes == "direct"
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
