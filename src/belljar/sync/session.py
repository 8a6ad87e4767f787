"""Sessions and pools, blocking."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from os import PathLike
from typing import Any, Self, Unpack

from belljar import host as hosts
from belljar.host import EngineName, FarHost, Host
from belljar.limits import Limits
from belljar.network.allow import Allow
from belljar.options import HERE, known
from belljar.policy import Policy
from belljar.policy.approvals import Approvals
from belljar.session import background_shell, shells, staged
from belljar.session import pool as pools
from belljar.session import session as sessions
from belljar.session.commands import Request
from belljar.session.door import SessionDoor
from belljar.session.flat import flat
from belljar.session.kept import Kept
from belljar.session.options import (
    AttachOptions,
    ClaimOptions,
    Command,
    OpenOptions,
    Options,
    SessionOptions,
)
from belljar.session.result import Result
from belljar.session.snapshot import Snapshot
from belljar.staged.area import Point
from belljar.sync.facade import Facade, Same, blocking, in_loop, same
from belljar.sync.files import Files
from belljar.sync.loop import Loop
from belljar.sync.shells import PersistentShell, Run, Shell
from belljar.workspace.pinned import Workspace


class Door(Facade[SessionDoor]):
    """`box.door` of a blocking session: `box.door.allow_host("api.example.com")`."""

    allow = Same[Allow | None]("What it lets through; None: it is not open.")
    allow_host = blocking(SessionDoor.allow_host)
    forward = blocking(SessionDoor.forward)
    listening = blocking(SessionDoor.listening)


class Staged(Facade[staged.Staged]):
    """`box.staged` of a blocking session: `box.staged.apply(["src"])`."""

    is_on = Same[bool]("Whether changes are kept aside until someone applies them.")
    changes = blocking(staged.Staged.changes)
    apply = blocking(staged.Staged.apply)
    show = blocking(staged.Staged.show)
    apply_shown = blocking(staged.Staged.apply_shown)
    undo_apply = blocking(staged.Staged.undo_apply)
    discard = blocking(staged.Staged.discard)
    checkpoint = blocking(staged.Staged.checkpoint)
    checkpoints = same(staged.Staged.checkpoints)
    left_out = same(staged.Staged.left_out)
    forget_checkpoint = blocking(staged.Staged.forget_checkpoint)
    rollback = blocking(staged.Staged.rollback)

    def diff(
        self,
        paths: Iterable[str] | None = None,
        *,
        against: Staged | None = None,
        since: Point | str | None = None,
        until: Point | str | None = None,
        ignored: bool = False,
    ) -> str:
        """Changes as a unified diff, or the difference to another session's files: `print(box.staged.diff())`."""
        other = against._of if against else None
        return self._loop.call(
            self._of.diff,
            paths,
            against=other,
            since=since,
            until=until,
            ignored=ignored,
        )


class Shells(Facade[shells.Shells]):
    """`box.shells` of a blocking session: `shell = box.shells.start("npm run dev")`."""

    cleanup = blocking(shells.Shells.cleanup)

    def __call__(self) -> builtins.list[Shell]:
        return [Shell(self._loop, shell) for shell in self._of()]

    def get(self, id: str) -> Shell:
        return Shell(self._loop, self._of.get(id))

    def named(self, name: str) -> PersistentShell:
        return PersistentShell(self._loop, self._of.named(name))

    def refresh(self) -> builtins.list[Shell]:
        """Ask the sandbox for its shells, also those that other processes started: `box.refresh()`."""
        return [Shell(self._loop, shell) for shell in self._loop.call(self._of.refresh)]

    def start(
        self,
        command: Command | Request,
        *,
        ring: int | None = None,
        **options: Unpack[Options],
    ) -> Shell:
        """Start a background shell: `shell = box.start("npm run dev")`."""
        return Shell(
            self._loop, self._loop.call(self._of.start, command, ring=ring, **options)
        )

    def yielding(
        self,
        command: Command | Request,
        *,
        yield_after: float,
        **options: Unpack[Options],
    ) -> Result | Shell:
        """Run a command; after `yield_after` seconds it goes on as a background shell.

        outcome = box.yielding("make", yield_after=10)
        """
        outcome = self._loop.call(
            self._of.yielding, command, yield_after=yield_after, **options
        )
        return (
            Shell(self._loop, outcome)
            if isinstance(outcome, background_shell.Shell)
            else outcome
        )

    @property
    def persistent(self) -> PersistentShell:
        return PersistentShell(self._loop, self._of.persistent)


