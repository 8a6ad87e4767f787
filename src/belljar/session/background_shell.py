"""Background shells: commands that go on while their caller does other things.

The init keeps the newest output of each (a ring per stream, with absolute offsets), so reading needs no one to listen
meanwhile: it works after the end, from another process and after a crash of this one.

Cursors: `read()` gives what is new since the last `read()`. A filtered read has a cursor of its own and leaves the
other alone, so a filter never eats what it does not show. `read(offset=…)` moves nothing.
"""

from __future__ import annotations

import signal as signals
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import anyio
from anyio import to_thread

from belljar.errors import UsageError
from belljar.link import frames
from belljar.link.frames import To
from belljar.link.remote_command import UNLIMITED, Execution
from belljar.session.capture import Collector
from belljar.session.result import Capture, Result, decode, split_tail

if TYPE_CHECKING:
    from belljar.session.session import Session

# Python's own `re` cannot be stopped once it backtracks; `regex` understands the same patterns and can.
Pattern = Any
Status = Literal["running", "completed", "failed", "killed"]
Position = tuple[int, int]

GRACE = 2.0
READ_LIMIT = 1 << 20
WAIT_STEP = 30.0  # one waiting read; longer waits are several
FILTER_SECONDS = 0.5  # a pattern that backtracks for longer is refused, not waited for


@dataclass(frozen=True)
class Chunk:
    stdout_bytes: bytes
    stderr_bytes: bytes
    offset: Position
    """Where the bytes begin, for each stream."""
    next: Position
    """Where to go on reading."""
    dropped: Position
    """How much between the place asked for and `offset` is lost, because newer output took its room."""
    status: Status
    exit_code: int | None

    @property
    def stdout(self) -> str:
        return decode(self.stdout_bytes)

    @property
    def stderr(self) -> str:
        return decode(self.stderr_bytes)

    @property
    def text(self) -> str:
        return self.stdout + self.stderr


