"""What a session writes to the audit trail, and what is known of each of its commands for that and for their results.

Every `start` of a command gets exactly one `end`, and every `session_open` one `session_close`: also if the sandbox
dies, and if a call is cancelled at any await (tests/session/test_cancellation.py). Whoever starts a command holds its
`CommandRecord` and ends it on every way out; what is still open when a session closes is ended then.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from belljar.session.output import Captures
from belljar.session.result import (
    EXIT_CODES,
    LOST_STATUS,
    Cause,
    Result,
    Surroundings,
    cause_of,
)

if TYPE_CHECKING:
    from belljar.audit.writer import Audit
    from belljar.link import frames
    from belljar.policy import Verdict

R = TypeVar("R", bound=Result)


class Ledger:
    def __init__(self, audit: Audit) -> None:
        self.audit = audit
        self.session: str | None = None
        self.unfinished: dict[str, CommandRecord] = {}
        """The commands that have not ended, by the names of their runs."""

    def record(self, kind: str, **fields: Any) -> None:
        """Written at once with BELLJAR_AUDIT=required, else in the background."""
        write = self.audit.record if self.audit.required else self.audit.note
        write(kind, session=self.session, **fields)

    def close(self, cause: str) -> None:
        """Record the end of every unfinished command."""
        for command in list(self.unfinished.values()):
            command.end(cause)


class CommandRecord:
    """A command, from before its start until its end is in the trail and in its result. Made before it starts; without
    a `ledger` for one that others record."""

    def __init__(
        self,
        ledger: Ledger | None,
        surroundings: Surroundings,
        verdict: Verdict | None = None,
        *,
        combined: bool = False,
        started: float | None = None,
        runs_later: Callable[[], tuple[str, ...]] = lambda: (),
        visits: Callable[[float], tuple[dict[str, Any], ...]] = lambda since: (),
        listening: Callable[[], tuple[int, ...]] = lambda: (),
    ) -> None:
        self._ledger = ledger
        self._surroundings = surroundings
        self.verdict = verdict
        self._combined = combined
        self.started = time.time() if started is None else started
        """Unix time."""
        self._runs_later = runs_later
        self._visits = visits
        self._listening = listening
        self._run = ""

    @property
    def is_ours(self) -> bool:
        """Whether this process started it."""
        return self._run != ""

    def start(self, cwd: str, env: Mapping[Any, Any] | None = None) -> None:
        assert self._ledger is not None
        assert self.verdict is not None
        self._run = os.urandom(6).hex()
        self._ledger.record(
            "start",
            run=self._run,
            digest=self.verdict.digest,
            command=self.verdict.canonical,
            cwd=cwd,
            env=env,
        )
        self._ledger.unfinished[self._run] = self

    def end(
        self, cause: str, exit_code: int | None = None, duration: float | None = None
    ) -> None:
        """Only the first call counts."""
        ledger = self._ledger
        if ledger is None or ledger.unfinished.pop(self._run, None) is None:
            return
        assert self.verdict is not None
        ledger.record(
            "end",
            run=self._run,
            digest=self.verdict.digest,
            cause=cause,
            exit_code=exit_code,
            duration=duration,
        )

    def ended(
        self, output: Captures, body: frames.EndedBody, stopped: Cause | None = None
    ) -> Result:
        """The result of an end that the init reported."""
        return self.result(
            Result,
            output,
            cause_of(body, stopped),
            body.exit_code,
            body.wall_us / 1e6,
            body,
        )

    def lost(self, output: Captures, why: object, now: float | None = None) -> Result:
        """The result of a command whose sandbox was lost, with its output so far."""
        duration = (time.time() if now is None else now) - self.started
        return self.result(
            Result, output, "sandbox_lost", LOST_STATUS, duration, _lost=str(why)
        )

    def result(
        self,
        kind: type[R],
        output: Captures,
        cause: Cause,
        exit_code: int,
        duration: float,
        body: frames.EndedBody | None = None,
        **more: Any,
    ) -> R:
        """The only place that makes results. The trail gets the same end."""
        is_lost = cause == "sandbox_lost"
        result = kind(
            cause=cause,
            exit_code=EXIT_CODES.get(cause, exit_code),
            duration=duration,
            started=self.started,
            ended=self.started + duration,
            verdict=self.verdict,
            combined=self._combined,
            runs_later=() if is_lost else self._runs_later(),
            listening=() if is_lost else self._listening(),
            network=self._visits(self.started),
            _captures=output,
            _surroundings=self._surroundings,
            **{**_used(body), **more},
        )
        self.end(result.cause, result.exit_code, result.duration)
        return result


def _used(body: frames.EndedBody | None) -> dict[str, Any]:
    if body is None:
        return {}
    return {
        "signal": body.signal or None,
        "cpu_time": (body.utime_us + body.stime_us) / 1e6,
        "peak_memory": body.maxrss,
        "survivors_killed": body.survivors,
        "oom_kills": body.oom_kills,
    }
