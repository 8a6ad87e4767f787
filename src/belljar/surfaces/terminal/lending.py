"""Lends the user's terminal to one command after another. The lending thread is not the event loop's.

While the terminal is lent, a task on the loop passes keys and sizes to the program. The task ends before anything else
reads the terminal: the next prompt, or a question about this command.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event

import anyio
from anyio.from_thread import BlockingPortal

from belljar.surfaces.terminal.host import HostTerminal
from belljar.surfaces.terminal.keys import Answers, Program, pass_keys

LONGEST_WAIT = 5.0  # seconds for a cancelled task to end


class Lending:
    def __init__(
        self, terminal: HostTerminal, portal: BlockingPortal, program: Program
    ) -> None:
        self._terminal = terminal
        self._portal = portal
        self._program = program
        self._loop = portal.call(asyncio.get_running_loop)
        self._returned = Event()
        self._answers = Answers()

    def reply(self, data: bytes) -> None:
        """Send the program an answer to a terminal query."""
        self._loop.call_soon_threadsafe(self._answers.put, data)

    @property
    def size(self) -> tuple[int, int]:
        return self._terminal.size

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Within this block keys go to the program."""
        before = signal.signal(signal.SIGWINCH, lambda *_: self.send_size())
        self.send_size()
        try:
            with self._terminal.raw():
                self._returned.clear()
                self._answers = (
                    Answers()
                )  # drops answers that the last program did not read
                passing = self._portal.start_task_soon(self._pass)
                try:
                    yield
                finally:
                    passing.cancel()
                    self._returned.wait(
                        LONGEST_WAIT
                    )  # until then it might read a key of the next reader
        finally:
            signal.signal(signal.SIGWINCH, before)

    async def _pass(self) -> None:
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._answers.pass_on, self._program.write)
                await pass_keys(self._program.write)
                os.kill(
                    os.getpid(), signal.SIGTERM
                )  # stdin ended: the terminal is gone
                tasks.cancel_scope.cancel()
        finally:
            self._returned.set()

    def send_size(self) -> None:
        """Send the program the terminal's size, before anything that is started on the loop later."""
        self._loop.call_soon_threadsafe(self._program.resize, *self._terminal.size)
