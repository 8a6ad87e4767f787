"""Processor time and memory of each call of a persistent shell. The init reports the shell's total processor time and
its largest living process, so a long call is sampled while it runs. This also shows when a signal stopped the shell."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from belljar.errors import BelljarError

if TYPE_CHECKING:
    from belljar.link import frames
    from belljar.link.remote_process import RemoteProcess

STOPPED_SAMPLES = 8  # in a row; until then something may let the shell go on
FIRST_SAMPLE, LAST_SAMPLE = (
    0.03,
    0.5,
)  # seconds between samples: short at first, for short commands


class ShellUsage:
    def __init__(self, process: RemoteProcess, end_stopped: Callable[[], None]) -> None:
        """`end_stopped` is called once a signal has stopped the shell for good."""
        self._process = process
        self._end_stopped = end_stopped
        self._cpu_us = 0
        """Of all earlier calls."""
        self._peak = 0
        self._stopped = 0
        """Samples in a row that found the shell stopped."""
        self._timer: asyncio.TimerHandle | None = None
        self._sampling: asyncio.Task[None] | None = None

    def begin(self) -> None:
        self._peak = self._stopped = 0
        self._later(FIRST_SAMPLE)

    def end(self, state: frames.CommandState | None) -> dict[str, float | int]:
        """What this call used; `state`: of the shell after it."""
        self.stop()
        if state is None:
            return {"cpu_time": 0.0, "peak_memory": self._peak}
        used, self._cpu_us = (
            max(0, state.cpu_us - self._cpu_us),
            max(state.cpu_us, self._cpu_us),
        )
        return {"cpu_time": used / 1e6, "peak_memory": max(self._peak, state.peak)}

    def ended(self, body: frames.EndedBody) -> dict[str, float | int]:
        """The same for the call that ended the shell. The init reports what the shell used in its whole life."""
        self.stop()
        used = max(0, body.utime_us + body.stime_us - self._cpu_us)
        return {"cpu_time": used / 1e6, "peak_memory": self._peak or body.maxrss}

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._sampling is not None:
            self._sampling.cancel()
        self._timer = self._sampling = None

    def _later(self, seconds: float) -> None:
        self._timer = self._process.link.loop.call_later(seconds, self._look, seconds)

    def _look(self, seconds: float) -> None:
        self._sampling = self._process.link.loop.create_task(
            self._sample(min(2 * seconds, LAST_SAMPLE))
        )

    async def _sample(self, after: float) -> None:
        with contextlib.suppress(BelljarError):
            state = await self._process.link.state(self._process.id)
            self._peak = max(self._peak, state.peak)
            self._stopped = self._stopped + 1 if state.stopped else 0
            if self._stopped >= STOPPED_SAMPLES:
                self._end_stopped()
            else:
                self._later(after)
