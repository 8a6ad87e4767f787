"""The events of a running command, and its Result: one table of causes for every kind of command.

Output is kept as bytes and decoded on demand. Invalid UTF-8 is replaced and no character is split. Where the middle of
a long output was dropped, the text says how much is missing.
"""

from __future__ import annotations

import signal as signals
from dataclasses import field
from functools import cached_property
from typing import Any, Literal

from belljar import codec
from belljar.link import frames
from belljar.policy import Verdict
from belljar.records import record
from belljar.session import hints as all_hints
from belljar.session.hints import Reader
from belljar.session.hints import Surroundings as Surroundings
from belljar.session.output import Capture, Captures, captures
from belljar.session.output import Output as Output
from belljar.session.output import Stream as Stream

Cause = Literal[
    "exited",
    "signalled",
    "timeout",
    "interrupted",
    "output_limit",
    "out_of_memory",
    "killed",
    "sandbox_lost",
]
Status = Literal["running", "completed", "failed", "killed"]
"""Of a background shell."""

TIMEOUT_STATUS = 124
LOST_STATUS = 125
CAUSES: dict[int, Cause] = {cause: cause.name.lower() for cause in frames.EndCause}  # type: ignore[misc]
"""The init's numbers and our names for them."""
EXIT_CODES: dict[Cause, int] = {"timeout": TIMEOUT_STATUS, "sandbox_lost": LOST_STATUS}
"""Causes with an exit code of ours; the others have the program's own."""


def cause_of(body: frames.EndedBody, stopped: Cause | None = None) -> Cause:
    """Why it ended. `stopped`: why the host ended it, if it did."""
    cause = CAUSES[body.cause]
    if stopped == "interrupted":
        # A program may catch Ctrl+C and end as it likes; only a death by it counts.
        return (
            "interrupted"
            if body.signal == signals.SIGINT or body.exit_code == 128 + signals.SIGINT
            else cause
        )
    if stopped == "output_limit":
        return stopped  # even if it ended before the signal came: output past the limit is missing
    return stopped if stopped and cause in ("killed", "signalled") else cause


def status_of(cause: Cause, exit_code: int) -> Status:
    """The status of an ended background shell."""
    if cause == "killed":
        return "killed"
    return "completed" if cause == "exited" and exit_code == 0 else "failed"


@record
class Started:
    """The first event of `Session.stream`: the command runs."""

    pid: int


@record
class Ended:
    """The last event of `Session.stream`: `event.result` says how it ended."""

    result: Result


Event = Started | Output | Ended


def decode(data: bytes, *, cut_start: bool = False, cut_end: bool = False) -> str:
    """`data` as text. With a cut at an end, a character that it split is left out."""
    if cut_start:
        skip = 0
        while skip < min(3, len(data)) and data[skip] & 0xC0 == 0x80:
            skip += 1
        data = data[skip:]
    if cut_end:
        data = data[: len(data) - split_tail(data)]
    return data.decode("utf-8", "replace")


