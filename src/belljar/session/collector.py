"""Collects the output of a running command, and stops it at its output limit."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import TYPE_CHECKING

from belljar.link import frames
from belljar.session.capture import Capture
from belljar.session.result import Cause, Output, Stream

if TYPE_CHECKING:
    from belljar.link.remote_process import RemoteProcess

STREAMS: dict[int, Stream] = {frames.STDOUT: "stdout", frames.STDERR: "stderr"}


class Listener:
    """Calls the caller's `on_output`. An exception of it is kept for the caller: it must not reach the link."""

    def __init__(self, on_output: Callable[[Output], None] | None) -> None:
        self._on_output = on_output
        self.failure: BaseException | None = None

    def call(self, stream: Stream, data: bytes) -> bool:
        """False if the callback raised: then the command must be stopped."""
        if self._on_output is None or self.failure is not None:
            return True
        try:
            self._on_output(Output(stream, data))
        except BaseException as failure:
            self.failure = failure
        return self.failure is None


class Collector:
    def __init__(
        self, process: RemoteProcess, cap: int, *, grace: float = 2.0, limit: int | None = None,
        on_output: Callable[[Output], None] | None = None,
    ) -> None:  # fmt: skip
        self.captures = (Capture("stdout", cap), Capture("stderr", cap))
        self.process = process
        self.stopped: Cause | None = None
        self.listener = Listener(on_output)
        self._grace, self._limit = grace, limit
        self._order = 0
        process.on_output = self.take

    def take(self, stream: int, data: bytes) -> bytes:
        """Keep `data` up to the limit; returns what was kept."""
        name = STREAMS.get(stream)
        if name is None:
            return b""
        self._order += 1
        capture = self.captures[0 if name == "stdout" else 1]
        kept = data if self._limit is None else data[: max(0, self._limit - self.produced)]
        if kept:
            capture.add(self._order, kept)
            if not self.listener.call(name, kept):
                self.stop("killed")
        if len(kept) < len(data):
            capture.produced += len(data) - len(kept)
            if self.stopped is None:
                self.stop("output_limit")
        return kept

    @property
    def produced(self) -> int:
        return self.captures[0].produced + self.captures[1].produced

    def stop(self, cause: Cause) -> None:
        """Kill the command; the result will give this cause."""
        self.stopped = self.stopped or cause
        self.process.kill(self._grace)

    def fail(self, failure: Exception) -> None:
        """Kill the command; the caller will get this exception."""
        self.listener.failure = self.listener.failure or failure
        self.stop("killed")

    def interrupt(self) -> None:
        self.stopped = self.stopped or "interrupted"
        self.process.signal(signal.SIGINT)
