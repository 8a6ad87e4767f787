"""What a person types, on its way into the sandbox: read as it comes, watched for the keys that detach."""

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
"""Ctrl+P, Ctrl+Q: as Docker has it."""
HELD_SECONDS = 0.4
_CHUNK = 64 << 10
_MOST_ANSWERS = 16
"""That wait to be read by the program; one that asks on and reads nothing gets no more."""


class Program(Protocol):
    """What runs inside and has a terminal."""

    async def write(self, data: bytes) -> None: ...

    def resize(self, rows: int, cols: int) -> None: ...


class DetachKeys:
    """Takes the keys apart that mean "leave it running"; the first of them is held back for a moment, or until the next
    key tells."""

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
        """Seconds after which what is held back was meant for the program: Ctrl+P goes through a shell's history."""
        return HELD_SECONDS if self._held else None

    def release(self) -> bytes:
        held, self._held = self._held, b""
        return held


async def read_stdin() -> bytes:
    """The next bytes; none at the end, or when the terminal is gone."""
    try:
        await anyio.wait_readable(0)
    except (OSError, ValueError):  # a plain file or /dev/null: never blocks, cannot be waited for
        return await to_thread.run_sync(os.read, 0, _CHUNK)
    try:
        return os.read(0, _CHUNK)
    except OSError:
        return b""


async def pass_keys(write: Callable[[bytes], Awaitable[None]], detach: DetachKeys | None = None) -> None:
    """Until stdin ends, or the keys to detach were pressed."""
    with suppress(SandboxLost):
        while True:
            with anyio.move_on_after(detach.patience if detach is not None else None) as waiting:
                data = await read_stdin()
                if not data:
                    return
            if detach is not None:
                data = detach.release() if waiting.cancelled_caught else detach.feed(data)
            if data:
                await write(data)
            if detach is not None and detach.pressed:
                return


class Keyboard:
    """Who gets what is typed: the program, or for a moment we, who have a question."""

    def __init__(self, terminal: HostTerminal | None) -> None:
        self._terminal = terminal
        self._reading = anyio.Lock()
        self._passing = anyio.CancelScope()
        self._questions = 0

    async def pass_keys(self, write: Callable[[bytes], Awaitable[None]], detach: DetachKeys | None = None) -> None:
        """Until stdin ends, or the keys to detach were pressed."""
        ended = False
        while not ended:
            async with self._reading:  # whoever has a question comes first
                with anyio.CancelScope() as self._passing:
                    if not self._questions:
                        await pass_keys(write, detach)
                        ended = True

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[None]:
        """What was typed before is thrown away: it was no answer."""
        self._questions += 1
        self._passing.cancel()
        async with self._reading:
            self._questions -= 1
            with self._terminal.cooked() if self._terminal is not None else nullcontext():
                yield


class Answers:
    """What the terminal tells the program by itself, on its way in."""

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
    """Now, and whenever it changes."""
    with suppress(SandboxLost), anyio.open_signal_receiver(signal.SIGWINCH) as changes:
        resize(*terminal.size)
        async for _ in changes:
            resize(*terminal.size)
