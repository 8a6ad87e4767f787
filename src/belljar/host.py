"""A host holds what sandboxes share: one engine, one run directory, one audit trail and the open pools.

Two hosts with different engines and state can be used in one process. Most programs need none of their own: `Session`,
`Pool` and `run` use a default host, which follows the environment (BELLJAR_ENGINE, BELLJAR_RUN, BELLJAR_STATE,
BELLJAR_AUDIT).

    host = belljar.Host(engine="docker", run="/run/tenant-a", state="/var/lib/tenant-a")
    async with belljar.Session("/srv/a", host=host) as box: ...

May import: engines and audit. The layers above, from `sandbox` on, get a host as an argument.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args, runtime_checkable

from belljar import enforcement, engines, environment, resources
from belljar.errors import UsageError
from belljar.images.progress import Progress, quiet

if TYPE_CHECKING:
    from os import PathLike

    from anyio.from_thread import BlockingPortal

    from belljar.audit.writer import Audit
    from belljar.engines.base import Engine
    from belljar.workspace.survey import Surveys

EngineName = Literal["auto", engines.Known]


class WarmPool(Protocol):
    """An open `belljar.Pool`, as its host knows it."""

    options: Any
    loop: Any

    async def claim(self) -> Any: ...


@runtime_checkable
class FarHost(Protocol):
    """A service that has the sandboxes, as `belljar.connect` gives it. Its sessions are `Box`es too."""

    url: str

    def session(self, workspace: Any = None, **options: Any) -> Any: ...
    def restored(self, options: Any, **live: Any) -> Any: ...
    async def items(self, what: str, **query: Any) -> Any: ...
    def pool(self, workspace: Any = None, *, size: int = 4, **options: Any) -> Any: ...
    async def attach(self, id: str, **options: Any) -> Any: ...
    async def list(self) -> Any: ...
    async def drop_snapshot(self, name: str) -> None: ...
    def portal(self) -> BlockingPortal: ...


class Host:
    """One engine, run directory, audit trail and set of pools.

    host = belljar.Host(engine="docker", run="/run/tenant-a", state="/var/lib/tenant-a")
    """

    def __init__(
        self,
        *,
        engine: EngineName | None = None,
        runtime: str | None = None,
        run: str | PathLike[str] | None = None,
        state: str | PathLike[str] | None = None,
        audit: Audit | None = None,
    ) -> None:
        """Whatever is left out follows the environment. `run` must be a directory that only its owner can enter."""
        self._name = None if engine is None else check_engine(engine)
        self._runtime = runtime
        self._run = None if run is None else Path(os.path.abspath(run))
        self._state = None if state is None else Path(os.path.abspath(state))
        self._audit = audit
        self._audits: dict[tuple[Path, str, enforcement.Trail], Audit] = {}
        self._lock, self._connecting = threading.RLock(), threading.Lock()
        """Two: while one thread connects, which may take long, others go on with what needs no engine."""
        self._engine: Engine | None = None
        self._portal: BlockingPortal | None = None
        self.pools: list[WarmPool] = []
        """The open pools; each belongs to the event loop that opened it."""
        self.reaping = threading.Lock()
        """The first launch takes it and keeps it, so that the remains of dead processes are looked for only once."""
        self.progress: Progress = quiet
        """Told while an image is built for a sandbox."""

    @property
    def engine_name(self) -> EngineName:
        asked = environment.value("BELLJAR_ENGINE")
        return self._name or check_engine(
            enforcement.chosen("engine", "" if asked == "auto" else asked) or "auto"
        )

    def connect(self) -> Engine:
        """The engine, looked for at the first call. Blocking: call it from a thread."""
        with self._connecting:
            if self._engine is None:
                state = self.state_root if self._state else None
                asked = (
                    environment.value("BELLJAR_RUNTIME")
                    if self._runtime is None
                    else self._runtime
                )
                runtime = enforcement.chosen("runtime", asked)
                engine = engines.connect(self.engine_name, runtime, state)
                enforcement.check_engine(engine.name, runtime)
                self._engine = engine
            return self._engine

    def forget(self) -> None:
        """Make the next `connect` look for the engine again (another DOCKER_HOST, a restarted engine)."""
        with self._connecting:
            engine, self._engine = self._engine, None
        if engine is not None:
            engine.close()

    @property
    def run_root(self) -> Path:
        """The directory that holds a directory for each of its sandboxes."""
        return (
            resources.closed_to_others(self._run) if self._run else resources.run_root()
        )

    @property
    def state_root(self) -> Path:
        """Where the audit trail, staged changes, caches, volumes and the engine's own records are. Not the images:
        all hosts of a user share one store (BELLJAR_IMAGES)."""
        return resources.own_directory(
            enforcement.state(self._state or resources.state_path())
        )

    @cached_property
    def surveys(self) -> Surveys:
        """Recent walks over workspaces, which sandboxes that start together share."""
        from belljar.workspace.survey import Surveys

        return Surveys()

    @property
    def staged_root(self) -> Path:
        """Where staged changes are kept until they are applied or discarded."""
        return self.state_root / "staged"

    @property
    def snapshots_root(self) -> Path:
        """Where the snapshots of sandboxes are."""
        return self.state_root / "snapshots"

    @property
    def caches_root(self) -> Path:
        """Where the caches are that sessions share: a directory for each owner."""
        return self.state_root / "caches"

    @property
    def audit_root(self) -> Path:
        """The directory of the audit trail."""
        return self._audit.where if self._audit is not None else self.state_root

    @property
    def audit(self) -> Audit:
        if self._audit is not None:
            enforcement.trail(self._audit.mode)
            enforcement.state(self._audit.where)
            enforcement.check_places([place.name for place in self._audit.to])
            return self._audit
        from belljar.audit import writer as audits

        where, mode = (
            self.state_root,
            enforcement.trail(environment.value("BELLJAR_AUDIT").lower()),
        )
        kept = enforcement.kept_trail(environment.value("BELLJAR_TRAIL"))
        with self._lock:
            if (where, mode, kept) not in self._audits:
                opened = audits.open_trail(where, mode, **kept.options())
                self._audits[where, mode, kept] = opened
            return self._audits[where, mode, kept]

    def portal(self) -> BlockingPortal:
        """The portal to the event loop that serves this host's blocking callers (belljar.sync)."""
        with self._lock:
            if self._portal is None:
                self._portal = start_loop()
            return self._portal

    def close(self) -> None:
        """Close the engine, the audit trail and the event loop. Close open sessions and pools first."""
        self.forget()
        for audit in self._audits.values():
            audit.close()
        self._audits.clear()
        portal, self._portal = self._portal, None
        if portal is not None:
            portal.call(portal.stop)


