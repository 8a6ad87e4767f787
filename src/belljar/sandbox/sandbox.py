"""One sandbox: a container, its directory on the host and the link to its init, from launch to destruction.

launch.py starts it and blocks, so it is called in a worker thread here.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread
from anyio.lowlevel import RunVar

from belljar.engines.base import Shares
from belljar.errors import BelljarError, EngineError, SandboxLost
from belljar.link.link import Link
from belljar.options import SandboxOptions, check_session_id
from belljar.patience import stretched
from belljar.sandbox import cgroup, pausing, rundir, verification
from belljar.sandbox.launch import DIAL_SECONDS, Launch, attach, launch
from belljar.tasks import made_in_thread, see_through

if TYPE_CHECKING:
    from belljar.host import Host

ALIVE_SECONDS = 2.5  # how long the engine may take to say whether a silent sandbox runs; after that it counts as lost
REMAINS_SECONDS = 1.0  # how long to wait for the removal of an ended sandbox; a full volume may take the kernel longer
DESTROY_SECONDS = 3.5  # the same for one that still runs; after that its removal goes on in the background
GOODBYE_SECONDS = 1.0  # an init that is asked to shut down needs a few milliseconds
STARTS_AT_ONCE = (
    8  # further starts wait here: in the daemon, waiting would look like a hang
)

_starts: RunVar[anyio.CapacityLimiter] = RunVar("belljar_starts")


class Sandbox:
    def __init__(self, start: Launch) -> None:
        self.id = start.id
        self.options = start.options
        self.engine = start.engine
        self.workspace = start.workspace
        self.launched = start.launched
        self.run_dir = start.run_dir
        self.held, self.door = start.held, start.door
        self._transport = start.transport
        self._token = start.token
        self.init = start.init
        self._unproven, self._taken = start.unproven, start.taken
        self.witnesses = start.witnesses
        """By whose word each protection is in force: kernel, init, engine (verification.py)."""
        self.written = None if start.waits else start.options
        """The options that its session's file names, but for the workspace's path; None: it says that it waits."""
        self.link: Link
        self._mark: pausing.Mark | None = None
        self.when_idle: Callable[[Sandbox], bool] | None = None
        """Called with a sandbox in which nothing runs; True: the callee will destroy it later."""
        self.when_ended: Callable[[Callable[[], None]], None] | None = None
        """Called once the init has ended, with the function that removes what the engine has left of it."""

    @classmethod
    async def launch(cls, options: SandboxOptions, host: Host) -> Sandbox:
        """A caller that is cancelled on the way leaves nothing behind."""
        name = options.id or rundir.new_session_id()
        return await cls.greeted(
            await made_in_thread(
                lambda: launch(options, name, host), Launch.discard, _limiter()
            )
        )

    @classmethod
    async def greeted(cls, start: Launch) -> Sandbox:
        """The sandbox, once its init has answered."""
        sandbox = cls(start)
        try:
            await sandbox._greet()
        except BaseException:
            await sandbox.destroy()
            raise
        return sandbox

    @classmethod
    async def attach(cls, id: str, host: Host, *, resume: bool = False) -> Sandbox:
        """Connect to a kept sandbox; with `resume` one that is paused goes on."""
        name = check_session_id(id)
        sandbox = cls(
            await made_in_thread(lambda: attach(name, host, resume=resume), _leave)
        )
        try:
            await sandbox._greet()
        except BaseException:
            sandbox.disconnect()
            raise
        return sandbox

    async def _greet(self) -> None:
        self.link = Link(self._transport, self._still_alive)
        with anyio.move_on_after(stretched(DIAL_SECONDS)):
            await self.link.hello(self._token)
            await self._prove()
            if self._taken:
                self.link.lease(self.options.lease)
            return
        self.link.close("its init did not answer")
        raise SandboxLost("the sandbox started, but its init did not answer")

    async def _prove(self) -> None:
        """Where this machine cannot look into the sandbox, the init testifies before any command runs."""
        if self._unproven is not None:
            testimony = await self.link.testify(
                verification.asked_inside(self._unproven)
            )
            self.witnesses = verification.verify_inside(
                self._unproven, self.launched.claims, testimony
            )

    async def _still_alive(self) -> bool:
        """Whether a silent sandbox still runs, according to the engine."""
        with anyio.move_on_after(stretched(ALIVE_SECONDS)), suppress(BelljarError):
            return (
                await to_thread.run_sync(
                    self.engine.state, self.launched.id, abandon_on_cancel=True
                )
                == "running"
            )
        return False

    @property
    def is_paused(self) -> bool:
        return self.link.is_paused

    def usage(self) -> dict[str, int]:
        """Memory (bytes) and processes of its group; empty if that is on another machine."""
        return cgroup.usage(self.launched.pid) if self._sees_group else {}

    def cpu_time(self) -> float | None:
        """Seconds of processor time that its group has used; None if nobody here knows."""
        return cgroup.cpu_time(self.launched.pid) if self._sees_group else None

    @property
    def _sees_group(self) -> bool:
        return self.engine.capabilities.sees_groups

    async def pause(self, lease: float | None) -> None:
        """Freeze all that runs in it, its init too. `lease`: of a kept one, which other processes may find."""
        await self.link.halt()
        try:
            if lease is not None:
                self._mark = await to_thread.run_sync(
                    pausing.Mark.make, self.run_dir, lease
                )
            await to_thread.run_sync(self.engine.pause, self.launched.id)
        except BaseException:
            await see_through(self.resume())
            raise

    async def resume(self) -> None:
        await to_thread.run_sync(self.engine.resume, self.launched.id)
        mark, self._mark = self._mark, None
        if mark is not None:
            await to_thread.run_sync(mark.remove)
        self.link.go_on()

    async def offer(self, lease: float) -> str:
        """Have it wait, for `lease` seconds, for whichever host takes it first; it is not ours any more. Returns its
        kind."""
        assert isinstance(self.engine, Shares)
        assert self._unproven is not None
        self.link.lease(lease)
        await self.link.ping()
        kind = await to_thread.run_sync(
            self.engine.offer, self.launched.id, self._unproven
        )
        self.link.close()
        await to_thread.run_sync(self._clear)
        return kind

    def disconnect(self) -> None:
        """Disconnect from a kept sandbox; it runs on, or stays paused, until its lease ends."""
        self.link.close()
        if self._mark is not None:
            self._mark.release()
        if self.held is not None:
            self.held.release()
        self.workspace.close()

    async def retire(self) -> None:
        """Destroy it now if something runs in it; else maybe later (`when_idle`)."""
        if (
            self.link.follows_nothing
            and self.when_idle is not None
            and self.when_idle(self)
        ):
            return
        await self.destroy()

    async def destroy(self) -> None:
        """Kill its processes and remove its directory; its container removes itself within moments."""
        await see_through(self._destroy())

    async def _destroy(self) -> None:
        try:
            ended = await self._end_init()
            if (
                ended
                and self.when_ended is not None
                and not self.engine.capabilities.removes_itself
            ):
                self.when_ended(partial(self.engine.destroy, self.launched.id))
            elif not ended or not self.engine.capabilities.removes_itself:
                patience = REMAINS_SECONDS if ended else stretched(DESTROY_SECONDS)
                with anyio.move_on_after(patience, shield=True), suppress(EngineError):
                    await to_thread.run_sync(
                        self.engine.destroy, self.launched.id, abandon_on_cancel=True
                    )
        finally:
            await to_thread.run_sync(
                self._clear
            )  # on a busy machine each file takes milliseconds

    def _clear(self) -> None:
        if self._mark is not None:
            self._mark.remove()
        if self.held is not None:
            self.held.close()
        else:
            rundir.remove_run_dir(self.run_dir)
        self.workspace.close()

    async def _end_init(self) -> bool:
        """Ask the init to shut down; whether it closed the connection, which proves that it has ended."""
        link = getattr(self, "link", None)
        if link is None or link.lost is not None:
            return False
        if link.is_paused:  # only the engine can end it
            link.close()
            return False
        gone = anyio.Event()
        link.when_lost(gone.set)
        link.shutdown()
        with anyio.move_on_after(stretched(GOODBYE_SECONDS), shield=True):
            await gone.wait()
        ended = gone.is_set()
        link.close()
        return ended


def _leave(start: Launch) -> None:
    """Undo an `attach` whose caller was cancelled; the sandbox is not ours."""
    start.transport.close()
    start.workspace.close()


def _limiter() -> anyio.CapacityLimiter:
    try:
        return _starts.get()
    except LookupError:
        _starts.set(limiter := anyio.CapacityLimiter(STARTS_AT_ONCE))
        return limiter
