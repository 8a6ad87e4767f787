"""Gathers one command's output while it runs and makes its Result when it ended."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from belljar.link import frames
from belljar.session.result import LOST_STATUS, TIMEOUT_STATUS, Capture, Cause, Output, Result, Stream

if TYPE_CHECKING:
    from belljar.link.remote_command import Execution
    from belljar.policy import Verdict

_CAUSES: dict[int, Cause] = {1: "exited", 2: "signalled", 3: "timeout", 4: "killed", 5: "out_of_memory"}
_STREAMS: dict[int, Stream] = {frames.STDOUT: "stdout", frames.STDERR: "stderr"}


class Collector:
    def __init__(
        self,
        execution: Execution,
        cap: int,
        verdict: Verdict | None = None,
        *,
        combined: bool = False,
        timeout: float | None = None,
        grace: float = 2.0,
        limit: int | None = None,
        on_output: Callable[[Output], None] | None = None,
    ) -> None:
        self.captures = (Capture("stdout", cap), Capture("stderr", cap))
        self.execution = execution
        self.timeout, self.grace = timeout, grace
        self.handed_on = False
        self._verdict, self._combined, self._limit, self._on_output = verdict, combined, limit, on_output
        self._order = 0
        self._stopped: Cause | None = None
        self._started = time.time()
        execution.on_output = self.take

    def take(self, stream: int, data: bytes) -> None:
        name = _STREAMS.get(stream)
        if name is None:
            return
        self._order += 1
        self.captures[0 if name == "stdout" else 1].add(self._order, data)
        if self._on_output is not None:
            self._on_output(Output(name, data))
        if self._limit is not None and self._stopped is None and self.produced > self._limit:
            self.stop("output_limit")

    @property
    def produced(self) -> int:
        return self.captures[0].produced + self.captures[1].produced

    def stop(self, cause: Cause) -> None:
        """End the command for a reason of ours; the result will tell it."""
        self._stopped = self._stopped or cause
        self.execution.kill(self.grace)

    def interrupt(self) -> None:
        self._stopped = self._stopped or "interrupted"
        self.execution.signal(signal.SIGINT)

    def result(self, body: frames.EndedBody, runs_later: tuple[str, ...] = ()) -> Result:
        cause = self._cause(body)
        return Result(
            cause=cause,
            exit_code=TIMEOUT_STATUS if cause == "timeout" else body.exit_code,
            signal=body.signal or None,
            duration=body.wall_us / 1e6,
            cpu_time=(body.utime_us + body.stime_us) / 1e6,
            peak_memory=body.maxrss,
            survivors_killed=body.survivors,
            started=self._started,
            ended=self._started + body.wall_us / 1e6,
            verdict=self._verdict,
            combined=self._combined,
            oom_kills=body.oom_kills,
            runs_later=runs_later,
            _captures=self.captures,
        )

    def _cause(self, body: frames.EndedBody) -> Cause:
        cause = _CAUSES[body.cause]
        if self._stopped == "interrupted":
            # A program may take Ctrl+C and end as it likes; only a death by it counts.
            return "interrupted" if body.signal == signal.SIGINT or body.exit_code == 130 else cause
        return self._stopped if self._stopped and cause in ("killed", "signalled") else cause

    def lost(self) -> Result:
        """The sandbox went away under the command: what came of it so far."""
        now = time.time()
        return Result(
            cause="sandbox_lost", exit_code=LOST_STATUS, signal=None, duration=now - self._started, cpu_time=0.0,
            peak_memory=0, survivors_killed=0, started=self._started, ended=now, verdict=self._verdict,
            combined=self._combined, _captures=self.captures,
        )  # fmt: skip
