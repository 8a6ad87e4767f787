"""Makes the Result of an ended command: one table of causes, one constructor, for every kind of command.

Foreground commands, background shells and calls of the persistent shell all use it, also when their sandbox was lost.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from belljar.link import frames
from belljar.records import record
from belljar.session.capture import Capture
from belljar.session.result import LOST_STATUS, TIMEOUT_STATUS, Cause, Result, Surroundings

if TYPE_CHECKING:
    from belljar.policy import Verdict
    from belljar.session.door import SessionDoor
    from belljar.session.inside import Inside

Status = Literal["running", "completed", "failed", "killed"]
R = TypeVar("R", bound=Result)

CAUSES: dict[int, Cause] = {cause: cause.name.lower() for cause in frames.EndCause}  # type: ignore[misc]
"""The init's numbers and our names for them."""
_STATUS: dict[Cause, int] = {"timeout": TIMEOUT_STATUS, "sandbox_lost": LOST_STATUS}
"""Causes with an exit code of ours; the others have the program's own."""


def cause_of(body: frames.EndedBody, stopped: Cause | None = None) -> Cause:
    """Why it ended. `stopped`: why the host ended it, if it did."""
    cause = CAUSES[body.cause]
    if stopped == "interrupted":
        # A program may catch Ctrl+C and end as it likes; only a death by it counts.
        return "interrupted" if body.signal == signal.SIGINT or body.exit_code == 128 + signal.SIGINT else cause
    if stopped == "output_limit":
        return stopped  # even if it ended before the signal came: output past the limit is missing
    return stopped if stopped and cause in ("killed", "signalled") else cause


def status_of(cause: Cause, exit_code: int) -> Status:
    """The status of an ended background shell."""
    if cause == "killed":
        return "killed"
    return "completed" if cause == "exited" and exit_code == 0 else "failed"


@record
class Conclusion:
    """What is known of a running command, for its result."""

    surroundings: Surroundings
    started: float
    """Unix time."""
    verdict: Verdict | None = None
    combined: bool = False
    runs_later: Callable[[], tuple[str, ...]] = field(default=lambda: ())
    visits: Callable[[float], tuple[dict[str, Any], ...]] = field(default=lambda since: ())
    listening: Callable[[], tuple[int, ...]] = field(default=lambda: ())

    @classmethod
    def begun(cls, inside: Inside, door: SessionDoor, verdict: Verdict, combined: bool = False) -> Conclusion:
        """Must be called before the command starts: notes which files the host may run now."""
        run_files = inside.aftermath.run_files
        before = run_files.before(inside.is_busy, look=False)
        return cls(
            inside.surroundings,
            time.time(),
            verdict,
            combined,
            runs_later=lambda: run_files.since(before, look=False),
            visits=door.visits_since,
            listening=door.new_listening,
        )

    def ended(self, captures: tuple[Capture, Capture], body: frames.EndedBody, stopped: Cause | None = None) -> Result:
        """The result of an end that the init reported."""
        return self.of(Result, captures, cause_of(body, stopped), body.exit_code, body.wall_us / 1e6, body)

    def lost(self, captures: tuple[Capture, Capture], now: float, why: object) -> Result:
        """The result of a command whose sandbox was lost, with its output so far."""
        return self.of(Result, captures, "sandbox_lost", LOST_STATUS, now - self.started, _lost=str(why))

    def of(
        self, kind: type[R], captures: tuple[Capture, Capture], cause: Cause, exit_code: int, duration: float,
        body: frames.EndedBody | None = None, **more: Any,
    ) -> R:  # fmt: skip
        """The only place that makes results."""
        used = {} if body is None else {
            "signal": body.signal or None, "cpu_time": (body.utime_us + body.stime_us) / 1e6,
            "peak_memory": body.maxrss, "survivors_killed": body.survivors, "oom_kills": body.oom_kills,
        }  # fmt: skip
        return kind(
            cause=cause, exit_code=_STATUS.get(cause, exit_code), duration=duration, started=self.started,
            ended=self.started + duration, verdict=self.verdict, combined=self.combined,
            runs_later=() if cause == "sandbox_lost" else self.runs_later(),
            listening=() if cause == "sandbox_lost" else self.listening(),
            network=self.visits(self.started), _captures=captures, _surroundings=self.surroundings, **{**used, **more},
        )  # fmt: skip
