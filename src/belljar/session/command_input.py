"""A command's stdin: first the `stdin` option, then what is written, then its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from belljar.link.frames import Flag

if TYPE_CHECKING:
    from belljar.link.remote_command import Execution
    from belljar.session.options import Options


class CommandInput:
    def __init__(self, execution: Execution, options: Options, flags: int) -> None:
        self._execution = execution
        self._first = options.get("stdin")
        self._ends = self._first is not None and not options.get("stdin_open") and not flags & Flag.PTY
        """Whether it ends after the first bytes. A terminal's input has no end, unless somebody types one."""
        self._fed = anyio.Event()

    async def feed(self) -> None:
        first, self._first = self._first, None
        try:
            if first:
                await self._execution.input(first.encode() if isinstance(first, str) else first)
        finally:
            self._fed.set()
        if self._ends:
            self._execution.close_input()

    async def write(self, data: bytes) -> None:
        """Waits while the command does not read, or while the first bytes are on their way."""
        await self._fed.wait()
        await self._execution.input(data)

    def close(self) -> None:
        self._ends = True
        if self._fed.is_set():
            self._execution.close_input()
