"""One sandbox's working life: judge, run, stream, start a shell, close. The spine of Belljar.

run("make test")
  → _admit       the policy judges (and whoever approves is asked); only its canonical text goes on
  → _spawn       over the link to the init, which spawns it in the sandbox
  ← Collector    output as it is printed, kept within its cap
  ← Result       how it ended, told by the init, with a receipt that nothing of it is left
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace
from functools import cache
from inspect import isawaitable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

import anyio
from anyio import to_thread

from belljar import host as hosts
from belljar.engines.spec import Network
from belljar.errors import AuditError, PolicyDenied, SandboxLost, ShellNotFound, UsageError
from belljar.limits import Limits
from belljar.link import frames
from belljar.link.frames import Flag
from belljar.link.remote_command import Execution
from belljar.policy import BUILT_IN, Policy, Verdict
from belljar.policy.approvals import Approvals
from belljar.sandbox.cgroup import usage
from belljar.sandbox.sandbox import Plan, Sandbox
from belljar.session.background_shell import Shell
from belljar.session.capture import Collector
from belljar.session.request import Command, Options, Request, encoded, environment, flags_of
from belljar.session.result import Result
from belljar.session.watched_run import Run
from belljar.workspace.cwd import inside
from belljar.workspace.host_run_files import HostRunFiles, Snapshot
from belljar.workspace.pinned import Workspace

if TYPE_CHECKING:
    from os import PathLike

    from belljar.audit.writer import Audit
    from belljar.host import EngineName, Host
    from belljar.session.persistent_shell import PersistentShell

Approver = Callable[[Verdict], bool | Awaitable[bool]]

GRACE = 2.0
SAFETY_NET = 5.0  # the init enforces the deadline; past this much more, the host no longer believes it
TAG = 2000  # how much of its command a shell can still tell in a list
LAST_WORDS = 3.0  # how long a cancelled command's death is waited for


class Session:
    def __init__(
        self,
        workspace: str | PathLike[str] = ".",
        *,
        image: str = "base",
        limits: Limits | None = None,
        policy: str | Policy = "default",
        network: Network = "none",
        approve: Approver | None = None,
        env: Mapping[str, str] | None = None,
        lease: float = 30.0,
        keep: bool = False,
        id: str | None = None,
        audit: Audit | None = None,
        host: Host | None = None,
        engine: EngineName | None = None,
        allow_home: bool = False,
    ) -> None:
        self.host = hosts.chosen(host, engine)
        self.limits = limits or Limits()
        self.policy = _policy(policy) if isinstance(policy, str) else policy
        self.network: Network = network
        self.env = dict(env or {})
        self.approvals = Approvals()
        self.audit = audit or self.host.audit
        self._approve = approve
        self._plan = Plan(
            str(workspace),
            image,
            self.limits,
            network,
            lease,
            keep,
            allow_home=allow_home,
            reserved=(str(audit.where),) if audit else (),
        )
        self._asked_id = id
        self._sandbox: Sandbox | None = None
        self._opening = False
        self._host_run_files = HostRunFiles(-1)
        self._shells: dict[str, Shell] = {}
        self._persistent: PersistentShell | None = None

    # Life.

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    async def open(self) -> Self:
        """Start the sandbox, or take a warm one; one that is open already stays as it is."""
        if self._sandbox is not None:
            return self
        if self._opening:
            raise UsageError("this session is being opened by another task; give each task a session of its own")
        self._opening = True
        try:
            return await self._open()
        finally:
            self._opening = False

    async def _open(self) -> Self:
        from belljar.session import pool  # which itself makes sessions

        claimed = None if self._asked_id else await pool.claim(self._plan, self.host)
        return await self._adopt(claimed or await Sandbox.launch(self._plan, self.host, self._asked_id))

    async def _adopt(self, sandbox: Sandbox) -> Self:
        """From here on the sandbox is this session's to end."""
        try:
            self._enter(sandbox)
            self.audit.record("session_open", session=self.id, image=self._plan.image, workspace=self.workspace.path,
                              network=self.network, policy=self.policy.name)  # fmt: skip
        except BaseException:
            self._sandbox = None
            await sandbox.destroy()
            raise
        return self

    def _enter(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._host_run_files = HostRunFiles(sandbox.workspace.descriptor, sandbox.workspace.git_directories())

    @classmethod
    async def attach(cls, id: str, *, host: Host | None = None, **options: Any) -> Self:
        """A session that another process keeps (`keep=True`)."""
        host = hosts.chosen(host, options.pop("engine", None))
        cls(host=host, **options)  # what is wrong with the options is said before anything is entered
        sandbox = await Sandbox.attach(id, host)
        try:
            plan = sandbox.plan
            session = cls(plan.workspace, image=plan.image, limits=plan.limits, network=plan.network,
                          lease=plan.lease, keep=True, host=host, **options)  # fmt: skip
            session._enter(sandbox)
            await session.refresh()
        except BaseException:
            sandbox.disconnect()
            raise
        return session

    @classmethod
    async def adopt(cls, sandbox: Sandbox, **options: Any) -> Self:
        """A session in a sandbox that was launched ahead."""
        plan = sandbox.plan
        try:
            session = cls(
                plan.workspace, image=plan.image, limits=plan.limits, network=plan.network, lease=plan.lease, **options
            )
        except BaseException:
            await sandbox.destroy()
            raise
        return await session._adopt(sandbox)

    async def close(self) -> None:
        sandbox, self._sandbox = self._sandbox, None
        if sandbox is None:
            return
        if self._plan.keep:
            sandbox.disconnect()
        else:
            await sandbox.destroy()
        self.audit.record("session_close", session=sandbox.id, kept=self._plan.keep)

    async def stop(self) -> None:
        """End the sandbox, also a kept one."""
        self._plan = replace(self._plan, keep=False)
        await self.close()

    @property
    def sandbox(self) -> Sandbox:
        if self._sandbox is None:
            raise UsageError("this session is not open; use `async with belljar.Session(...)`")
        return self._sandbox

    @property
    def id(self) -> str:
        return self.sandbox.id

    @property
    def workspace(self) -> Workspace:
        return self.sandbox.workspace

    @property
    def is_open(self) -> bool:
        return self._sandbox is not None and self._sandbox.link.lost is None

    def usage(self) -> dict[str, int]:
        """Memory (bytes) and processes of the whole sandbox, now; empty where the engine is not on this machine."""
        return usage(self.sandbox.launched.pid) if self.sandbox.engine.shares_files else {}

    # Commands.

    async def run(self, command: Command, **options: Unpack[Options]) -> Result:
        """Run a command to its end: text in a new bash, a list as an argument vector."""
        request = await self._admit(command, options)
        execution = self._spawn(request)
        collector = self._collector(request, execution)
        try:
            await self._feed(execution, options.get("stdin"))
            return await self._conclude(execution, collector, request)
        finally:
            await self._make_sure_it_ended(execution, collector)

    @contextlib.asynccontextmanager
    async def stream(self, command: Command, **options: Unpack[Options]) -> AsyncIterator[Run]:
        """Run a command and watch: `Started`, `Output`…, `Ended`. Leaving early kills it."""
        request = await self._admit(command, options)
        execution = self._spawn(request, paced=True)
        collector = self._collector(request, execution)
        run = Run(collector)
        failure: Exception | None = None
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._feed, execution, options.get("stdin"), not request.flags & Flag.PTY)
                tasks.start_soon(run.follow, lambda: self._conclude(execution, collector, request))
                try:
                    yield run
                except Exception as error:  # carried past the group, which would wrap it
                    failure = error
                if not execution.over:
                    tasks.cancel_scope.cancel()
        finally:
            await self._make_sure_it_ended(execution, collector)
        if failure is not None:
            raise failure

    async def start(self, command: Command, *, ring: int | None = None, **options: Unpack[Options]) -> Shell:
        """Start a background shell: it goes on until it ends, is killed or the session closes."""
        options["stdin"] = b""
        request = await self._admit(command, options)
        execution = self._spawn(request, background=ring or self.limits.shell_output)
        try:
            pid = await execution.started()
        except BaseException:
            execution.abandon()
            raise
        finally:
            self.sandbox.link.forget(execution)
        return self._keep(Shell(self, execution.id, request.verdict.canonical, pid), request)

    async def yielding(self, command: Command, *, yield_after: float, **options: Unpack[Options]) -> Result | Shell:
        """Run a command; if it takes longer than `yield_after` seconds it goes on as a background shell."""
        request = await self._admit(command, options)
        execution = self._spawn(request)
        collector = self._collector(request, execution)
        try:
            await self._feed(execution, options.get("stdin"))
            with anyio.move_on_after(yield_after):
                return await self._conclude(execution, collector, request)
            shell = Shell(self, execution.id, request.verdict.canonical, execution.pid)
            if not await shell.take_over(execution, collector, self.limits.shell_output):
                return await self._conclude(execution, collector, request)
            return self._keep(shell, request)
        finally:
            await self._make_sure_it_ended(execution, collector)

    def resolve_cwd(self, cwd: str | None) -> str:
        """Where a working directory is inside the sandbox; one that leaves the workspace is refused."""
        root = self.workspace.descriptor if self.sandbox.engine.shares_files else None
        return inside(self.workspace.path, cwd, root=root)

    # Background shells.

    def shells(self) -> list[Shell]:
        return list(self._shells.values())

    def shell(self, id: str) -> Shell:
        if id not in self._shells:
            raise ShellNotFound(f"Shell not found: {id}")
        return self._shells[id]

    def _keep(self, shell: Shell, request: Request) -> Shell:
        self._shells[shell.id] = shell
        shell.follow(lambda: self.since(request.before))
        return shell

    async def refresh(self) -> list[Shell]:
        """Ask the sandbox which shells there are, also those that other processes started."""
        for listed in await self.sandbox.link.list():
            if listed.flags & Flag.BACKGROUND:
                shell = Shell.from_listed(self, listed)
                self._shells.setdefault(shell.id, shell).learn(listed)
        return self.shells()

    async def cleanup(self) -> int:
        """Forget the shells that have ended; how many there were."""
        ended = [shell for shell in await self.refresh() if shell.status != "running"]
        for shell in ended:
            shell.forget()
            del self._shells[shell.id]
        return len(ended)

    @property
    def persistent(self) -> PersistentShell:
        """The one bash whose state holds from call to call."""
        if self._persistent is None:
            from belljar.session.persistent_shell import PersistentShell

            self._persistent = PersistentShell(self)
        return self._persistent

    # Judging.

    async def judge(
        self, command: Command, *, cwd: str | None = None, env: Mapping[str, str] | None = None,
        policy: Policy | None = None, known: Verdict | None = None, **state: Any,
    ) -> Verdict:  # fmt: skip
        """The verdict, if the command may run; PolicyDenied if not. A tool may have it judged by its own `policy`;
        a caller that has the verdict on this command in this very state gives it as `known`."""
        verdict = known
        if verdict is None:
            judging = policy or self.policy
            facts = {"cwd": self.resolve_cwd(cwd), "env": {**self.env, **(env or {})}, **state}
            verdict = judging.judge_plain(command, **facts)
            if verdict is None:
                verdict = await to_thread.run_sync(lambda: judging.judge(command, **facts))
        self._record("verdict", verdict=verdict)
        if verdict.decision == "ask" and await self._approved(verdict):
            return verdict
        if verdict.decision != "allow":
            raise PolicyDenied(verdict)
        return verdict

    async def _approved(self, verdict: Verdict) -> bool:
        if self.approvals.covers(verdict):
            return True
        if self._approve is None:
            return False
        answer = self._approve(verdict)
        approved = bool(await answer if isawaitable(answer) else answer)
        self._record("approval", digest=verdict.digest, approved=approved)
        return approved

    # How a command goes in and comes out.

    async def _admit(self, command: Command, options: Options) -> Request:
        cwd = self.resolve_cwd(options.get("cwd"))
        given = {**self.env, **(options.get("env") or {})}
        verdict = options.get("verdict") or await self.judge(command, cwd=options.get("cwd"), env=options.get("env"))
        argv = (encoded(verdict.canonical),) if isinstance(command, str) else tuple(encoded(word) for word in command)
        if not argv:
            raise UsageError("an empty command")
        env = environment(given, options)
        flags = flags_of(command, options)
        before = self.before()
        where = b"" if cwd == "/workspace" else encoded(cwd)
        return Request(argv, flags, where, env, verdict, options, before)

    def before(self) -> Snapshot:
        """How the places are that the host may run files from, before a command begins."""
        busy = self._persistent is not None or any(shell.status == "running" for shell in self._shells.values())
        return self._host_run_files.before(busy)

    def since(self, before: Snapshot) -> tuple[str, ...]:
        return self._host_run_files.since(before)

    def _spawn(self, request: Request, *, paced: bool = False, background: int = 0) -> Execution:
        options = request.options
        link = self.sandbox.link
        if link.lost is not None:
            raise SandboxLost(f"{link.lost}; open a new session")
        flags, tag = request.flags, b""
        if background:
            flags, tag = flags | Flag.BACKGROUND, encoded(request.verdict.canonical)[:TAG]
        try:
            execution = link.spawn(
                request.argv, flags=flags, cwd=request.cwd, env=request.env, deadline=options.get("timeout"),
                grace=options.get("grace", GRACE), ring=background, tag=tag, paced=paced,
            )  # fmt: skip
        except frames.FrameError as error:
            raise UsageError(f"the command and its environment are too large: {error}") from error
        self._record_start(request, execution)
        return execution

    def _record_start(self, request: Request, execution: Execution) -> None:
        """Written while the command starts; where nothing runs without a record, the verdict's stands already."""
        verdict, cwd = request.verdict, os.fsdecode(request.cwd)
        try:
            self._record("start", digest=verdict.digest, command=verdict.canonical, cwd=cwd, env=request.env)
        except AuditError:
            execution.abandon()
            raise

    def _collector(self, request: Request, execution: Execution) -> Collector:
        options = request.options
        cap = max(self.limits.output, options.get("output_limit") or 0)  # what a caller pays for with a kill is kept
        return Collector(
            execution, cap, request.verdict, combined=bool(options.get("combined") or options.get("pty")),
            timeout=options.get("timeout"), grace=options.get("grace", GRACE),
            limit=options.get("output_limit"), on_output=options.get("on_output"),
        )  # fmt: skip

    async def _feed(self, execution: Execution, stdin: bytes | str | None, close: bool = True) -> None:
        if stdin is not None:
            await execution.input(stdin.encode() if isinstance(stdin, str) else stdin)
            if close and stdin:
                execution.close_input()

    async def _conclude(self, execution: Execution, collector: Collector, request: Request) -> Result:
        try:
            body = await self._ended(execution, collector)
            result = collector.result(body, self.since(request.before))
        except SandboxLost:
            result = collector.lost()
        digest = result.verdict.digest if result.verdict else None
        self._record("end", cause=result.cause, exit_code=result.exit_code, duration=result.duration, digest=digest)
        return result

    async def _ended(self, execution: Execution, collector: Collector) -> frames.EndedBody:
        if collector.timeout is None:
            return await execution.ended()
        with anyio.move_on_after(collector.timeout + collector.grace + SAFETY_NET):
            return await execution.ended()
        self.sandbox.link.close("its init missed a deadline")
        raise SandboxLost("the sandbox's init missed a deadline")

    def _record(self, kind: str, **fields: Any) -> None:
        audit, session = self.audit, self._sandbox.id if self._sandbox else None
        write = audit.record if audit.required else audit.note
        write(kind, session=session, **fields)

    @staticmethod
    async def _make_sure_it_ended(execution: Execution, collector: Collector) -> None:
        """For every way out: the command has ended, or was handed on as a shell."""
        if not execution.over and not collector.handed_on:
            with contextlib.suppress(SandboxLost), anyio.move_on_after(LAST_WORDS, shield=True):
                execution.abandon()
                await execution.ended()


@cache
def _shipped(name: str) -> Policy:
    return Policy.load(name)


def _policy(name: str) -> Policy:
    """One of ours is read once per process; a file each time, since its owner may have changed it."""
    return _shipped(name) if name in BUILT_IN else Policy.load(name)


async def run(command: Command, workspace: str | PathLike[str] = ".", **options: Any) -> Result:
    """Run one command in a throwaway sandbox."""
    of_run = {name: options.pop(name) for name in Options.__annotations__ if name in options and name != "env"}
    if "env" in options:
        of_run["env"] = options.pop("env")
    async with Session(workspace, **options) as box:
        return await box.run(command, **of_run)
