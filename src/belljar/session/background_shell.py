"""Background shells: commands that run while their caller does other things.

The init keeps the newest output of each in a ring per stream, with absolute offsets. So it can be read at any time:
after the end, from another process, and after a crash of this one.

`read()` gives the output that no earlier read has shown, `read(filter)` only its lines that match; the others stay new
(new_output.py). `read(offset=…)` gives the output at that offset, and does not mark it as shown.
"""

from __future__ import annotations

import signal as signals
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import anyio
from anyio import to_thread

from belljar.errors import BelljarError, ShellNotFound, UsageError
from belljar.link import frames
from belljar.link.frames import To
from belljar.link.remote_process import PATIENCE
from belljar.link.streams import UNLIMITED
from belljar.link.wire import RING_MAX
from belljar.options import seconds, whole
from belljar.patience import stretched
from belljar.records import record
from belljar.session.ledger import CommandRecord, Ledger
from belljar.session.new_output import NewOutput, compiled, matching
from belljar.session.output import Capture
from belljar.session.result import (
    Result,
    Status,
    cause_of,
    decode,
    split_tail,
    status_of,
)
from belljar.session.running_command import GRACE, SAFETY_NET

if TYPE_CHECKING:
    from belljar.session.inside import Inside
    from belljar.session.running_command import RunningCommand

Position = tuple[int, int]

READ_LIMIT = 1 << 20
WAIT_STEP = 30.0  # seconds of one waiting read; a longer wait takes several


@record
class Chunk:
    stdout_bytes: bytes
    stderr_bytes: bytes
    offset: Position
    """Where the bytes begin, for each stream."""
    next: Position
    """Where to go on reading."""
    dropped: Position
    """Bytes between the requested position and `offset` that are lost, because newer output replaced them."""
    status: Status
    exit_code: int | None

    @property
    def looked_at(self) -> int:
        """Bytes of the longer stream that were searched, with those that a filter or an earlier read left out."""
        return max(self.next[0] - self.offset[0], self.next[1] - self.offset[1])

    @property
    def stdout(self) -> str:
        return decode(self.stdout_bytes)

    @property
    def stderr(self) -> str:
        return decode(self.stderr_bytes)

    @property
    def text(self) -> str:
        return self.stdout + self.stderr