def split_tail(data: bytes) -> int:
    """How many bytes at the end are an incomplete character."""
    for back in range(1, min(3, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue
        width = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
        return back if width > back else 0
    return 0


def omission(count: int) -> str:
    return f"\n[... {count} bytes omitted ...]\n"


def _text(head: bytes, tail: bytes, omitted: int) -> str:
    if not omitted:
        return decode(head + tail)
    return decode(head, cut_end=True) + omission(omitted) + decode(tail, cut_start=True)


@record
class Result:
    """How a command ended, and its output.

    result = await box.run("make test", timeout=60)
    if not result.ok:
        print(result.cause, result.exit_code, result.stderr, *result.hints)
    """

    cause: Cause
    """exited, signalled, timeout, interrupted, output_limit, out_of_memory, killed or sandbox_lost."""
    exit_code: int
    """The program's own; 128 + n after signal n, 124 after a timeout, 125 when the sandbox was lost."""
    duration: float
    """Seconds from start to end, measured next to the process."""
    started: float
    """Unix time."""
    ended: float
    signal: int | None = None
    cpu_time: float = 0.0
    peak_memory: int = 0
    """Resident bytes of the largest process."""
    survivors_killed: int = 0
    """Processes that were still running when the command ended, and were killed."""
    verdict: Verdict | None = None
    combined: bool = False
    oom_kills: int = 0
    runs_later: tuple[str, ...] = ()
    """Files in the workspace that it wrote and that the host may run later (git hooks …)."""
    network: tuple[dict[str, Any], ...] = ()
    """Connections through the network door while it ran: host, port, verdict, bytes."""
    listening: tuple[int, ...] = ()
    """Ports that programs in the sandbox listen on since the last result; `box.forward(port)` opens one."""
    _captures: Captures = field(
        default_factory=lambda: captures(2), repr=False, compare=False
    )
    _lost: str = field(default="", repr=False, compare=False)
    _surroundings: Surroundings | None = field(default=None, repr=False, compare=False)

    @property
    def ok(self) -> bool:
        return self.cause == "exited" and self.exit_code == 0

    @cached_property
    def stdout_bytes(self) -> bytes:
        return b"".join(self._captures[0].joined())

    @cached_property
    def stderr_bytes(self) -> bytes:
        return b"".join(self._captures[1].joined())

    @cached_property
    def stdout(self) -> str:
        return _text(*self._captures[0].joined(), self._captures[0].omitted)

    @cached_property
    def stderr(self) -> str:
        return _text(*self._captures[1].joined(), self._captures[1].omitted)

    @cached_property
    def output(self) -> str:
        """Both streams in the order in which they arrived."""
        head = sorted(
            (p for c in self._captures for p in c.head), key=lambda p: p.order
        )
        tail = sorted(
            (p for c in self._captures for p in c.tail), key=lambda p: p.order
        )
        return _text(
            b"".join(p.data for p in head),
            b"".join(p.data for p in tail),
            self.bytes_omitted,
        )

    @cached_property
    def hints(self) -> tuple[str, ...]:
        """Why the command may have failed, and which argument helps; empty for most commands."""
        return self.hints_for("python")

    def hints_for(self, reader: Reader) -> tuple[str, ...]:
        """The hints for another reader: `result.hints_for("agent")` says what a model can do or ask for."""
        if self._surroundings is None:  # restored from JSON
            restored: tuple[str, ...] = self.__dict__.get("hints", ())
            return restored
        return all_hints.hints(self, self._surroundings, reader)

    @property
    def bytes_produced(self) -> int:
        return sum(c.produced for c in self._captures)

    @property
    def bytes_omitted(self) -> int:
        return sum(c.omitted for c in self._captures)

    @property
    def bytes_kept(self) -> int:
        return self.bytes_produced - self.bytes_omitted

    @property
    def truncated(self) -> bool:
        return self.bytes_omitted > 0

    def as_dict(self) -> dict[str, Any]:
        verdict = self.verdict.as_dict() if self.verdict else None
        shown = {name: getattr(self, name) for name in SHOWN}
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in shown.items()
        } | {"verdict": verdict}

    def to_json(self) -> dict[str, Any]:
        """As `as_dict`, with all that `from_json` needs: also the bytes of a stream that is more than its text."""
        verdict = codec.encode(self.verdict)
        raw = codec.raw_streams(stdout=self.stdout_bytes, stderr=self.stderr_bytes)
        if self.truncated:  # the texts say how much is missing in the middle
            raw = codec.base64_of(stdout=self.stdout_bytes, stderr=self.stderr_bytes)
        return {**self.as_dict(), "combined": self.combined, "verdict": verdict, **raw}

    @classmethod
    def from_json(cls, data: Any) -> Result:
        plain = codec.given(cls, data)
        texts = {
            name: codec.decode(str, data.get(name, ""))
            for name in ("stdout", "stderr", "output")
        }
        raw = {name: codec.stream(data, name) for name in ("stdout", "stderr")}
        omitted = codec.decode(int, data.get("bytes_produced", 0)) - codec.decode(
            int, data.get("bytes_kept", 0)
        )
        captures = (
            Capture.ending(
                "stdout", raw["stdout"], len(raw["stdout"]) + max(0, omitted)
            ),
            Capture.ending("stderr", raw["stderr"], len(raw["stderr"])),
        )
        result = cls(**plain, _captures=captures)
        hints = codec.decode(list[str], data.get("hints", []))
        result.__dict__.update(
            texts,
            stdout_bytes=raw["stdout"],
            stderr_bytes=raw["stderr"],
            hints=tuple(hints),
        )
        return result


SHOWN = (
    "cause",
    "exit_code",
    "signal",
    "stdout",
    "stderr",
    "output",
    "truncated",
    "bytes_produced",
    "bytes_kept",
    "duration",
    "cpu_time",
    "peak_memory",
    "survivors_killed",
    "started",
    "ended",
    "oom_kills",
    "runs_later",
    "hints",
    "network",
    "listening",
)
"""What `Result.as_dict` has, beside the verdict."""