class Shell:
    def __init__(self, session: Session, number: int, command: str, pid: int = 0, started: float | None = None) -> None:
        self.id = shell_id(number)
        self.command, self.pid = command, pid
        self.started = started or time.time()
        self.exit_code: int | None = None
        self.status: Status = "running"
        self._session, self._number = session, number
        self._cursors: dict[str | None, Position] = {None: (0, 0)}
        self._killed = False
        self._body: frames.EndedBody | None = None
        self._runs_later: Callable[[], tuple[str, ...]] = lambda: ()
        self.so_far: Chunk | None = None
        """What it had printed when it was turned from a foreground command into a shell."""

    @classmethod
    def from_listed(cls, session: Session, listed: frames.Listed) -> Shell:
        return cls(session, listed.id, decode(listed.tag, cut_end=True), listed.pid, listed.started_ms / 1000)

    # Reading.

    async def read(
        self,
        filter: str | None = None,
        *,
        offset: int | Position | None = None,
        limit: int = READ_LIMIT,
        wait: float = 0.0,
    ) -> Chunk:
        """What is new since the last check; with `offset`, from there on and without moving any cursor."""
        pattern = await to_thread.run_sync(_compile, filter) if filter is not None else None
        start = self._start(filter, offset)
        chunk = await self._fetch(start, limit, wait)
        if pattern is not None:
            chunk = await to_thread.run_sync(_filtered, chunk, pattern)
        if offset is None:
            self._cursors[filter] = chunk.next
        return chunk

    def _start(self, filter: str | None, offset: int | Position | None) -> Position:
        if offset is not None:
            return (offset, offset) if isinstance(offset, int) else offset
        here, own = self._cursors[None], self._cursors.get(filter, (0, 0))
        return max(here[0], own[0]), max(here[1], own[1])

    async def _fetch(self, start: Position, limit: int, wait: float) -> Chunk:
        reply = await self._session.sandbox.link.read(self._number, *start, min(limit, READ_LIMIT), wait)
        self._learn(reply.ended)
        out, err = _whole(reply.out, reply.ended), _whole(reply.err, reply.ended)
        return Chunk(
            out, err, (reply.out_start, reply.err_start), (reply.out_start + len(out), reply.err_start + len(err)),
            (max(0, reply.out_start - start[0]), max(0, reply.err_start - start[1])), self.status, self.exit_code,
        )  # fmt: skip

    async def poll(self) -> Status:
        if self.status == "running":
            await self._fetch((UNLIMITED, UNLIMITED), 0, 0.0)
        return self.status

    async def wait(self, timeout: float | None = None) -> Result:
        """Its end; TimeoutError if that does not come in time (the shell goes on)."""
        with anyio.fail_after(timeout):
            while self.status == "running":
                await self._fetch((UNLIMITED, UNLIMITED), 0, WAIT_STEP)
        return await self.result()

    async def result(self) -> Result:
        assert self._body is not None
        collector = Collector(Execution(self._session.sandbox.link, self._number), 2 * READ_LIMIT)
        chunk = await self.read(offset=0)
        collector.captures = (
            Capture.ending("stdout", chunk.stdout_bytes, self._body.stdout_total),
            Capture.ending("stderr", chunk.stderr_bytes, self._body.stderr_total),
        )
        return collector.result(self._body, self._runs_later())

    # Steering.

    async def write(self, data: bytes | str) -> None:
        """To its stdin; waits while the command does not read."""
        await self._session.sandbox.link.join(self._number).input(data.encode() if isinstance(data, str) else data)

    def close_input(self) -> None:
        self._session.sandbox.link.join(self._number).close_input()

    def signal(self, signo: int) -> None:
        self._killed = self._killed or signo in (signals.SIGKILL, signals.SIGTERM)
        self._send(To.SIGNAL, frames.u32(signo))

    async def kill(self, grace: float = GRACE) -> None:
        """End the whole tree; when this returns nothing of it is left. An ended shell is left as it is."""
        if await self.poll() != "running":
            return
        self._killed = True
        self._send(To.KILL, frames.u32(int(grace * 1000)))
        await self.wait()

    def forget(self) -> None:
        self._send(To.FORGET, b"")

    def _send(self, kind: To, payload: bytes) -> None:
        self._session.sandbox.link.send(frames.frame(kind, self._number, payload))

    # What is known of it.

    def follow(self, runs_later: Callable[[], tuple[str, ...]]) -> None:
        self._runs_later = runs_later

    def learn(self, listed: frames.Listed) -> None:
        self._learn(listed.ended)

    def _learn(self, ended: frames.EndedBody | None) -> None:
        if ended is None or self._body is not None:
            return
        self._body, self.exit_code = ended, ended.exit_code
        self._session.sandbox.link.leave(self._number, ended)
        if self._killed or ended.cause == 4:
            self.status = "killed"
        else:
            self.status = "completed" if ended.cause == 1 and ended.exit_code == 0 else "failed"

    async def take_over(self, execution: Execution, collector: Collector, ring: int) -> bool:
        """Go on with a foreground command. False: it ended in that very moment.

        Output that was on its way when the init was told belongs to the caller; the answer to a read comes after it,
        so from then on the caller's place is known exactly.
        """
        execution.background(ring)
        reply = await self._session.sandbox.link.read(self._number, UNLIMITED, UNLIMITED, 0)
        if execution.over:
            return False
        self._session.sandbox.link.forget(execution)
        collector.handed_on = True
        self._learn(reply.ended)
        out, err = collector.captures
        self._cursors[None] = here = (out.produced, err.produced)
        self.so_far = Chunk(
            b"".join(out.joined()),
            b"".join(err.joined()),
            (0, 0),
            here,
            (out.omitted, err.omitted),
            self.status,
            self.exit_code,
        )
        return True


def shell_id(number: int) -> str:
    return f"shell_{number & 0xFFFFFFFF:08x}"


def _whole(data: bytes, ended: frames.EndedBody | None) -> bytes:
    """Without the first bytes of a character whose rest has not been printed yet."""
    if ended is not None:
        return data
    return data[: len(data) - split_tail(data)]


def _compile(pattern: str) -> Pattern:
    import regex

    try:
        return regex.compile(pattern)
    except (regex.error, RecursionError, OverflowError) as error:
        raise UsageError(f"Invalid filter regex: {error}") from error


def _filtered(chunk: Chunk, pattern: Pattern) -> Chunk:
    deadline = time.monotonic() + FILTER_SECONDS
    out, out_taken = _lines(chunk.stdout_bytes, pattern, deadline, chunk.status)
    err, err_taken = _lines(chunk.stderr_bytes, pattern, deadline, chunk.status)
    start = chunk.offset
    return Chunk(
        out, err, start, (start[0] + out_taken, start[1] + err_taken), chunk.dropped, chunk.status, chunk.exit_code
    )


def _lines(data: bytes, pattern: Pattern, deadline: float, status: Status) -> tuple[bytes, int]:
    """The matching lines; a last line that is not complete yet waits for the next read."""
    if status == "running":
        data = data[: data.rfind(b"\n") + 1]
    kept = []
    for line in data.splitlines(keepends=True):
        try:
            if pattern.search(decode(line).rstrip("\r\n"), timeout=max(0.001, deadline - time.monotonic())):
                kept.append(line)
        except TimeoutError:
            raise UsageError("Invalid filter regex: it takes too long to match; write a simpler one") from None
    return b"".join(kept), len(data)
