"""What each call of a persistent shell used: the init reports a shell's processor time so far and the largest of its
living processes, so a long call is looked at while it runs. That shows, too, when a signal stopped the shell."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from belljar.errors import BelljarError

if TYPE_CHECKING:
    from belljar.link import frames
    from belljar.session.bash_channel import Bash

STOPPED_LOOKS = 8  # one after the other: whoever stops his own shell may have somebody who lets it go on
FIRST_LOOK, LAST_LOOK = 0.03, 0.5  # seconds between looks: short at first, for commands that do not run long


class ShellUsage:
    def __init__(self, bash: Bash) -> None:
        self._bash = bash
        self._cpu_us = 0
        """Of all calls before."""
        self._peak = 0
        self._stopped = 0
        """Looks that found it stopped."""
        self._timer: asyncio.TimerHandle | None = None
        self._looking: asyncio.Task[None] | None = None

    def begin(self) -> None:
        self._peak = self._stopped = 0
        self._later(FIRST_LOOK)

    def end(self, seen: frames.CommandState | None) -> dict[str, float | int]:
        """This call's part, with what was seen of the shell after it."""
        self.stop()
        if seen is None:
            return {"cpu_time": 0.0, "peak_memory": self._peak}
        used, self._cpu_us = max(0, seen.cpu_us - self._cpu_us), max(seen.cpu_us, self._cpu_us)
        return {"cpu_time": used / 1e6, "peak_memory": max(self._peak, seen.peak)}

    def ended(self, body: frames.EndedBody) -> dict[str, float | int]:
        """The same for the call that ended the shell: the init reports what it used in its whole life."""
        self.stop()
        used = max(0, body.utime_us + body.stime_us - self._cpu_us)
        return {"cpu_time": used / 1e6, "peak_memory": self._peak or body.maxrss}

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._looking is not None:
            self._looking.cancel()
        self._timer = self._looking = None

    def _later(self, seconds: float) -> None:
        self._timer = self._bash.execution.link.loop.call_later(seconds, self._look, seconds)

    def _look(self, seconds: float) -> None:
        self._looking = self._bash.execution.link.loop.create_task(self._sample(min(2 * seconds, LAST_LOOK)))

    async def _sample(self, after: float) -> None:
        with contextlib.suppress(BelljarError):
            seen = await self._bash.execution.state()
            self._peak = max(self._peak, seen.peak)
            self._stopped = self._stopped + 1 if seen.stopped else 0
            if self._stopped >= STOPPED_LOOKS:
                self._bash.end_stopped()
            else:
                self._later(after)