class Observer:
    """Made by `Shell.observe`; iterate over it. As many as you like may watch one shell, from any number of processes:
    none takes anything from another. After a reconnect a new one goes on at `position`.
    """

    def __init__(self, shell: Any, position: Position) -> None:
        self._shell = shell  # of this module, or a remote one
        self.position = position
        """Where the next chunk begins, for each stream."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Chunk:
        while True:
            chunk: Chunk = await self._shell.read(offset=self.position, wait=WAIT_STEP)
            self.position = chunk.next
            if chunk.stdout_bytes or chunk.stderr_bytes:
                return chunk
            if chunk.status != "running":
                raise StopAsyncIteration


class Shell:
    """A command in the background. `Session.start` makes one.

    shell = await box.start("npm run dev")
    chunk = await shell.read(filter="error")          # what is new since the last read
    await shell.write("y\\n"); await shell.kill()
    """

    def __init__(
        self,
        inside: Inside,
        number: int,
        command: str,
        record: CommandRecord,
        pid: int = 0,
    ) -> None:
        self.id = frames.shell_id(number)
        self.command = command
        self.pid = pid
        self.started = record.started
        self.exit_code: int | None = None
        self.status: Status = "running"
        self._inside = inside
        self._number = number
        self._new = NewOutput(), NewOutput()
        self._killed = self._is_forgotten = False
        self._body: frames.EndedBody | None = None
        self._record = record
        self.so_far: Chunk | None = None
        """Its output until it was turned from a foreground command into a shell."""

    def __repr__(self) -> str:
        return f"<belljar.Shell {self.id}, {self.status}: {self.command[:60]!r}>"

    @classmethod
    def of(cls, inside: Inside, running: RunningCommand) -> Shell:
        assert running.record.verdict is not None
        process = running.process
        return cls(
            inside,
            process.id,
            running.record.verdict.canonical,
            running.record,
            process.pid,
        )

    @classmethod
    def from_listed(
        cls, inside: Inside, ledger: Ledger, listed: frames.Listed
    ) -> Shell:
        record = CommandRecord(
            ledger, inside.surroundings, started=listed.started_ms / 1000
        )
        return cls(
            inside, listed.id, decode(listed.tag, cut_end=True), record, listed.pid
        )

    @property
    def is_ours(self) -> bool:
        """Whether this process started it; any other is known only as long as the sandbox lists it."""
        return self._record.is_ours

    # Reading.

    async def read(
        self,
        filter: str | None = None,
        *,
        offset: int | Position | None = None,
        limit: int = READ_LIMIT,
        wait: float = 0.0,
    ) -> Chunk:
        """The output since the last read; with `offset`, the output from there on.

        chunk = await shell.read(filter="error", wait=5)
        """
        check_reading(filter, offset, limit, wait)
        pattern = (
            await to_thread.run_sync(compiled, filter) if filter is not None else None
        )
        if offset is None:
            new, start = (
                self._new,
                (self._new[0].start(filter), self._new[1].start(filter)),
            )
        else:
            new, start = (
                (NewOutput(), NewOutput()),
                (offset, offset) if isinstance(offset, int) else offset,
            )
        chunk = await self._fetch(start, limit, wait)
        streams = zip(
            new,
            chunk.offset,
            (chunk.stdout_bytes, chunk.stderr_bytes),
            chunk.next,
            strict=True,
        )
        found = [(stream.pieces(at, data), end) for stream, at, data, end in streams]
        if pattern is not None:
            found = await to_thread.run_sync(matching, found, pattern, chunk.status)
        out, err = (
            stream.take(filter, pieces, end)
            for stream, (pieces, end) in zip(new, found, strict=True)
        )
        return replace(
            chunk, stdout_bytes=out, stderr_bytes=err, next=(found[0][1], found[1][1])
        )

    def observe(self, offset: int | Position = 0) -> Observer:
        """All of its output from there on, until it ends. Each observer has a position of its own.

        async for chunk in shell.observe(): print(chunk.text, end="")
        """
        check_reading(None, offset, READ_LIMIT, 0.0)
        return Observer(self, (offset, offset) if isinstance(offset, int) else offset)

    async def _fetch(self, start: Position, limit: int, wait: float) -> Chunk:
        reply = await self._inside.link.read(
            self._number, *start, min(limit, READ_LIMIT), wait
        )
        self.learn(reply.ended)
        out, err = _whole(reply.out, reply.ended), _whole(reply.err, reply.ended)
        return Chunk(
            out,
            err,
            (reply.out_start, reply.err_start),
            (reply.out_start + len(out), reply.err_start + len(err)),
            (max(0, reply.out_start - start[0]), max(0, reply.err_start - start[1])),
            self.status,
            self.exit_code,
        )

    async def poll(self) -> Status:
        """Its status, asked of the sandbox: `await shell.poll() == "running"`."""
        if self.status == "running":
            await self._fetch((UNLIMITED, UNLIMITED), 0, 0.0)
        return self.status

    async def wait(self, timeout: float | None = None) -> Result:
        """Wait for its end; TimeoutError if that takes longer (the shell goes on).

        result = await shell.wait(timeout=60)
        """
        seconds("timeout", timeout)
        with anyio.fail_after(timeout):
            while self.status == "running":
                await self._fetch((UNLIMITED, UNLIMITED), 0, WAIT_STEP)
        return await self.result()

    async def result(self) -> Result:
        """The result of a shell that has ended, with the newest part of its output: `result = await shell.result()`."""
        if self._body is None and await self.poll() == "running":
            raise UsageError(
                f"{self.id} still runs: `await shell.wait()` gives its result"
            )
        assert self._body is not None
        out, err = await self._kept()
        await self._inside.aftermath.run_files.refresh()
        captures = (
            Capture.ending("stdout", out, self._body.stdout_total),
            Capture.ending("stderr", err, self._body.stderr_total),
        )
        return self._record.ended(captures, self._body)

    async def _kept(self) -> tuple[bytes, bytes]:
        """All output in the rings. A reply holds less than a ring, so there are several."""
        out, err, position = bytearray(), bytearray(), (0, 0)
        while len(out) <= RING_MAX and len(err) <= RING_MAX:
            chunk = await self._fetch(position, READ_LIMIT, 0.0)
            out += chunk.stdout_bytes
            err += chunk.stderr_bytes
            if not chunk.stdout_bytes and not chunk.stderr_bytes:
                return bytes(out), bytes(err)
            position = chunk.next
        raise BelljarError(
            f"{self.id}: the sandbox sent more output than it can have kept"
        )

    # Input and signals.

    async def write(self, data: bytes | str) -> None:
        """Write to its stdin; waits while the command does not read, and does nothing once it has ended.

        await shell.write("yes\\n")
        """
        if not isinstance(data, bytes | str):
            raise UsageError(f"write takes bytes or text, not {type(data).__name__}")
        self._check_known()
        if (
            await self.poll() == "running"
        ):  # the init drops input for others without a word
            await self._inside.link.join(self._number).input(
                data.encode() if isinstance(data, str) else data
            )

    def close_stdin(self) -> None:
        """Close its stdin: `shell.close_stdin()`, or by its older name `shell.close_input()`."""
        self._inside.link.join(self._number).close_input()

    close_input = close_stdin

    def resize(self, rows: int, cols: int) -> None:
        """Resize its terminal (`await box.start("vi", pty=True)`): `shell.resize(24, 80)`."""
        self._inside.link.join(self._number).resize(rows, cols)

    def signal(self, signo: int) -> None:
        """Send a signal to all its processes: `shell.signal(signal.SIGHUP)`."""
        whole("signo", signo, 1, 64)
        self._killed = self._killed or signo in (signals.SIGKILL, signals.SIGTERM)
        self._send(To.SIGNAL, frames.u32(signo))

    async def kill(self, grace: float = GRACE) -> None:
        """Kill all its processes, and wait until they are gone. Does nothing to a shell that has ended.

        await shell.kill()
        """
        seconds("grace", grace, optional=False, zero=True)
        if await self.poll() != "running":
            return
        self._killed = True
        self._send(To.KILL, frames.u32(frames.milliseconds(grace)))
        with self._inside.link.within(grace + stretched(SAFETY_NET) + PATIENCE):
            await self.wait()
            return
        raise BelljarError(
            f"{self.id} was killed, but the sandbox does not say that it has ended"
        )

    def forget(self) -> None:
        """Let the sandbox drop the output of a shell that has ended: `shell.forget()`."""
        self._is_forgotten = True
        self._send(To.FORGET, b"")

    def _check_known(self) -> None:
        if self._is_forgotten:
            raise ShellNotFound(f"Shell not found: {self.id} was forgotten")

    def _send(self, kind: To, payload: bytes) -> None:
        self._inside.link.send(frames.frame(kind, self._number, payload))

    def learn(self, ended: frames.EndedBody | None) -> None:
        if ended is None or self._body is not None:
            return
        self._body = ended
        self.exit_code = ended.exit_code
        self._inside.lasting.discard(self)
        self._inside.link.leave(self._number, ended)
        cause = cause_of(ended)
        self.status = "killed" if self._killed else status_of(cause, ended.exit_code)
        self._record.end(cause, ended.exit_code, ended.wall_us / 1e6)

    async def take_over(self, running: RunningCommand, ring: int) -> bool:
        """Go on with a foreground command. False: it has just ended.

        Output that is still on its way belongs to the caller. The reply to a read comes after it: from there on the
        output is this shell's.
        """
        process = running.process
        process.background(ring)
        reply = await self._inside.link.read(self._number, UNLIMITED, UNLIMITED, 0)
        if process.over:
            return False
        self._inside.link.forget(process)
        running.in_background = True
        self.learn(reply.ended)
        out, err = running.output
        self._new = NewOutput(out.produced), NewOutput(err.produced)
        self.so_far = Chunk(
            b"".join(out.joined()),
            b"".join(err.joined()),
            (0, 0),
            (out.produced, err.produced),
            (out.omitted, err.omitted),
            self.status,
            self.exit_code,
        )
        return True


def check_reading(filter: Any, offset: Any, limit: Any, wait: Any) -> None:
    if filter is not None and not isinstance(filter, str):
        raise UsageError(f"filter: {filter!r} is not a regular expression")
    for position in (offset,) if not isinstance(offset, tuple) else offset:
        if position is not None:
            whole("offset", position, 0)
    if isinstance(offset, tuple) and len(offset) != 2:
        raise UsageError("offset: give one number, or one each for stdout and stderr")
    whole("limit", limit, 1)
    seconds("wait", wait, optional=False, zero=True)


def _whole(data: bytes, ended: frames.EndedBody | None) -> bytes:
    """Without an incomplete character at the end, while the command may still print the rest of it."""
    return data if ended is not None else data[: len(data) - split_tail(data)]
