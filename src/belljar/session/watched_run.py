"""`Run`: the events of a running command, and the methods to control it."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Never, Self

import anyio

from belljar.errors import UsageError
from belljar.options import whole
from belljar.session.output import STREAMS
from belljar.session.result import Ended, Event, Output, Result, Started

if TYPE_CHECKING:
    from belljar.session.background_shell import Shell
    from belljar.session.running_command import RunningCommand

MOST_EVENTS = 4096  # waiting; further output is merged


class Run:
    """Iterate over it for `Started`, `Output`… and `Ended`. The command waits while you do not take its output.

    async with box.stream("npm test") as events:
        async for event in events: ...
    """

    def __init__(
        self, running: RunningCommand, take_over: Callable[[], Awaitable[Shell | None]]
    ) -> None:
        self._running = running
        self._process = running.process
        self._take_over = take_over
        self._process.on_output = self.take
        self._process.on_started = self._announce
        self._events: deque[tuple[int, Event]] = deque()
        self._merged_output: dict[int, bytearray] = {}
        """Output that came while too many events waited. An event per byte would cost too much memory."""
        self._news = anyio.Event()
        self._over = False
        self._announced = False
        self._failure: BaseException | None = None
        self.result: Result | None = None

    @property
    def pid(self) -> int:
        """In the sandbox; 0 before it has started."""
        return self._process.pid

    def take(self, stream: int, data: bytes) -> None:
        kept = self._running.take(stream, data)
        if len(kept) < len(data):
            self._process.consumed(stream, len(data) - len(kept))
        self._announce()
        if kept:
            self._add(stream, kept)

    def _add(self, stream: int, data: bytes) -> None:
        if self._merged_output or len(self._events) >= MOST_EVENTS:
            self._merged_output.setdefault(stream, bytearray()).extend(data)
        else:
            self._push(stream, Output(STREAMS[stream], data))

    def _announce(self) -> None:
        if not self._announced:
            self._announced = True
            self._push(0, Started(self._process.pid))

    def _push(self, stream: int, event: Event) -> None:
        self._events.append((stream, event))
        self._news.set()

    async def follow(self, conclude: Callable[[], Awaitable[Result]]) -> None:
        try:
            self.result = await conclude()
            self._push_merged()
            self._push(0, Ended(self.result))
        except Exception as failure:
            self._failure = failure
        self._over = True
        self._news.set()

    async def over(self) -> None:
        """Wait for the result, even if the remaining events are never taken."""
        while not self._over:
            self._news = anyio.Event()
            await self._news.wait()

    def __iter__(self) -> Never:
        raise UsageError(
            "events come while the command runs: write `async for`, or use belljar.sync"
        )

    def __aiter__(self) -> Self:
        return self

    def _push_merged(self) -> None:
        for stream, data in self._merged_output.items():
            self._push(stream, Output(STREAMS[stream], bytes(data)))
        self._merged_output.clear()

    async def __anext__(self) -> Event:
        if not self._events:
            self._push_merged()
        while not self._events:
            if self._failure is not None:
                raise self._failure
            if self._over:
                raise StopAsyncIteration
            self._news = anyio.Event()
            await self._news.wait()
        stream, event = self._events.popleft()
        if isinstance(event, Output):
            self._process.consumed(stream, len(event.data))
        return event

    async def detach(self) -> Shell | None:
        """Let it go on as a background shell, also after this block; None if it has just ended.

        async with box.stream("npm run dev") as events:
            shell = await events.detach()
        """
        return await self._take_over()

    def interrupt(self) -> None:
        """Send Ctrl+C: `events.interrupt()`."""
        self._running.interrupt()

    def kill(self) -> None:
        """Kill the command and all its processes: `events.kill()`."""
        self._running.stop("killed")

    def signal(self, signo: int) -> None:
        """Send a signal to all its processes: `events.signal(signal.SIGHUP)`."""
        whole("signo", signo, 1, 64)
        self._process.signal(signo)

    def resize(self, rows: int, cols: int) -> None:
        """Resize its terminal (`pty=True`): `events.resize(24, 80)`."""
        self._process.resize(rows, cols)

    async def write(self, data: bytes | str) -> None:
        """Write to its stdin (`stdin_open=True` keeps it open): `await events.write("y\\n")`."""
        await self._running.input.write(
            data.encode() if isinstance(data, str) else data
        )

    def close_stdin(self) -> None:
        """Close its stdin: `events.close_stdin()`, or by its older name `events.close_input()`."""
        self._running.input.close()

    close_input = close_stdin
