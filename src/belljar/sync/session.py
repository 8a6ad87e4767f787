"""Sessions and pools, blocking."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack

from belljar import host as hosts
from belljar.session import background_shell
from belljar.session import options as checks
from belljar.session import pool as pools
from belljar.session import session as sessions
from belljar.session.options import AttachOptions, ClaimOptions, Command, OpenOptions, Options, SessionOptions
from belljar.session.request import Request
from belljar.session.result import Result
from belljar.sync.files import Files
from belljar.sync.loop import Loop
from belljar.sync.shells import PersistentShell, Run, Shell

if TYPE_CHECKING:
    from os import PathLike

    from belljar.host import EngineName, Host
    from belljar.limits import Limits
    from belljar.policy import Policy
    from belljar.policy.approvals import Approvals
    from belljar.session.kept import Kept
    from belljar.staged.apply import Applied
    from belljar.staged.area import Point
    from belljar.staged.change import Change
    from belljar.workspace.pinned import Workspace


class _Listing:
    """Apart from `Session`, where its name would hide the built-in one."""

    @staticmethod
    def list(*, host: Host | None = None, engine: EngineName | None = None) -> tuple[Kept, ...]:
        """The kept sessions of this host, oldest first."""
        return Loop(hosts.chosen(host, engine)).call(sessions.Session.list, host=host, engine=engine)


class Session(_Listing):
    """One sandbox and the commands that run in it.

    with belljar.sync.Session(workspace=".", limits=belljar.Limits(memory="1g")) as box:
        result = box.run("make -j2", timeout=300)
    """

    def __init__(self, workspace: str | PathLike[str] = ".", **options: Unpack[OpenOptions]) -> None:
        self._of(sessions.Session(workspace, **options))

    def _of(self, session: sessions.Session) -> Self:
        self._session, self._loop = session, Loop(session.host)
        return self

    @classmethod
    def attach(cls, id: str, **options: Unpack[AttachOptions]) -> Self:
        """A session that another process keeps (`keep=True`)."""
        checks.known(options, AttachOptions.__annotations__.keys(), "Session.attach")
        host = hosts.chosen(options.get("host"), options.get("engine"))
        return cls.__new__(cls)._of(Loop(host).call(sessions.Session.attach, id, **options))

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def open(self) -> Self:
        """Start the sandbox, or take a warm one; a session that is open already stays as it is."""
        self._loop.call(self._session.open)
        return self

    def close(self) -> None:
        """End the sandbox; a kept one is left to its lease."""
        self._loop.call(self._session.close)

    def extend(self, lease: float) -> None:
        """From now on the sandbox outlives a host that is gone by `lease` seconds."""
        self._loop.do(self._session.extend, lease)

    def stop(self) -> None:
        """End the sandbox, also a kept one."""
        self._loop.call(self._session.stop)

    @property
    def id(self) -> str:
        return self._session.id

    @property
    def host(self) -> hosts.Host:
        return self._session.host

    @property
    def workspace(self) -> Workspace:
        return self._session.workspace

    @property
    def limits(self) -> Limits:
        return self._session.limits

    @property
    def policy(self) -> Policy:
        return self._session.policy

    @property
    def approvals(self) -> Approvals:
        """Answers that hold for more than one command."""
        return self._session.approvals

    @property
    def is_open(self) -> bool:
        return self._session.is_open

    @property
    def is_staged(self) -> bool:
        """Whether changes are kept aside until someone applies them."""
        return self._session.is_staged

    def usage(self) -> dict[str, int]:
        """Memory (bytes) and processes of the whole sandbox, now."""
        return self._session.usage()

    def run(self, command: Command | Request, **options: Unpack[Options]) -> Result:
        """Run a command to its end: text in a new bash, a list as an argument vector."""
        return self._loop.call(self._session.run, command, **options)

    @contextmanager
    def stream(self, command: Command | Request, **options: Unpack[Options]) -> Iterator[Run]:
        """Run a command and watch it. Leaving early kills it.

        with box.stream("npm test") as events:
            for event in events: ...
        """
        with self._loop.within(self._session.stream(command, **options)) as run:
            yield Run(self._loop, run)

    def start(self, command: Command | Request, *, ring: int | None = None, **options: Unpack[Options]) -> Shell:
        """Start a background shell."""
        return self._kept(self._loop.call(self._session.start, command, ring=ring, **options))

    def yielding(self, command: Command | Request, *, yield_after: float, **options: Unpack[Options]) -> Result | Shell:
        """Run a command; if it takes longer than `yield_after` seconds it goes on as a background shell."""
        came = self._loop.call(self._session.yielding, command, yield_after=yield_after, **options)
        return self._kept(came) if isinstance(came, background_shell.Shell) else came

    def admit(self, command: Command, *, policy: Policy | None = None, **options: Unpack[Options]) -> Request:
        """Judge a command and ask where that is needed: what comes back may run in this session."""
        return self._loop.call(self._session.admit, command, policy=policy, **options)

    def shells(self) -> list[Shell]:
        return [self._kept(shell) for shell in self._session.shells()]

    def shell(self, id: str) -> Shell:
        return self._kept(self._session.shell(id))

    def refresh(self) -> list[Shell]:
        """Ask the sandbox which shells there are, also those that other processes started."""
        return [self._kept(shell) for shell in self._loop.call(self._session.refresh)]

    def cleanup(self) -> int:
        """Forget the shells that have ended; how many there were."""
        return self._loop.call(self._session.cleanup)

    @property
    def persistent(self) -> PersistentShell:
        """The one bash whose state holds from call to call."""
        return PersistentShell(self._loop, self._session.persistent)

    # Staged changes.

    def changes(self) -> list[Change]:
        """What is not as it is on the host, in a session with `changes="staged"`."""
        return self._loop.call(self._session.changes)

    def diff(self, paths: Iterable[str] | None = None, *, against: Session | None = None) -> str:
        """Changes as a unified diff; `against`: to another session's files."""
        return self._loop.call(self._session.diff, paths, against=against._session if against else None)

    def apply(self, paths: Iterable[str] | None = None, *, force: bool = False, runs_later: bool = False) -> Applied:
        """Put changes into the real workspace."""
        return self._loop.call(self._session.apply, paths, force=force, runs_later=runs_later)

    def undo_apply(self) -> list[str]:
        """Take the last apply back, once."""
        return self._loop.call(self._session.undo_apply)

    def discard(self, paths: Iterable[str] | None = None) -> list[str]:
        """Take changes back: the sandbox sees the host's files again."""
        return self._loop.call(self._session.discard, paths)

    def checkpoint(self, name: str = "") -> Point:
        """Remember the files as they are now."""
        return self._loop.call(self._session.checkpoint, name)

    def checkpoints(self) -> list[Point]:
        return self._session.checkpoints()

    def forget_checkpoint(self, point: Point) -> None:
        """Its files stay as they are; only nobody can go back to it any more."""
        self._loop.call(self._session.forget_checkpoint, point)

    def rollback(self, point: Point | str | None = None) -> Point:
        """Back to a checkpoint, the last one by default."""
        return self._loop.call(self._session.rollback, point)

    def fork(self, **options: Unpack[ClaimOptions]) -> Session:
        """A session of its own that begins with these files."""
        return Session.__new__(Session)._of(self._loop.call(self._session.fork, **options))

    # Files and network.

    @property
    def files(self) -> Files:
        """The sandbox's files."""
        return Files(self._loop, self._session.files)

    def forward(self, port: int, *, at: int = 0) -> str:
        """A server in the sandbox, on 127.0.0.1 of this machine."""
        return self._loop.call(self._session.forward, port, at=at)

    @property
    def metadata(self) -> dict[str, str]:
        """What was said about it when it was opened."""
        return self._session.metadata

    def listening(self) -> tuple[int, ...]:
        """The ports that servers in the sandbox listen on now."""
        return self._loop.call(self._session.listening)

    def allow_host(self, *hosts: str) -> None:
        """Let more hosts through the door from now on."""
        self._loop.call(self._session.allow_host, *hosts)

    def _kept(self, shell: background_shell.Shell) -> Shell:
        return Shell(self._loop, shell)


