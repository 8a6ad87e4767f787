"""One sandbox: a container, its directory on the host and the link to its init, from launch to destruction.

launch.py starts it, which blocks; here that happens in a worker thread, and the running sandbox is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread
from anyio.lowlevel import RunVar

from belljar.errors import BelljarError, EngineError, SandboxLost
from belljar.link.link import Link
from belljar.patience import stretched
from belljar.sandbox import rundir
from belljar.sandbox.launch import DIAL_SECONDS, Launch, Plan, attach, launch
from belljar.tasks import made_in_thread, see_through

if TYPE_CHECKING:
    from belljar.host import Host

__all__ = ["Plan", "Sandbox"]

ALIVE_SECONDS = 2.5  # the engine's word on a silent sandbox; without it, it is taken for lost
REMAINS_SECONDS = 1.0  # its processes are gone; a volume that was written full may take the kernel longer to let go
DESTROY_SECONDS = 3.5  # longer and it goes on beside us
GOODBYE_SECONDS = 1.0  # an init that is asked to shut down needs a few milliseconds
STARTS_AT_ONCE = 8  # a burst queues here, where waiting is cheap, not in the daemon, where it looks like a hang

_starts: RunVar[anyio.CapacityLimiter] = RunVar("belljar_starts")


class Sandbox:
    def __init__(self, made: Launch) -> None:
        self.id, self.plan, self.engine = made.id, made.plan, made.engine
        self.workspace, self.launched, self.run_dir, self.held = made.workspace, made.launched, made.run_dir, made.held
        self._transport, self._token, self.init = made.transport, made.token, made.init
        self.link: Link
        self.when_idle: Callable[[Sandbox], bool] | None = None
        """Takes over a sandbox in which nothing runs any longer, to destroy it later; False: it does not."""
        self.when_ended: Callable[[Callable[[], None]], None] | None = None
        """Takes over to clear away what the engine has left of it when its init has ended."""

    @classmethod
    async def launch(cls, plan: Plan, host: Host, id: str | None = None) -> Sandbox:
        """Ours from the first moment: whoever is cancelled on the way leaves nothing behind."""
        name = id or rundir.new_session_id()
        made = await made_in_thread(lambda: launch(plan, name, host), Launch.discard, _limiter())
        return await cls.greeted(made)

    @classmethod
    async def greeted(cls, made: Launch) -> Sandbox:
        """A sandbox of our own whose init has answered."""
        sandbox = cls(made)
        try:
            await sandbox._greet()
        except BaseException:
            await sandbox.destroy()
            raise
        return sandbox

    @classmethod
    async def attach(cls, id: str, host: Host) -> Sandbox:
        """The sandbox that another process keeps."""
        name = rundir.check_session_id(id)
        sandbox = cls(await made_in_thread(lambda: attach(name, host), _leave))
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
            return
        self.link.close("its init did not answer")
        raise SandboxLost("the sandbox started, but its init did not answer")

    async def _still_alive(self) -> bool:
        """The engine's word on a sandbox that has gone silent."""
        with anyio.move_on_after(stretched(ALIVE_SECONDS)), suppress(BelljarError):
            return await to_thread.run_sync(self.engine.state, self.launched.id, abandon_on_cancel=True) == "running"
        return False

    def disconnect(self) -> None:
        """Leave a kept sandbox to its lease."""
        self.link.close()
        if self.held is not None:
            self.held.release()
        self.workspace.close()

    async def retire(self) -> None:
        """Nobody needs it any longer. What runs in it ends now; where nothing does, the rest may wait."""
        if self.link.follows_nothing and self.when_idle is not None and self.when_idle(self):
            return
        await self.destroy()

    async def destroy(self) -> None:
        """Nothing of it is left: processes now, the container within moments (it removes itself), the directory now."""
        await see_through(self._destroy())

    async def _destroy(self) -> None:
        try:
            ended = await self._end_init()
            if ended and self.when_ended is not None and self.engine.leaves_remains:
                self.when_ended(partial(self.engine.destroy, self.launched.id))
            elif not ended or self.engine.leaves_remains:
                patience = REMAINS_SECONDS if ended else stretched(DESTROY_SECONDS)
                with anyio.move_on_after(patience, shield=True), suppress(EngineError):
                    await to_thread.run_sync(self.engine.destroy, self.launched.id, abandon_on_cancel=True)
        finally:
            await to_thread.run_sync(self._clear)  # files, of which a busy machine takes milliseconds each

    def _clear(self) -> None:
        if self.held is not None:
            self.held.close()
        else:
            rundir.remove_run_dir(self.run_dir)
        self.workspace.close()

    async def _end_init(self) -> bool:
        """Tell the init to end; its hanging up is the proof that it did."""
        link = getattr(self, "link", None)
        if link is None or link.lost is not None:
            return False
        gone = anyio.Event()
        link.when_lost(gone.set)
        link.shutdown()
        with anyio.move_on_after(stretched(GOODBYE_SECONDS), shield=True):
            await gone.wait()
        ended = gone.is_set()
        link.close()
        return ended


def _leave(made: Launch) -> None:
    """Undo an `attach` that nobody waited for; the sandbox is another's."""
    made.transport.close()
    made.workspace.close()


def _limiter() -> anyio.CapacityLimiter:
    try:
        return _starts.get()
    except LookupError:
        _starts.set(limiter := anyio.CapacityLimiter(STARTS_AT_ONCE))
        return limiter