class Session(Facade[sessions.Session]):
    """One sandbox and the commands that run in it.

    with belljar.sync.Session(workspace=".", limits=belljar.Limits(memory="1g")) as box:
        result = box.run("make -j2", timeout=300)
    """

    def __init__(
        self, workspace: str | PathLike[str] = HERE, **options: Unpack[OpenOptions]
    ) -> None:
        self._wrap(sessions.Session(workspace, **options))

    def _wrap(self, session: sessions.Session) -> Self:
        super().__init__(Loop(session.host), session)
        return self

    @classmethod
    def attach(cls, id: str, **options: Unpack[AttachOptions]) -> Self:
        """Enter a session that another process keeps (`keep=True`): `belljar.sync.Session.attach("bj-…")`."""
        known(options, AttachOptions.__annotations__.keys(), "Session.attach")
        host = hosts.either(options.get("host"), options.get("engine"))
        return cls.__new__(cls)._wrap(
            Loop(host).call(sessions.Session.attach, id, **options)
        )

    @staticmethod
    def snapshots(
        *, host: Host | None = None, engine: EngineName | None = None
    ) -> tuple[Snapshot, ...]:
        """The snapshots of this host, oldest first: `belljar.sync.Session.snapshots()`."""
        return Loop(hosts.chosen(host, engine)).call(
            sessions.Session.snapshots, host=host, engine=engine
        )

    @staticmethod
    def remove_snapshot(
        name: str, *, host: Host | None = None, engine: EngineName | None = None
    ) -> None:
        """Sessions that began with it go on: `belljar.sync.Session.remove_snapshot("ready")`."""
        Loop(hosts.chosen(host, engine)).call(
            sessions.Session.remove_snapshot, name, host=host, engine=engine
        )

    @staticmethod
    def list(
        *, host: Host | FarHost | None = None, engine: EngineName | None = None
    ) -> tuple[Kept, ...]:
        """The kept sessions of this host, oldest first: `belljar.sync.Session.list()`."""
        return Loop(hosts.either(host, engine)).call(
            sessions.Session.list, host=host, engine=engine
        )

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *error: object) -> None:
        self._loop.call(self._of.__aexit__, *error)

    def open(self) -> Self:
        """Start the sandbox, or take a warm one: `box = belljar.sync.Session().open()`."""
        self._loop.call(self._of.open)
        return self

    close = blocking(sessions.Session.close)
    stop = blocking(sessions.Session.stop)
    snapshot = blocking(sessions.Session.snapshot)
    pause = blocking(sessions.Session.pause)
    resume = blocking(sessions.Session.resume)
    is_paused = Same[bool]("Whether its processes are frozen.")
    extend = in_loop(sessions.Session.extend)

    id = Same[str]()
    host = Same[hosts.Host]()
    workspace = Same[Workspace]()
    limits = Same[Limits]()
    policy = Same[Policy]()
    approvals = Same[Approvals]("Answers that hold for more than one command.")
    is_open = Same[bool]()
    until_lost = blocking(sessions.Session.until_lost)
    is_staged = Same[bool]("Whether changes are kept aside until someone applies them.")
    metadata = Same[dict[str, str]]("The notes that it was opened with.")
    usage = same(sessions.Session.usage)

    # Commands and shells.

    run = blocking(sessions.Session.run)
    admit = blocking(sessions.Session.admit)
    cleanup = blocking(sessions.Session.cleanup)

    @contextmanager
    def stream(
        self, command: Command | Request, **options: Unpack[Options]
    ) -> Iterator[Run]:
        """Run a command and watch it. Leaving early kills it.

        with box.stream("npm test") as events:
            for event in events: ...
        """
        with self._loop.within(self._of.stream(command, **options)) as run:
            yield Run(self._loop, run)

    @property
    def shells(self) -> Shells:
        """The shells of this session: `[shell.status for shell in box.shells()]`."""
        return Shells(self._loop, self._of.shells)

    start = flat("shells", Shells.start)
    yielding = flat("shells", Shells.yielding)
    refresh = flat("shells", Shells.refresh)

    def shell(self, name: str) -> Any:
        """A background shell by its id, or a persistent shell of its own: `box.shell("build").run("make")`."""
        return (
            self.shells.get(name)
            if shells.SHELL_ID.fullmatch(name)
            else self.shells.named(name)
        )

    @property
    def persistent(self) -> PersistentShell:
        """The one bash whose state holds from call to call: `box.persistent.run("cd src")`."""
        return self.shells.persistent

    # Staged changes.

    changes = blocking(sessions.Session.changes)
    apply = blocking(sessions.Session.apply)
    show = blocking(sessions.Session.show)
    apply_shown = blocking(sessions.Session.apply_shown)
    undo_apply = blocking(sessions.Session.undo_apply)
    discard = blocking(sessions.Session.discard)
    checkpoint = blocking(sessions.Session.checkpoint)
    checkpoints = same(sessions.Session.checkpoints)
    left_out = same(sessions.Session.left_out)
    forget_checkpoint = blocking(sessions.Session.forget_checkpoint)
    rollback = blocking(sessions.Session.rollback)

    def diff(
        self,
        paths: Iterable[str] | None = None,
        *,
        against: Session | None = None,
        since: Point | str | None = None,
        until: Point | str | None = None,
        ignored: bool = False,
    ) -> str:
        """Changes as a unified diff, or the difference to another session's files: `print(box.diff())`."""
        other = against._of if against else None
        return self._loop.call(
            self._of.diff,
            paths,
            against=other,
            since=since,
            until=until,
            ignored=ignored,
        )

    def fork(self, **options: Unpack[ClaimOptions]) -> Session:
        """A separate session that starts with the same files: `twin = box.fork()`."""
        return Session.__new__(Session)._wrap(self._loop.call(self._of.fork, **options))

    # Files and network.

    forward = blocking(sessions.Session.forward)
    listening = blocking(sessions.Session.listening)
    allow_host = blocking(sessions.Session.allow_host)

    @property
    def staged(self) -> Staged:
        """The changes that are kept aside: `box.staged.apply(["src"])`."""
        return Staged(self._loop, self._of.staged)

    @property
    def door(self) -> Door:
        """The hosts and ports that are open: `box.door.forward(8000)`."""
        return Door(self._loop, self._of.door)

    @property
    def files(self) -> Files:
        """The sandbox's files: `box.files.read("src/app.py")`."""
        return Files(self._loop, self._of.files)


class Pool(Facade[pools.Pool]):
    """Warm sandboxes, each used once.

    with belljar.sync.Pool(workspace=".", size=4) as pool:
        pool.ready()
        with pool.session() as box: ...
    """

    def __init__(
        self,
        workspace: str | PathLike[str] = HERE,
        *,
        size: int = 4,
        memory: int | str | None = None,
        idle: float = 300.0,
        **options: Unpack[SessionOptions],
    ) -> None:
        pool = pools.Pool(workspace, size=size, memory=memory, idle=idle, **options)
        super().__init__(Loop(pool.host), pool)

    def __enter__(self) -> Self:
        self._loop.call(self._of.__aenter__)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call(self._of.__aexit__, None, None, None)

    size = Same[int]()
    waiting = Same[int]("Sandboxes that could be claimed now.")
    ready = blocking(pools.Pool.ready)

    @contextmanager
    def session(self, **options: Unpack[ClaimOptions]) -> Iterator[Session]:
        """A session in a sandbox of its own, destroyed afterwards: `with pool.session() as box: ...`"""
        with self._loop.within(self._of.session(**options)) as box:
            yield Session.__new__(Session)._wrap(box)
