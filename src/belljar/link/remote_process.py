"""`RemoteProcess`: one command, as the host's side of the link sees it.

    ASKED ──STARTED──▶ RUNNING ──ENDED──▶ DRAINING ──pipes read──▶ OVER

A failed start or a lost link leads straight to OVER. Each phase accepts only the frames that can come in it; for any
other the host closes the connection. For a shell with a control stream the init passes all pipes, so that we can read
what the shell printed before what it reported.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from enum import Enum
from functools import partial
from threading import Event
from typing import Protocol

from anyio import to_thread

from belljar.errors import (
    CommandError,
    CommandNotExecutable,
    CommandNotFound,
    SandboxLost,
    WorkingDirectoryError,
)
from belljar.link import bulk, frames
from belljar.link.frames import (
    CONTROL,
    STDERR,
    STDIN,
    STDOUT,
    Flag,
    FrameError,
    From,
    Stage,
    To,
    milliseconds,
)
from belljar.link.streams import CREDIT, READ, READS_PER_WAKE, InputStream, OutputStream
from belljar.link.transport import close_passed

PATIENCE = (
    30.0  # how long after its deadline a command may still run, if the init answers
)


class Phase(Enum):
    ASKED = "asked"
    RUNNING = "running"
    JOINED = "joined"
    """It runs in the background, or another host has started it: the init keeps its output until asked."""
    DRAINING = "draining"
    OVER = "over"


ACCEPTED = {
    # A command may be killed, and input for it acknowledged, before it is reported as started.
    Phase.ASKED: frozenset(
        {From.STARTED, From.SPAWN_ERROR, From.INPUT_ACK, From.ENDED}
    ),
    Phase.RUNNING: frozenset({From.OUTPUT, From.ENDED, From.INPUT_ACK, From.PIPE}),
    Phase.JOINED: frozenset({From.INPUT_ACK}),
    Phase.DRAINING: frozenset[From](),
    Phase.OVER: frozenset[From](),
}


class Sender(Protocol):
    """The link, as its processes use it."""

    loop: asyncio.AbstractEventLoop
    lost: SandboxLost | None

    def send(self, data: bytes) -> None: ...
    def forget(self, process: RemoteProcess) -> None: ...
    def close(self, reason: str) -> None: ...
    async def ping(self) -> None: ...
    def within(self, seconds: float) -> AbstractContextManager[object]: ...
    async def state(self, id: int) -> frames.CommandState: ...


class RemoteProcess:
    def __init__(
        self,
        link: Sender,
        id: int,
        program: str = "",
        cwd: str = "",
        *,
        flags: int = 0,
        paced: bool = False,
        joined: bool = False,
    ) -> None:
        self.link, self.id, self.pid = link, id, 0
        self.program, self.cwd, self.flags = program, cwd, flags
        self.phase = Phase.JOINED if joined else Phase.ASKED
        self.on_output: Callable[[int, bytes], object] | None = None
        self.on_started: Callable[[], object] = lambda: None
        self.accepts = ACCEPTED[self.phase]
        self._paced = paced
        loop = link.loop
        self._outputs = tuple(
            OutputStream(n, _credit(n, flags), loop) for n in (STDOUT, STDERR, CONTROL)
        )
        self._inputs = {
            STDIN: InputStream(STDIN, loop),
            CONTROL: InputStream(CONTROL, loop),
        }
        self._outcome: frames.EndedBody | Exception | None = None
        self._failure: Exception | None = None
        """What `on_output` raised; it ends the command, not the link."""
        self._file: int | None = None
        self._spilling: asyncio.Task[None] | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self._when_ended: list[Callable[[], None]] = []

    # Waiting.

    async def started(self) -> int:
        while self.phase is Phase.ASKED:
            await self._wait_for_change()
        if self.error:
            raise self.error
        return self.pid

    async def ended(self, within: float | None = None) -> frames.EndedBody:
        """Wait for the end. The init enforces deadlines; if it misses one by PATIENCE after `within` seconds although
        it still answers, the link is closed. The ping makes sure that frames which came while our loop was blocked are
        read."""
        if within is not None and not await self._over_after(within):
            await self.link.ping()
            if not await self._over_after(PATIENCE):
                self.link.close("its init missed a deadline")
        while self.phase is not Phase.OVER:
            await self._wait_for_change()
        if failed := self._failure or self.error:
            raise failed
        assert isinstance(self._outcome, frames.EndedBody)
        return self._outcome

    async def _over_after(self, seconds: float) -> bool:
        with self.link.within(seconds):
            while self.phase is not Phase.OVER:
                await self._wait_for_change()
        return self.phase is Phase.OVER

    async def _wait_for_change(self) -> None:
        # One future for each waiter: cancelling one does not affect the others, and no shield is needed.
        waiter: asyncio.Future[None] = self.link.loop.create_future()
        self._waiters.append(waiter)
        await waiter

    def when_ended(self, callback: Callable[[], None]) -> None:
        self._when_ended.append(callback)

    @property
    def over(self) -> bool:
        return self.phase is Phase.OVER

    @property
    def error(self) -> Exception | None:
        return self._outcome if isinstance(self._outcome, Exception) else None

    # Steering.

    def signal(self, signo: int) -> None:
        self.link.send(frames.frame(To.SIGNAL, self.id, frames.u32(signo)))

    def kill(self, grace: float = 0.0) -> None:
        self.link.send(frames.frame(To.KILL, self.id, frames.u32(milliseconds(grace))))

    def deadline(self, seconds: float | None, grace: float) -> None:
        self.link.send(self.deadline_frame(seconds, grace))

    def deadline_frame(self, seconds: float | None, grace: float) -> bytes:
        return frames.frame(
            To.DEADLINE, self.id, frames.u32(milliseconds(seconds), milliseconds(grace))
        )

    def resize(self, rows: int, cols: int) -> None:
        self.link.send(
            frames.frame(
                To.RESIZE,
                self.id,
                rows.to_bytes(2, "little") + cols.to_bytes(2, "little"),
            )
        )

    async def input(
        self, data: bytes, stream: int = STDIN, *, ahead: bytes = b""
    ) -> None:
        """Send `data` to the command. The frame `ahead` is sent with it, to wake the init once instead of twice."""
        target = self._inputs[stream]
        if stream == STDIN and self._own_stdin:
            await self._wait_for_pipe(target)
            if target.feed is None:
                return
        if target.feed is not None:
            if ahead:
                self.link.send(ahead)
            await target.write(data)
            return
        view = memoryview(data)
        while view and not self.over:
            if target.window <= 0:
                await target.wait_for_room()
                continue
            part, view = view[: target.window], view[target.window :]
            target.sent += len(part)
            self.link.send(ahead + frames.frame(To.INPUT, self.id, bytes(part), stream))
            ahead = b""

    async def delivered(self) -> None:
        """Wait until the command's pipe has all input that was sent, or nobody reads it any more."""
        stdin = self._inputs[STDIN]
        while stdin.acked < stdin.sent and not (self.over or stdin.closed):
            await stdin.wait_for_room()

    @property
    def _own_stdin(self) -> bool:
        """Whether stdin is a pipe that the init passes; it accepts no INPUT frames for it."""
        return self.flags & (Flag.DIRECT | Flag.CONTROL) == Flag.DIRECT

    async def _wait_for_pipe(self, target: InputStream) -> None:
        while target.feed is None and not target.closed:
            await target.wait_for_room()

    async def pour(self, file: int) -> None:
        """Copy a file from its current position to stdin; only for a command whose stdin pipe is passed to us."""
        stdin = self._inputs[STDIN]
        await self._wait_for_pipe(stdin)
        if stdin.feed is None:
            return
        stopped = Event()
        try:
            work = partial(bulk.pour, os.dup(file), os.dup(stdin.feed), stopped.is_set)
            await asyncio.shield(self.link.loop.create_task(to_thread.run_sync(work)))
        finally:
            stopped.set()

    def spill(self, file: int) -> None:
        """Write what comes through stdout's pipe to this file, not to `on_output`."""
        self._file = file

    def close_input(self, stream: int = STDIN) -> None:
        if stream == STDIN and self._own_stdin:
            self._inputs[STDIN].close()
        if not self.over:
            self.link.send(frames.frame(To.INPUT, self.id, b"", stream))

    def background(self, ring: int) -> None:
        """Let the command go on without us; output that was not sent yet stays readable."""
        for stream in self._outputs:
            self._close_pipe(stream)
        received = frames.u64(self._outputs[0].received) + frames.u64(
            self._outputs[1].received
        )
        self.link.send(
            frames.frame(To.BACKGROUND, self.id, frames.u32(ring) + received)
        )

    def abandon(self) -> None:
        """Kill it and drop its remaining output. Does not fail: without its sandbox it is dead already."""
        if self.link.lost is not None or self.over:
            return
        with suppress(SandboxLost):
            self._abandon()

    def _abandon(self) -> None:
        self.kill()
        self.on_output, self._paced = None, False
        for stream in self._outputs:
            if stream.granted:
                self.link.send(stream.drain(self.id))
            if not self._is_spilling(stream):
                stream.listen(self._read_pipe, paced=False)

    def consumed(self, number: int, count: int) -> None:
        """Output was consumed, so the init may send as much again."""
        stream = self._outputs[number - STDOUT]
        stream.consumed += count
        if stream.muted:
            stream.listen(self._read_pipe, paced=self._paced)
        if not self.over and (grant := stream.renew(self.id)):
            self.link.send(grant)

    # One handler for each kind of frame.

    def take_started(self, _stream: int, payload: bytes) -> None:
        self.pid = frames.parse_u32(payload)
        self._enter(Phase.RUNNING)
        if self.flags & Flag.BACKGROUND:
            self._enter(Phase.JOINED)
        self.on_started()
        self._wake_waiters()

    def take_output(self, number: int, data: bytes) -> None:
        if number == STDIN:
            raise FrameError("output on the input stream")
        stream = self._outputs[number - STDOUT]
        stream.count_frame(len(data))
        self._deliver(stream, data)

    def take_ack(self, number: int, payload: bytes) -> None:
        if number not in self._inputs:
            raise FrameError("an acknowledgement of output")
        self._inputs[number].acknowledge(
            frames.parse_u64(payload), joined=self.phase is Phase.JOINED
        )

    def take_pipe(self, number: int, offset: int, passed: int) -> None:
        """From `offset` on this stream comes through a pipe. For the number of stdin we get the writing end."""
        expected: tuple[int, ...] = (STDOUT, STDERR)
        if self.flags & Flag.DIRECT:
            expected += (STDIN,) if self._own_stdin else (STDIN, CONTROL)
        if self.flags & (Flag.PTY | Flag.BACKGROUND) or number not in expected:
            close_passed([passed])
            raise FrameError("an unexpected pipe")
        if number == STDIN:
            self._inputs[STDIN if self._own_stdin else CONTROL].adopt(passed, offset)
            return
        stream = self._outputs[number - STDOUT]
        stream.adopt(passed, offset)
        if number == STDOUT and self._file is not None and stream.pipe is not None:
            self._spilling = self.link.loop.create_task(
                self._spill(stream, stream.pipe, self._file)
            )
        else:
            stream.listen(self._read_pipe, paced=self._paced)

    async def _spill(self, stream: OutputStream, pipe: int, file: int) -> None:
        work = partial(
            bulk.spill,
            os.dup(pipe),
            os.dup(file),
            lambda: self.phase in (Phase.DRAINING, Phase.OVER),
        )
        try:
            stream.received += await to_thread.run_sync(work)
        except OSError as error:
            self._fail(error)
        self._spilling = None
        self._close_pipe(stream)

    def end(self, outcome: frames.EndedBody | Exception) -> None:
        self.link.forget(self)
        self._outcome = outcome
        if isinstance(outcome, Exception):
            for stream in self._outputs:
                stream.close()
        self._enter(Phase.DRAINING)
        for stream in self._outputs:
            stream.finish()
            if stream.pipe is not None and not self._is_spilling(stream):
                self._read_pipe(stream.number)
        self._settle()

    # Output.

    def _is_spilling(self, stream: OutputStream) -> bool:
        return self._spilling is not None and stream.number == STDOUT

    def _deliver(self, stream: OutputStream, data: bytes) -> None:
        if self.on_output is not None:
            try:
                self.on_output(stream.number, data)
            except FrameError:
                raise
            except Exception as failure:
                self._fail(failure)
        if not self._paced:
            self.consumed(stream.number, len(data))

    def _fail(self, failure: Exception) -> None:
        """The consumer of the output raised: that ends this command, and nothing else."""
        self._failure = failure
        try:
            self.abandon()
        except SandboxLost:
            self.on_output = None

    def _read_pipe(self, number: int) -> None:
        stream = self._outputs[number - STDOUT]
        draining = self.phase is Phase.DRAINING
        for _ in range(READS_PER_WAKE):
            data = stream.read()
            if data is None:
                if not draining:
                    return
                data = b""
            if number == CONTROL:
                self._read_printed_output()
            if not data:
                self._close_pipe(stream)
                return
            stream.received += len(data)
            self._deliver(stream, data)
            if stream.pipe is None:
                return
            if stream.finished:
                self._close_pipe(stream)
                return
            if self._paced and stream.behind:
                stream.listen(self._read_pipe, paced=True)
                return
            if len(data) < READ and not draining:
                return  # the pipe is empty

    def _read_printed_output(self) -> None:
        """Called before a report is delivered: what was printed comes first. At most one full pipe each."""
        for stream in self._outputs[:2]:
            if stream.pipe is not None:
                self._read_pipe(stream.number)

    def _close_pipe(self, stream: OutputStream) -> None:
        stream.close()
        self._settle()

    # The end.

    def _enter(self, phase: Phase) -> None:
        self.phase, self.accepts = phase, ACCEPTED[phase]

    def _settle(self) -> None:
        if self.phase is not Phase.DRAINING or any(
            stream.pipe is not None for stream in self._outputs
        ):
            return
        self._enter(Phase.OVER)
        for stream in self._inputs.values():
            stream.close()
        self._wake_waiters()
        callbacks, self._when_ended = self._when_ended, []
        for callback in callbacks:
            callback()
        self.on_output, self.on_started = None, lambda: None  # breaks a reference cycle

    def _wake_waiters(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


def _credit(number: int, flags: int) -> int:
    """How much the init may send at first: nothing on a stream that the command does not have."""
    if flags & Flag.BACKGROUND:
        return 0
    if number == STDERR:
        return 0 if flags & (Flag.PTY | Flag.COMBINED) else CREDIT
    return CREDIT if number == STDOUT or flags & Flag.CONTROL else 0


NOT_EXECUTABLE = (errno.EACCES, errno.ENOEXEC, errno.EISDIR, errno.ENOTDIR, errno.ELOOP)


def spawn_error(
    program: str, cwd: str, code: int, stage: int, text: str
) -> CommandError:
    """For a command that the init could not start."""
    if stage == Stage.CWD:
        return WorkingDirectoryError(f"Invalid working directory: {cwd}: {text}")
    if code == errno.ENOENT:
        return CommandNotFound(f"Command not found: {program}")
    if code in NOT_EXECUTABLE:
        return CommandNotExecutable(
            f"Permission denied: {program} is not something that can be executed ({text})"
        )
    if code == errno.E2BIG:
        return CommandError(
            f"{program} could not be started: its arguments and environment are too large together"
        )
    return CommandError(f"{program} could not be started: {text}")
