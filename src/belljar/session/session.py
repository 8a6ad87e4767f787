"""`Session`: one sandbox and its commands. The spine of Belljar.

run("make test")
  → Commands         the policy judges the command, and asks the approver if needed; only its canonical text goes on,
                     over the link to the init, which spawns it in the sandbox
  → RunningCommand   feeds it, keeps its output up to a limit, waits for its end
  ← CommandRecord    how it ended, as the init reports it; by then all its processes are gone

The class tells the life of a session in its order: it opens, commands and shells run in it, it ends. What it holds
(`files`, `shells`, `staged`, `door`) are objects of their own; the flat names are short for theirs.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Never, Self, Unpack

import anyio
from anyio import to_thread

from belljar import enforcement
from belljar import host as hosts
from belljar.engines.spec import Network
from belljar.errors import BelljarError, Unsupported, UsageError
from belljar.limits import Limits
from belljar.options import (
    HERE,
    PUBLIC,
    Here,
    OwnOptions,
    SandboxOptions,
    callable_or_none,
    known,
)
from belljar.patience import stretched
from belljar.policy import Policy
from belljar.sandbox.sandbox import Sandbox
from belljar.session import kept
from belljar.session import options as checks
from belljar.session.commands import Commands, Request
from belljar.session.door import SessionDoor, under_policy
from belljar.session.flat import flat
from belljar.session.inside import Inside
from belljar.session.judging import Judge
from belljar.session.kept import Kept
from belljar.session.ledger import Ledger
from belljar.session.options import AttachOptions, Command, Options, RunOptions
from belljar.session.result import Result
from belljar.session.shells import SHELL_ID, Shells
from belljar.session.staged import Staged
from belljar.session.watched_run import Run
from belljar.tasks import beside, see_through
from belljar.workspace.pinned import Workspace

if TYPE_CHECKING:
    from os import PathLike

    from belljar.audit.writer import Audit
    from belljar.host import EngineName, FarHost, Host
    from belljar.network.allow import Allow
    from belljar.policy.approvals import Approvals
    from belljar.policy.verdict import Verdict
    from belljar.session.files import Files
    from belljar.session.held_command import HeldCommand
    from belljar.session.init_tools import InitTools
    from belljar.session.named_shell import NamedShell
    from belljar.session.options import Approver
    from belljar.session.persistent_shell import PersistentShell
    from belljar.session.snapshot import Snapshot
    from belljar.staged.area import Point

LAST_REFRESH_SECONDS = (
    1.0  # how long a closing session waits for the init to say how its shells ended
)


class Session:
    """One sandbox and the commands that run in it.

    async with belljar.Session(workspace=".", limits=belljar.Limits(memory="1g")) as box:
        result = await box.run("make -j2", timeout=300)
    """

    def __new__(
        cls,
        workspace: str | PathLike[str] = HERE,
        *,
        host: Host | FarHost | None = None,
        **options: Any,
    ) -> Any:
        """With a far host, the session that it makes: the same names, over the service."""
        if (far := hosts.far_of(host, options.get("engine"))) is not None:
            return far.session(
                None if isinstance(workspace, Here) else workspace, **options
            )
        return super().__new__(cls)

    def __init__(
        self,
        workspace: str | PathLike[str] = HERE,
        *,
        approve: Approver | None = None,
        audit: Audit | None = None,
        host: Host | FarHost | None = None,
        engine: EngineName | None = None,
        **options: Unpack[OwnOptions],
    ) -> None:
        """`options` are the fields of `SandboxOptions`. `approve` is called for commands that need an approval; only
        True approves."""
        known(options, PUBLIC, "Session")
        chosen = hosts.chosen(host, engine)
        if options.get("snapshot"):
            from belljar.session import snapshot  # few sessions begin with one

            workspace, options = snapshot.completed(options, workspace, chosen)  # type: ignore[assignment]
        given = SandboxOptions(workspace, **enforcement.filled(options))
        self._set_up(given, approve, audit, chosen)

    @classmethod
    def of(
        cls,
        options: SandboxOptions,
        *,
        approve: Approver | None = None,
        audit: Audit | None = None,
        host: Host | FarHost | None = None,
        runs: bool = False,
    ) -> Self:
        """A session with these options, not open yet: `belljar.Session.of(box.options)`. `runs`: for a sandbox that is
        there already."""
        if (far := hosts.far_of(host)) is not None:
            return far.restored(options, approve=approve)  # type: ignore[no-any-return]
        session: Self = super().__new__(cls)
        session._set_up(options, approve, audit, hosts.chosen(host, None), runs=runs)
        return session

    def _set_up(
        self,
        options: SandboxOptions,
        approve: Approver | None,
        audit: Audit | None,
        host: Host,
        *,
        runs: bool = False,
    ) -> None:
        callable_or_none("approve", approve)
        options = enforcement.bound(options, runs=runs)
        if audit is not None and audit is not host.audit:
            enforcement.refuse_own_trail()
        self.host = host
        self._ledger = Ledger(audit or host.audit)
        is_staged = options.changes == "staged"
        self._judge = Judge(
            options.policy, approve, self._ledger, staged=is_staged, root=options.root
        )
        allow = under_policy(options.network, self.policy)
        self._inside = Inside(
            options.changed(
                policy=self.policy,
                network=allow or options.network_mode,
                reserved=(*options.reserved, *([str(audit.where)] if audit else ())),
            )
        )
        self.door = SessionDoor(self._inside, self._judge, self._ledger, allow)
        self._commands = Commands(self._inside, self._judge, self._ledger, self.door)
        self.shells = Shells(self._commands)
        self.staged = Staged(self._inside, self._ledger, self.shells, host)
        if is_staged:
            self._judge.when_admitted = self.staged.before_command
        self._opening = self._attached = False

    def __repr__(self) -> str:
        where = f"{self.id} " if self._inside.was_entered else ""
        state = "open" if self.is_open else "closed" if where else "not open"
        return f"<belljar.Session {where}of {self.options.workspace}, image {self.image}, {state}>"

    # It opens.

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *error: object) -> None:
        if any(error):
            self.staged.nothing_more_is_applied()
        await self.close()

    def __enter__(self) -> Never:
        raise UsageError(
            "a Session is asynchronous: write `async with`, or use belljar.sync.Session"
        )

    def __exit__(self, *_: object) -> None: ...

    async def open(self) -> Self:
        """Start the sandbox, or take a warm one. Does nothing if the session is open: `await box.open()`."""
        if self._inside.was_entered:
            return self
        if self._opening:
            raise UsageError(
                "another task is opening this session; use one session per task"
            )
        self._opening = True
        try:
            return await self._open()
        finally:
            self._opening = False

    async def _open(self) -> Self:
        if self.options.snapshot is not None:
            from belljar.session.snapshot import SnapshotFiles

            await to_thread.run_sync(
                SnapshotFiles.find, self.host, self.options.snapshot
            )  # before anything is made
        return await self._adopt(
            await self._claim() or await Sandbox.launch(self.options, self.host)
        )

    async def _claim(self) -> Sandbox | None:
        """A warm sandbox for these options, from a pool of this event loop; None if there is none."""
        loop, options = asyncio.get_running_loop(), self.options
        pools = [pool for pool in self.host.pools if pool.loop is loop]
        if options.keep or options.id or not pools:
            return None
        kind = options.kind()
        for door in (
            (True, False) if options.door else (False,)
        ):  # without one, the commands' variables name it
            for pool in pools:
                if pool.options.door == door and pool.options.kind() == kind:
                    claimed: Sandbox | None = await pool.claim()
                    if claimed is not None:
                        return claimed
        return None

    async def _adopt(self, sandbox: Sandbox) -> Self:
        """Make the sandbox this session's own; it is destroyed if that fails."""
        self._ledger.session = sandbox.id
        try:
            self._ledger.record(
                "session_open",
                image=self.image,
                workspace=sandbox.workspace.path,
                network=self.network,
                policy=self.policy.name,
            )
            self.staged.enter(sandbox)
            self._inside.remember_own()
            await self.staged.copy_in()
            if self.options.snapshot is not None:
                from belljar.session import snapshot

                await snapshot.restore(
                    self._inside,
                    self.staged,
                    self.shells,
                    self.host,
                    self.options.snapshot,
                )
            await self.door.open()
        except BaseException:
            self._inside.leave()
            await see_through(self._let_go(sandbox, keep=False))
            raise
        return self

    # Commands run in it.

    async def run(
        self, command: Command | Request, **options: Unpack[Options]
    ) -> Result:
        """Run a command to its end: text in a new bash, a list as an argument vector.

        result = await box.run("pytest -q", timeout=60, env={"CI": "1"}, cwd="src")
        """
        request = await self._commands.admitted(
            command, options, "run", without=("stdin_open",)
        )
        async with self._commands.begin(request) as running:
            return await running.concluded()

    @contextlib.asynccontextmanager
    async def stream(
        self, command: Command | Request, **options: Unpack[Options]
    ) -> AsyncIterator[Run]:
        """Run a command and watch its events: `Started`, `Output`…, `Ended`. Leaving the block early kills it.

        async with box.stream("npm test") as events:
            async for event in events: ...

        One reader has them, and sets the command's pace. What several watch is a shell (`start`; `events.detach` makes
        one of what comes from then on): each `shell.observe()` has a pace of its own, also in a later process.
        """
        request = await self._commands.admitted(command, options, "stream")
        async with self._commands.begin(request, paced=True) as running:
            run = Run(running, lambda: self.shells.take_over(running))
            async with beside() as tasks:
                tasks.start_soon(running.input.feed, running.fail)
                tasks.start_soon(run.follow, running.conclude)
                yield run
                if running.process.over:
                    await run.over()

    async def admit(
        self,
        command: Command,
        *,
        policy: Policy | None = None,
        question: str | None = None,
        **options: Unpack[Options],
    ) -> Request:
        """Judge a command, and ask the approver if needed. The request may run, once or more, in this session.

        request = await box.admit("make test", timeout=60)
        result = await box.run(request)
        """
        return await self._commands.admit(
            command, checks.check(options, "admit"), policy, question
        )

    async def ask(self, question: Verdict) -> None:
        """Ask the approver something that is not about a command; PolicyDenied unless the answer is yes."""
        await self._judge.ask(question)

    def resolve_cwd(self, cwd: str | PathLike[str] | None) -> str:
        """The path of a working directory inside the sandbox; UsageError if it is outside the workspace."""
        return self._commands.resolve_cwd(cwd)

    # Shells run on.

    start = flat("shells", Shells.start)
    yielding = flat("shells", Shells.yielding)

    def shell(self, name: str) -> Any:
        """A background shell by its id (typed: `box.shells.get`), or a persistent shell of its own by any other name
        (`box.shells.named`).

        await box.shell("build").run("cd src"); await box.shell("build").run("make")
        """
        return (
            self.shells.get(name)
            if SHELL_ID.fullmatch(name)
            else self.shells.named(name)
        )

    refresh = flat("shells", Shells.refresh)
    cleanup = flat("shells", Shells.cleanup)

    @property
    def persistent(self) -> PersistentShell:
        """One bash that keeps its state from call to call: `await box.persistent.run("cd src")`."""
        return self.shells.persistent

    async def hold(
        self, request: Request, tag: str, *, earlier: Session | None = None
    ) -> HeldCommand:
        """Start a command that outlives this process, with all of its output. `earlier`: the session by which this
        sandbox was reached before, and which admitted the request.

        held = await box.hold(await box.admit("make"), "c-1")
        """
        from belljar.session.held_command import HeldCommand  # few sessions have one

        if earlier is not None and earlier is not self:
            request = self._commands.taken_over(request, earlier._commands)
        return await HeldCommand.begin(self._commands, request, tag)

    async def held(self) -> dict[str, HeldCommand]:
        """The held commands that the sandbox knows, by their tags: `(await box.held())["c-1"]`."""
        from belljar.session.held_command import HeldCommand

        return await HeldCommand.all(self._commands)

    def named_shell(self, name: str) -> NamedShell:
        """Commands that share a directory and variables, also from process to process: `box.named_shell("a")`."""
        from belljar.session.named_shell import NamedShell

        return NamedShell(name, self._commands)

    async def ping(self) -> None:
        """Wait for the sandbox to answer; SandboxLost if it is gone: `await box.ping()`."""
        await self._inside.link.ping()

    # Its files and network.

    @property
    def files(self) -> Files:
        """The sandbox's files: `await box.files.read("src/app.py")`."""
        return self._inside.files

    @property
    def init_tools(self) -> InitTools:
        return self._inside.tools

    forward = flat("door", SessionDoor.forward)
    allow_host = flat("door", SessionDoor.allow_host)
    listening = flat("door", SessionDoor.listening)

    # Staged changes: only with `changes="staged"`.

    changes = flat("staged", Staged.changes)

    async def diff(
        self,
        paths: Iterable[str] | None = None,
        *,
        against: Session | None = None,
        since: Point | str | None = None,
        until: Point | str | None = None,
        ignored: bool = False,
    ) -> str:
        """All changes, or those at or below some paths, as a unified diff. `against`: compare with another session.
        `since`: from this checkpoint to now, or to the checkpoint `until`.

        print(await box.diff(["src"]))
        """
        other = against.staged if against is not None else None
        return await self.staged.diff(
            paths, against=other, since=since, until=until, ignored=ignored
        )

    apply = flat("staged", Staged.apply)
    show = flat("staged", Staged.show)
    apply_shown = flat("staged", Staged.apply_shown)
    undo_apply = flat("staged", Staged.undo_apply)
    discard = flat("staged", Staged.discard)
    copy_out = flat("staged", Staged.copy_out)
    checkpoint = flat("staged", Staged.checkpoint)
    checkpoints = flat("staged", Staged.checkpoints)
    rollback = flat("staged", Staged.rollback)
    left_out = flat("staged", Staged.left_out)
    forget_checkpoint = flat("staged", Staged.forget_checkpoint)

    # Others begin with what it holds.

    async def snapshot(
        self, name: str, *, workspace: bool = False, replace: bool = False
    ) -> Snapshot:
        """Keep what the sandbox holds under a name, for sessions on the same engine: staged changes, home, /tmp, the
        directories and variables of its shells, and with root=True what it changed of the root file system. Processes
        are not kept: see `Snapshot.left_out`. `workspace`: also all files of a workspace that is not staged; such a
        snapshot begins in an empty one.

        await box.snapshot("ready"); twin = await belljar.Session(snapshot="ready").open()
        """
        from belljar.session import snapshot

        made = await snapshot.take(
            self._inside,
            self.staged,
            self.shells,
            self.host,
            name,
            whole=workspace,
            replace=replace,
        )
        self._ledger.record("snapshot", name=name)
        return made

    @staticmethod
    async def snapshots(
        *, host: Host | None = None, engine: EngineName | None = None
    ) -> tuple[Snapshot, ...]:
        """The snapshots of this host, oldest first: `await belljar.Session.snapshots()`."""
        from belljar.session import snapshot

        return await to_thread.run_sync(snapshot.listed, hosts.chosen(host, engine))

    @staticmethod
    async def remove_snapshot(
        name: str, *, host: Host | None = None, engine: EngineName | None = None
    ) -> None:
        """Sessions that began with it go on: `await belljar.Session.remove_snapshot("ready")`."""
        from belljar.session import snapshot

        await to_thread.run_sync(snapshot.remove, hosts.chosen(host, engine), name)

    async def fork(self, **options: Any) -> Session:
        """A new session that begins with a copy of these files: `twin = await box.fork()`."""
        await self.staged.checkpoint(self.staged.area.unused("fork"))
        live: Any = {"approve": self._judge.approver, "host": self.host}
        live |= {
            name: options.pop(name)
            for name in ("approve", "audit", "host")
            if name in options
        }
        ours: Any = {"network": self.allow or self.network, "env": self.env}
        own = {
            "keep": False,
            "keepable": False,
            "id": None,
            "base": self.id,
            "snapshot": None,
        }
        twin = type(self).of(
            replace(self.options, **{**ours, **options, **own}), **live
        )
        return await twin.open()

    # It may outlive this process, and another one enters it.

    def stay(self, lease: float, **metadata: str) -> None:
        """Make this a kept session: its sandbox outlives this process by `lease` seconds."""
        if self.options.keep:
            return
        if not self.sandbox.options.keepable:
            raise UsageError(
                "this sandbox ends with the process that started it; keep=True makes one that stays"
            )
        if self.is_paused:
            raise UsageError(
                "a paused session cannot become a kept one: resume it first"
            )
        self.extend(lease)
        self._inside.remember(
            keep=True, metadata=tuple({**self.metadata, **metadata}.items())
        )

    def extend(self, lease: float) -> None:
        """Change the lease: how many seconds the sandbox runs on without a host: `box.extend(3600)`."""
        self._inside.options = replace(self.options, lease=lease)
        self._inside.link.lease(lease)

    @classmethod
    async def attach(cls, id: str, **options: Unpack[AttachOptions]) -> Self:
        """Enter a kept session (`keep=True`). Its own policy applies, unless `policy=` names another. One that is
        paused goes on with `resume=True`; else it is an error.

        box = await belljar.Session.attach("bj-0123456789ab")
        """
        known(options, AttachOptions.__annotations__.keys(), "Session.attach")
        if (
            far := hosts.far_of(options.get("host"), options.get("engine"))
        ) is not None:
            return await far.attach(id, **{**options, "host": None})  # type: ignore[no-any-return]
        host = hosts.chosen(options.get("host"), options.get("engine"))
        live: Any = {
            "approve": options.get("approve"),
            "audit": options.get("audit"),
            "host": host,
        }
        given: Any = options
        own = {name: given[name] for name in ("policy", "env") if name in given}
        cls.of(
            SandboxOptions(**own), **live, runs=True
        )  # raises for wrong options, before anything is entered
        sandbox = await Sandbox.attach(id, host, resume=bool(options.get("resume")))
        try:
            session = cls.of(
                replace(sandbox.options, **own, keep=True), **live, runs=True
            )
            session._attached = True
            session._ledger.session = sandbox.id
            session.staged.enter(sandbox)
            await session.refresh()
            await session.shells.recall()
            await session.door.reopen()
        except BaseException:
            sandbox.disconnect()
            raise
        return session

    @classmethod
    async def adopt(
        cls, sandbox: Sandbox, options: SandboxOptions, **live: Any
    ) -> Self:
        """A session in a sandbox that was launched ahead; the sandbox is destroyed if the options are wrong."""
        try:
            session = cls.of(options, **live)
        except BaseException:
            await sandbox.destroy()
            raise
        return await session._adopt(sandbox)

    @staticmethod
    async def list(
        *, host: Host | FarHost | None = None, engine: EngineName | None = None
    ) -> tuple[Kept, ...]:
        """The kept sessions of this host, oldest first.

        for kept in await belljar.Session.list():
            print(kept.id, kept.workspace, kept.metadata)
        """
        if (far := hosts.far_of(host, engine)) is not None:
            return await far.list()  # type: ignore[no-any-return]
        return await to_thread.run_sync(kept.listed, hosts.chosen(host, engine))

    # It may be frozen.

    async def pause(self) -> None:
        """Freeze all processes where they stand, until `resume`: `await box.pause()`.

        Meanwhile no deadline runs, and whatever needs the sandbox is a UsageError. `Unsupported` if the engine cannot.
        A kept session may stay paused when this one is closed; then its lease runs.
        """
        sandbox = self.sandbox
        if not sandbox.engine.capabilities.pauses:
            raise Unsupported(
                f"the engine {sandbox.engine.name} cannot pause a sandbox; docker, podman and oci can"
            )
        if self.is_paused:
            return
        await self.staged.copy_out()
        async with self._inside.standstill.still():
            await sandbox.pause(self.options.lease if self.options.keep else None)
        self._ledger.record("pause")

    async def resume(self) -> None:
        """Let the processes of a paused session go on: `await box.resume()`."""
        if not self.is_paused:
            return
        await self.sandbox.resume()
        self._ledger.record("resume")

    @property
    def is_paused(self) -> bool:
        return self._inside.is_paused

    # It ends.

    async def stop(self) -> None:
        """End the sandbox, even a kept one: `await box.stop()`."""
        self._inside.options = replace(self.options, keep=False)
        await self.close()

    async def close(self) -> None:
        """End the sandbox; a kept one runs on until its lease ends: `await box.close()`.

        Whatever happens meanwhile, the sandbox is let go of, every start in the audit trail gets its one end, and the
        session its `session_close`: also if the sandbox has died, and if this call is cancelled.
        """
        if not self._inside.was_entered:
            return
        sandbox = self.sandbox
        try:
            if not self.is_paused:
                await self._last_refresh()
            await self.staged.copy_out_at_last()
        finally:
            self._inside.leave()
            await see_through(self._let_go(sandbox, keep=self.options.keep))

    async def _let_go(self, sandbox: Sandbox, *, keep: bool) -> None:
        try:
            self.door.close()
            if keep:
                sandbox.disconnect()
            elif self._inside.is_busy or self.is_staged or sandbox.is_paused:
                await sandbox.destroy()
                await to_thread.run_sync(self.staged.at_end, sandbox.id)
            else:
                await sandbox.retire()
        finally:
            self._ledger.close("detached" if keep else "killed")
            if not (
                self._attached and keep
            ):  # an attached session that stays kept was not closed
                self._ledger.record("session_close", kept=keep)
            await to_thread.run_sync(self.audit.flush)

    async def _last_refresh(self) -> None:
        """Record how the background shells ended."""
        if not self._ledger.unfinished:
            return
        if self.sandbox.link.lost is not None:
            self._ledger.close("sandbox_lost")
        else:
            with (
                contextlib.suppress(BelljarError),
                anyio.move_on_after(stretched(LAST_REFRESH_SECONDS)),
            ):
                await self.refresh()

    @property
    def why_lost(self) -> str:
        """Why the sandbox is gone, if it is."""
        return str(self.sandbox.link.lost or "")

    async def until_lost(self) -> None:
        """Wait until the sandbox is gone: `await box.until_lost()`."""
        gone = anyio.Event()
        self._inside.link.when_lost(gone.set)
        if self.is_open:
            await gone.wait()

    # What it is.

    @property
    def sandbox(self) -> Sandbox:
        return self._inside.sandbox

    @property
    def options(self) -> SandboxOptions:
        return self._inside.options

    @property
    def id(self) -> str:
        return self.sandbox.id

    @property
    def workspace(self) -> Workspace:
        return self.sandbox.workspace

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
    def metadata(self) -> dict[str, str]:
        """The notes that it was opened with."""
        return dict(self.options.metadata)

    @property
    def env(self) -> Mapping[str, str]:
        """The variables of each command."""
        return self._inside.env

    @property
    def allow(self) -> Allow | None:
        """The hosts that can be reached, if there is a door."""
        return self.door.allow

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
        return self._inside.is_open

    @property
    def is_staged(self) -> bool:
        """Whether changes are kept aside until someone applies them."""
        return self.staged.is_on

    def usage(self) -> dict[str, int]:
        """Memory (bytes) and processes of the whole sandbox: `box.usage()["memory"]`; empty for a remote engine."""
        return self.sandbox.usage()


async def run(
    command: Command,
    workspace: str | PathLike[str] = HERE,
    **options: Unpack[RunOptions],
) -> Result:
    """Run one command in a throwaway sandbox: `result = await belljar.run("pytest -q", workspace=".", timeout=60)`."""
    known(options, RunOptions.__annotations__.keys(), "run")
    command_options: Any = {
        name: value
        for name, value in options.items()
        if name in Options.__annotations__
    }
    session_options: Any = {
        name: value for name, value in options.items() if name not in command_options
    }
    checks.check_command(command)
    checks.check(command_options, "run")
    async with Session(workspace, **session_options) as box:
        return await box.run(command, **command_options)
