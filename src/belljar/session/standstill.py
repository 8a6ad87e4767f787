"""Nothing runs while the workspace's mount is exchanged, for a checkpoint or a rollback.

A process keeps the mount that it began with: it would go on writing into a layer that is meant to stay as it is. So new
commands wait at a gate. What runs already is a reason to refuse (`quiet`), or is killed (`empty`). The init knows all
of it: foreground commands, background shells, file transfers, and what other processes of the host started. A
persistent shell that waits for its next text may stay, if it has no jobs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from belljar.errors import SandboxLost, UsageError
from belljar.link import frames
from belljar.link.frames import Flag, To
from belljar.patience import stretched

if TYPE_CHECKING:
    from belljar.link.link import Link
    from belljar.sandbox.sandbox import Sandbox

ENDS_SECONDS = 10.0  # how long killed commands may take to be gone
POLL_SECONDS = 0.005
LONGEST_NAME = 60


class Standstill:
    def __init__(
        self, sandbox: Callable[[], Sandbox], shell_is_busy: Callable[[], bool]
    ) -> None:
        """`shell_is_busy`: whether our persistent shell has a call under way, which it may not have read yet."""
        self._sandbox = sandbox
        self._shell_is_busy = shell_is_busy
        self._gate = anyio.Lock()

    async def passed(self) -> None:
        """Wait while the mount is exchanged. The caller starts its command before it awaits anything else."""
        if self._gate.locked():
            async with self._gate:
                pass

    @asynccontextmanager
    async def still(self) -> AsyncIterator[None]:
        """A block in which nothing starts; what runs may run on."""
        async with self._gate:
            yield

    @asynccontextmanager
    async def quiet(self, what: str) -> AsyncIterator[None]:
        """A block in which nothing runs and nothing starts; UsageError if something runs now."""
        async with self._gate:
            if running := await self.running():
                raise UsageError(
                    f"{what} waits until nothing runs ({', '.join(running)}): end it first"
                )
            yield

    @asynccontextmanager
    async def empty(self) -> AsyncIterator[None]:
        """The same, but what runs is killed first."""
        async with self._gate:
            await self._kill_all()
            yield

    @property
    def _link(self) -> Link:
        return self._sandbox().link

    async def _alive(self) -> list[frames.Listed]:
        return [listed for listed in await self._link.list() if listed.ended is None]

    async def running(self) -> list[str]:
        """What runs now, by names for people."""
        running = [
            _named(listed)
            for listed in await self._alive()
            if not await self._waits(listed)
        ]
        return running or (["the persistent shell"] if self._shell_is_busy() else [])

    async def _waits(self, listed: frames.Listed) -> bool:
        """Whether it is a persistent shell that waits for its next text and has no jobs."""
        if listed.flags & Flag.BACKGROUND:
            return False
        sandbox = self._sandbox()
        init = (
            sandbox.launched.pid if sandbox.engine.capabilities.sees_processes else None
        )
        return (await self._link.state(listed.id)).waits and not _has_jobs(
            init, listed.pid
        )

    async def _kill_all(self) -> None:
        with anyio.move_on_after(stretched(ENDS_SECONDS)):
            while alive := await self._alive():
                for listed in alive:
                    self._link.send(frames.frame(To.KILL, listed.id, frames.u32(0)))
                await anyio.sleep(POLL_SECONDS)
            return
        raise SandboxLost("commands in the sandbox could not be ended")


def _named(listed: frames.Listed) -> str:
    """As `belljar shells` names a background shell; of other commands at most the text is known."""
    if listed.flags & Flag.BACKGROUND:
        return frames.shell_id(listed.id)
    text = listed.tag.decode("utf-8", "replace")[:LONGEST_NAME]
    return text if text.isprintable() and text else "a command"


def _has_jobs(init: int | None, shell: int) -> bool:
    """Whether more than a shell and its keeper lives in the shell's tree: a child of the init. `shell`: as the sandbox
    numbers it. Unknown for another machine's sandbox."""
    for keeper in _children(init) if init is not None else ():
        tree = [keeper, *_below(keeper)]
        if any(_number_inside(pid) == shell for pid in tree):
            return len(tree) > 2
    return False


def _below(pid: int) -> Iterator[int]:
    for child in _children(pid):
        yield child
        yield from _below(child)


def _children(pid: int) -> list[int]:
    try:
        return [
            int(child)
            for thread in Path(f"/proc/{pid}/task").iterdir()
            for child in (thread / "children").read_text().split()
        ]
    except OSError:  # it has ended, or is not ours to look at
        return []


def _number_inside(pid: int) -> int | None:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return None
    return next(
        (int(line.split()[-1]) for line in lines if line.startswith("NSpid:")), None
    )