class Pool:
    """Warm sandboxes, each used once.

    with belljar.sync.Pool(workspace=".", size=4) as pool:
        pool.ready()
        with pool.session() as box: ...
    """

    def __init__(
        self, workspace: str | PathLike[str] = ".", *, size: int = 4, memory: int | str | None = None,
        idle: float = 300.0, **options: Unpack[SessionOptions],
    ) -> None:  # fmt: skip
        self._pool = pools.Pool(workspace, size=size, memory=memory, idle=idle, **options)
        self._loop = Loop(self._pool.host)

    def __enter__(self) -> Self:
        self._loop.call(self._pool.__aenter__)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._loop.call(self._pool.__aexit__, None, None, None)

    @property
    def size(self) -> int:
        return self._pool.size

    @property
    def waiting(self) -> int:
        """Sandboxes that could be claimed now."""
        return self._pool.waiting

    def ready(self) -> None:
        """Until the pool is full; the engine's error if it cannot be filled."""
        self._loop.call(self._pool.ready)

    @contextmanager
    def session(self, **options: Unpack[ClaimOptions]) -> Iterator[Session]:
        """A session in a sandbox of its own, destroyed afterwards."""
        with self._loop.within(self._pool.session(**options)) as box:
            yield Session.__new__(Session)._of(box)
