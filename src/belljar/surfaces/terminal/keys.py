"""Passes what the user types into the sandbox, and watches for the keys that detach."""

from __future__ import annotations

import os
import signal
from asyncio import Queue, QueueFull
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Protocol

import anyio
from anyio import to_thread

from belljar.errors import SandboxLost

if TYPE_CHECKING:
    from belljar.surfaces.terminal.host import HostTerminal

DETACH = b"\x10\x11"
"""Ctrl+P, Ctrl+Q, as for Docker."""
HELD_SECONDS = 0.4
_CHUNK = 64 << 10
_MOST_ANSWERS = 16
"""Answers that wait for the program to read them. If it sends more queries without reading, they are dropped."""


class Program(Protocol):
    """A program in the sandbox that has a terminal."""

    async def write(self, data: bytes) -> None: ...

    def resize(self, rows: int, cols: int) -> None: ...


class DetachKeys:
    """Finds the two keys that mean "leave it running". The first is held back until the next key, or for a moment."""

    def __init__(self) -> None:
        self._held = b""
        self.pressed = False

    def feed(self, data: bytes) -> bytes:
        data, self._held = self._held + data, b""
        before, keys, _ = data.partition(DETACH)
        if keys:
            self.pressed = True
        elif before.endswith(DETACH[:1]):
            before, self._held = before[:-1], DETACH[:1]
        return before

    @property
    def patience(self) -> float | None:
        """Seconds after which a held key goes to the program: a shell uses Ctrl+P for its history."""
        return HELD_SECONDS if self._held else None

    def release(self) -> bytes:
        held, self._held = self._held, b""
        return held


async def read_stdin() -> bytes:
    """The next bytes of stdin; empty at the end, or if the terminal is gone."""
    try:
        await anyio.wait_readable(0)
    except (
        OSError,
        ValueError,
    ):  # epoll cannot wait for a plain file or /dev/null; reading them never blocks
        return await to_thread.run_sync(os.read, 0, _CHUNK)
    try:
        return os.read(0, _CHUNK)
    except OSError:
        return b""


async def pass_keys(
    write: Callable[[bytes], Awaitable[None]], detach: DetachKeys | None = None
) -> None:
    """Pass on stdin until it ends or the keys to detach are pressed."""
    with suppress(SandboxLost):
        while True:
            with anyio.move_on_after(
                detach.patience if detach is not None else None
            ) as waiting:
                data = await read_stdin()
                if not data:
                    return
            if detach is not None:
                data = (
                    detach.release() if waiting.cancelled_caught else detach.feed(data)
                )
            if data:
                await write(data)
            if detach is not None and detach.pressed:
                return


class Keyboard:
    """Shares stdin between the program and our own questions."""

    def __init__(self, terminal: HostTerminal | None) -> None:
        self._terminal = terminal
        self._reading = anyio.Lock()
        self._passing = anyio.CancelScope()
        self._questions = 0

    async def pass_keys(
        self,
        write: Callable[[bytes], Awaitable[None]],
        detach: DetachKeys | None = None,
    ) -> None:
        """Pass on stdin until it ends or the keys to detach are pressed. A question interrupts this."""
        ended = False
        while not ended:
            async with self._reading:
                with anyio.CancelScope() as self._passing:
                    if not self._questions:
                        await pass_keys(write, detach)
                        ended = True

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[None]:
        """Read stdin for a question. What was typed before is discarded: it was not an answer."""
        self._questions += 1
        self._passing.cancel()
        async with self._reading:
            self._questions -= 1
            with (
                self._terminal.cooked() if self._terminal is not None else nullcontext()
            ):
                yield


class Answers:
    """Answers to a program's terminal queries, waiting to be passed to it."""

    def __init__(self) -> None:
        self._waiting: Queue[bytes] = Queue(_MOST_ANSWERS)

    def put(self, data: bytes) -> None:
        with suppress(QueueFull):
            self._waiting.put_nowait(data)

    async def pass_on(self, write: Callable[[bytes], Awaitable[None]]) -> None:
        with suppress(SandboxLost):
            while True:
                await write(await self._waiting.get())


async def pass_size(terminal: HostTerminal, resize: Callable[[int, int], None]) -> None:
    """Pass on the terminal's size, now and whenever it changes."""
    with suppress(SandboxLost), anyio.open_signal_receiver(signal.SIGWINCH) as changes:
        resize(*terminal.size)
        async for _ in changes:
            resize(*terminal.size)