def start_loop() -> BlockingPortal:
    """Start an event loop in a daemon thread, which does not keep the process alive."""
    from concurrent.futures import Future

    import anyio
    from anyio.from_thread import BlockingPortal

    async def serve() -> None:
        async with BlockingPortal() as portal:
            started.set_result(portal)
            await portal.sleep_until_stopped()

    started: Future[BlockingPortal] = Future()
    threading.Thread(
        target=anyio.run, args=[serve], name="belljar-sync", daemon=True
    ).start()
    return started.result()


def check_engine(name: Any) -> EngineName:
    if name not in get_args(EngineName):
        raise UsageError(
            f"engine: {name!r} is not known; choose from {', '.join(get_args(EngineName))}"
        )
    return name  # type: ignore[no-any-return]


_far: list[FarHost] = []


@contextmanager
def used_far(far: FarHost) -> Iterator[FarHost]:
    """Within this block sessions without a host of their own are made and looked for there."""
    _far.append(far)
    try:
        yield far
    finally:
        _far.remove(far)


def far_of(host: object, engine: object = None) -> FarHost | None:
    """The far host that these options mean, if they mean one."""
    if isinstance(host, FarHost):
        return host
    return _far[-1] if _far and host is None and engine is None else None


_default_hosts: dict[str | None, Host] = {}
_default_lock = threading.Lock()


@contextmanager
def used(host: Host) -> Iterator[Host]:
    """Within this block it is the default host of the process."""
    before = default()
    _default_hosts[None] = host
    try:
        yield host
    finally:
        _default_hosts[None] = before


def default(engine: EngineName | None = None) -> Host:
    """The process's default host; there is one for each engine name."""
    with _default_lock:
        if engine not in _default_hosts:
            _default_hosts[engine] = Host(engine=engine)
        return _default_hosts[engine]


def either(host: Host | FarHost | None, engine: EngineName | None) -> Host | FarHost:
    """The host that these options select, near or far."""
    return far_of(host, engine) or chosen(host, engine)


def chosen(host: Host | FarHost | None, engine: EngineName | None) -> Host:
    """The host that the options `host=` and `engine=` of a public function select."""
    if host is None:
        return default(engine)
    if isinstance(host, FarHost):
        raise UsageError(f"this needs a host on this machine, and {host!r} is far away")
    if not isinstance(host, Host):
        raise UsageError(f"host: {host!r} is not a belljar.Host")
    if engine is not None and check_engine(engine) != host.engine_name:
        raise UsageError(
            "give either host= or engine=, not both: a host has its own engine"
        )
    return host
