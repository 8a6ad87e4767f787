"""The person's terminal, lent to one command after another by a thread that is not the event loop's.

While it is lent, a task on the loop passes keys and sizes on. It is given back before anything else may read: the
prompt for the next command, or a question about this one.
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

LONGEST_WAIT = 5.0  # for a task that only has to notice that it was cancelled


class Lending:
    def __init__(self, terminal: HostTerminal, portal: BlockingPortal, program: Program) -> None:
        self._terminal, self._portal, self._program = terminal, portal, program
        self._loop = portal.call(asyncio.get_running_loop)
        self._back = Event()
        self._answers = Answers()

    def reply(self, data: bytes) -> None:
        """To the program, from the terminal that it thinks it has."""
        self._loop.call_soon_threadsafe(self._answers.put, data)

    @property
    def size(self) -> tuple[int, int]:
        return self._terminal.size

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Keys go to the program."""
        before = signal.signal(signal.SIGWINCH, lambda *_: self.tell_size())
        self.tell_size()
        try:
            with self._terminal.raw():
                self._back.clear()
                self._answers = Answers()  # what the last program did not read is not for the next one
                passing = self._portal.start_task_soon(self._pass)
                try:
                    yield
                finally:
                    passing.cancel()
                    self._back.wait(LONGEST_WAIT)  # so that it takes no key of whoever reads next
        finally:
            signal.signal(signal.SIGWINCH, before)

    async def _pass(self) -> None:
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._answers.pass_on, self._program.write)
                await pass_keys(self._program.write)
                os.kill(os.getpid(), signal.SIGTERM)  # the terminal is gone, and whatever runs there with it
                tasks.cancel_scope.cancel()
        finally:
            self._back.set()

    def tell_size(self) -> None:
        """How large the terminal is now; in order with whatever else is started on the loop."""
        self._loop.call_soon_threadsafe(self._program.resize, *self._terminal.size)
