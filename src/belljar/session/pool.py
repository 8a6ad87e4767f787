"""The pool: sandboxes that are started, verified and connected before anyone needs them.

Each sandbox is used once. Claimed ones are replaced in the background, up to a limit of count and memory; when the pool
is empty a claim starts a sandbox of its own. Used sandboxes in which nothing runs are destroyed in the background too.
Both compete with claims for the processor, so they wait until a burst of claims is over. A pool without a claim for
`idle` seconds destroys its sandboxes, and fills again at the next claim. While a pool is open, every `Session` and
`belljar.run` of its process that needs the same kind of sandbox takes one from it. If the process dies, each sandbox
ends with its lease.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections import deque
from collections.abc import AsyncIterator, Coroutine
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any, Never, Self, Unpack

import anyio
from anyio import to_thread

from belljar import host as hosts
from belljar.errors import EngineError, SandboxLost, UsageError, WorkspaceError
from belljar.limits import parse_size, size_text
from belljar.options import HERE, PUBLIC, Here, known, seconds, whole
from belljar.patience import stretched
from belljar.sandbox.sandbox import Sandbox
from belljar.session.judging import judged
from belljar.session.options import ClaimOptions, LiveParts, SessionOptions
from belljar.session.session import Session
from belljar.tasks import see_through

if TYPE_CHECKING:
    pass

IDLE_COST = (
    16 << 20
)  # estimated bytes of a waiting sandbox, with its container's bookkeeping on the host
CHECK_SECONDS = 0.5  # a sandbox that takes longer to answer is not handed out
RETRY_SECONDS = 1.0  # pause after a failed start
FILLERS = 4  # starts in flight per pool
QUIET_SECONDS = 0.15  # without a claim for so long, a burst is over
PATIENCE_SECONDS = 1.0  # the same while a claimed sandbox is in use; the refill waits at most twice this
MOST_WAITING = 100_000
NOT_OPEN = "this pool is not open; write `async with belljar.Pool(...) as pool:`"
NOT_POOLED = frozenset(("workspace", "keep", "id"))


class Pool:
    """Warm sandboxes, each used once.

    async with belljar.Pool(workspace=".", size=4) as pool:
        await pool.ready()
        async with pool.session() as box:
            result = await box.run("make test")
    """

    def __new__(
        cls,
        workspace: str | PathLike[str] = HERE,
        *,
        size: int = 4,
        memory: object = None,
        idle: float = 300.0,
        **options: Any,
    ) -> Any:
        """With a far host, the pool that it makes."""
        if (
            far := hosts.far_of(options.get("host"), options.get("engine"))
        ) is not None:
            return far.pool(
                None if isinstance(workspace, Here) else workspace, size=size, **options
            )
        return super().__new__(cls)

    def __init__(
        self,
        workspace: str | PathLike[str] = HERE,
        *,
        size: int = 4,
        memory: int | str | None = None,
        idle: float = 300.0,
        **options: Unpack[SessionOptions],
    ) -> None:
        """`memory` bounds what waiting sandboxes may take together; `options` are those of each Session."""
        known(options, PUBLIC - NOT_POOLED | LiveParts.__annotations__.keys(), "Pool")
        whole("size", size, 0, MOST_WAITING)
        seconds("idle", idle, optional=False)
        first = Session(
            workspace, **options
        )  # raises for wrong options now, not at the first claim
        self.host = first.host
        self._policy = first.policy
        self.options = replace(first.options, workspace=os.path.realpath(workspace))
        self.size, self.idle = (
            size if memory is None else min(size, _bytes(memory) // IDLE_COST),
            idle,
        )
        self._live: Any = {
            "approve": options.get("approve"),
            "audit": options.get("audit"),
            "host": self.host,
        }
        self.loop: asyncio.AbstractEventLoop | None = None
        self._ready: deque[Sandbox] = deque()
        self._used: deque[Sandbox] = deque()
        """To be destroyed: nothing runs in them. At most `size`."""
        self._filling: set[asyncio.Task[None]] = set()
        self._background: set[asyncio.Task[object]] = set()
        self._claimed = time.monotonic()
        self._unfilled_since: float | None = None
        """Time of the first claim since the last refill."""
        self._in_use = 0
        self._timer: asyncio.TimerHandle | None = None
        self._change = asyncio.Event()
        self._failure: Exception | None = None
        self._closed = True
        self._drained = False
        self._watch: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        if not self._closed:
            raise UsageError(
                "this pool is already open; make a new Pool for a second `async with`"
            )
        self._closed = False
        self._claimed = time.monotonic()
        self.loop = asyncio.get_running_loop()
        self.host.pools.append(self)
        self._fill()
        self._in_background(
            judged(self._policy, "true && true")
        )  # loads the policy now, not at the first claim
        self._watch = self.loop.create_task(self._drain_when_idle())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closed = True
        self._change.set()
        self.host.pools.remove(self)
        await see_through(self._end_all())

    def __enter__(self) -> Never:
        raise UsageError(
            "a Pool is asynchronous: write `async with`, or use belljar.sync.Pool"
        )

    def __exit__(self, *_: object) -> None: ...

    async def _end_all(self) -> None:
        for waiting in (self._watch, self._timer):
            if waiting is not None:
                waiting.cancel()
        if tasks := self._filling | self._background:
            await asyncio.wait(tasks)
        await self._destroy_all(self._ready)
        await self._destroy_all(self._used)

    @property
    def waiting(self) -> int:
        """Sandboxes that could be claimed now."""
        return len(self._ready)

    async def ready(self) -> None:
        """Wait until the pool is full; raises what keeps it from being filled: `await pool.ready()`."""
        self._check_open()
        while len(self._ready) < self.size:
            self._change.clear()
            self._fill()
            if self._failure is not None:
                raise self._failure
            await self._change.wait()
            self._check_open()

    def _check_open(self) -> None:
        if self._closed:
            raise UsageError(NOT_OPEN)

    @contextlib.asynccontextmanager
    async def session(self, **options: Unpack[ClaimOptions]) -> AsyncIterator[Session]:
        """A session in a sandbox of its own, destroyed afterwards; `options` override the pool's (policy, …).

        async with pool.session(policy="strict") as box: ...
        """
        known(options, ClaimOptions.__annotations__.keys(), "Pool.session")
        self._check_open()
        given: Any = options
        live = {
            **self._live,
            **{name: given[name] for name in ("approve", "audit") if name in given},
        }
        own = self.options.changed(
            **{name: given[name] for name in ("policy", "env") if name in given}
        )
        if options:
            Session.of(
                own, **live
            )  # raises for wrong options before a sandbox is taken
        self._in_use += 1
        try:
            sandbox = await self.claim() or await Sandbox.launch(
                self.options, self.host
            )
            session = await Session.adopt(sandbox, own, **live)
            try:
                yield session
            finally:
                await session.close()
        finally:
            self._in_use -= 1

    async def claim(self) -> Sandbox | None:
        """A fresh sandbox, or None if none is ready."""
        self._claimed = time.monotonic()
        self._refill_soon()  # before the first await: a start that ends meanwhile must not begin another
        while self._ready:
            sandbox = self._ready.popleft()
            try:
                usable = await _is_usable(sandbox)
            except BaseException:
                await sandbox.destroy()
                raise
            if usable:
                sandbox.when_idle = self._take_back
                return sandbox
            await sandbox.destroy()
        return None

    def _take_back(self, sandbox: Sandbox) -> bool:
        """Destroy it later; False: the caller must destroy it now."""
        if self._closed or len(self._used) >= self.size:
            return False
        self._used.append(sandbox)
        self._refill_soon()
        return True

    # Filling and draining.

    def _refill_soon(self) -> None:
        """Refill once the burst of claims is over: a start would take the processor from them."""
        if self._closed or self._timer is not None:
            return
        if self._unfilled_since is None:
            self._unfilled_since = time.monotonic()
        assert self.loop is not None
        self._timer = self.loop.call_later(QUIET_SECONDS, self._refill)

    def _refill(self) -> None:
        self._timer = None
        if (
            self._busy()
            and time.monotonic() - (self._unfilled_since or 0.0) < 2 * PATIENCE_SECONDS
        ):
            self._refill_soon()
        else:
            self._unfilled_since = None
            self._fill()
            self._in_background(self._destroy_used())

    def _busy(self) -> bool:
        return time.monotonic() - self._claimed < (
            PATIENCE_SECONDS if self._in_use else QUIET_SECONDS
        )

    def _fill(self) -> None:
        self._drained = False
        lacking = self.size - len(self._ready) - len(self._filling)
        for _ in range(min(lacking, FILLERS - len(self._filling))):
            if self._closed:
                return
            task = asyncio.get_running_loop().create_task(self._add())
            self._filling.add(task)
            task.add_done_callback(self._added)

    async def _add(self) -> None:
        """Launch one. Whatever keeps it from starting is told to who waits, and the next start waits a while."""
        try:
            engine = await to_thread.run_sync(self.host.connect)
            if engine.capabilities.sees_processes:  # else it has another memory
                _check_memory(self.options.limits.memory)
            sandbox = await Sandbox.launch(self.options, self.host)
            self._failure = None
            if self._closed or self._drained or len(self._ready) >= self.size:
                await sandbox.destroy()
            else:
                self._ready.append(sandbox)
            self._change.set()
        except Exception as failure:
            self._failure = failure
            self._change.set()
            await asyncio.sleep(RETRY_SECONDS)

    def _added(self, task: asyncio.Task[None]) -> None:
        self._filling.discard(task)
        if not task.cancelled():
            task.exception()
        if (
            not self._closed
            and not self._drained
            and self._failure is None
            and self._timer is None
        ):
            self._fill()

    async def _drain_when_idle(self) -> None:
        while True:
            await asyncio.sleep(max(0.05, self._claimed + self.idle - time.monotonic()))
            if time.monotonic() - self._claimed >= self.idle and not self._drained:
                self._drained = True
                self._change.set()
                await self._destroy_all(self._ready)

    async def _destroy_used(self) -> None:
        """Stops at the next burst of claims, which starts it again."""
        while self._used and not self._busy():
            await self._used.popleft().destroy()

    @staticmethod
    async def _destroy_all(sandboxes: deque[Sandbox]) -> None:
        while sandboxes:
            await sandboxes.popleft().destroy()

    def _in_background(self, work: Coroutine[Any, Any, object]) -> None:
        assert self.loop is not None
        self._background.add(task := self.loop.create_task(work))
        task.add_done_callback(self._background.discard)


def _bytes(memory: int | str) -> int:
    try:
        return parse_size(memory)
    except ValueError as error:
        raise UsageError(f"memory: {error}") from None


async def _is_usable(sandbox: Sandbox) -> bool:
    """Whether it answers, and its workspace is still the directory at that path."""
    with (
        contextlib.suppress(SandboxLost, WorkspaceError),
        anyio.move_on_after(stretched(CHECK_SECONDS)),
    ):
        sandbox.workspace.check_path_unchanged()
        await sandbox.link.ping()
        return True
    return False


def _check_memory(need: int) -> None:
    """EngineError if this machine has no memory for one more sandbox that uses all of its limit."""
    try:
        with open("/proc/meminfo") as table:
            available = next(
                int(line.split()[1]) << 10
                for line in table
                if line.startswith("MemAvailable:")
            )
    except (OSError, StopIteration):
        return
    if available > need + IDLE_COST:
        return
    raise EngineError(
        f"the pool cannot be filled: a sandbox may use {size_text(need)} of memory, and this machine has "
        f"{size_text(available)} left; ask for less with limits=belljar.Limits(memory=…)"
    )
