"""One command, as seen from the host's end of the link.

Output comes in frames, within the credit that the host grants and renews as it is consumed. A flood is read past the
init: it passes the reading end of the command's pipe, and from then on the pipe itself holds the command back. Of a
shell with a control stream it passes all ends: what the shell printed is then read before what it reported.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import stat
from collections.abc import Callable
from typing import TYPE_CHECKING

from belljar.link import frames
from belljar.link.frames import To, milliseconds

if TYPE_CHECKING:
    from belljar.link.link import Link

CREDIT = 1 << 20
INPUT_WINDOW = 256 << 10
READ = (128 << 10) - 64  # as much as the allocator serves from its heap; what it maps anew for each read costs more
READS_PER_WAKE = 8  # then the loop's other callers get their turn
UNLIMITED = (1 << 63) - 1


class Execution:
    def __init__(self, link: Link, id: int, program: str = "", cwd: str = "", *, paced: bool = False) -> None:
        self.link, self.id, self.pid = link, id, 0
        self.program, self.cwd = program, cwd
        self.on_output: Callable[[int, bytes], None] | None = None
        self.joined = False
        """Whether others may have written to it before us."""
        self._joined_at: int | None = None
        self._paced = paced
        self._received = [0, 0, 0, 0]
        self._consumed = [0, 0, 0, 0]
        self._granted = [0, CREDIT, CREDIT, UNLIMITED]
        self._sent = [0, 0, 0, 0]
        self._acked = [0, 0, 0, 0]
        self._room: asyncio.Event | None = None
        self._pipes: dict[int, int] = {}
        self._feed: int | None = None
        """Where control input is written."""
        self._muted: set[int] = set()
        self._outcome: frames.EndedBody | None = None
        self._begun = False
        self._end_is: frames.EndedBody | Exception | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self._when_ended: list[Callable[[], None]] = []

    async def started(self) -> int:
        while not self._begun and self._end_is is None:
            await self._news()
        if isinstance(self._end_is, Exception):
            raise self._end_is
        return self.pid

    async def ended(self) -> frames.EndedBody:
        while self._end_is is None:
            await self._news()
        if isinstance(self._end_is, Exception):
            raise self._end_is
        return self._end_is

    async def _news(self) -> None:
        # A future for each that waits: one that is cancelled takes nothing from the others, and no shield is needed.
        waiter: asyncio.Future[None] = self.link.loop.create_future()
        self._waiters.append(waiter)
        await waiter

    def when_ended(self, callback: Callable[[], None]) -> None:
        self._when_ended.append(callback)

    @property
    def over(self) -> bool:
        return self._end_is is not None

    def signal(self, signo: int) -> None:
        self.link.send(frames.frame(To.SIGNAL, self.id, frames.u32(signo)))

    def kill(self, grace: float = 0.0) -> None:
        self.link.send(frames.frame(To.KILL, self.id, frames.u32(milliseconds(grace))))

    def deadline(self, seconds: float | None, grace: float) -> None:
        self.link.send(self.deadline_frame(seconds, grace))

    def deadline_frame(self, seconds: float | None, grace: float) -> bytes:
        return frames.frame(To.DEADLINE, self.id, frames.u32(milliseconds(seconds), milliseconds(grace)))

    def resize(self, rows: int, cols: int) -> None:
        self.link.send(frames.frame(To.RESIZE, self.id, rows.to_bytes(2, "little") + cols.to_bytes(2, "little")))

    async def input(self, data: bytes, stream: int = frames.STDIN, *, ahead: bytes = b"") -> None:
        """Hand `data` to the command; `ahead` is a frame that goes with it, to wake the init once instead of twice."""
        if self._feed is not None and stream == frames.CONTROL:
            if ahead:
                self.link.send(ahead)
            await self._write(data)
            return
        view = memoryview(data)
        while view and not self.over:
            free = INPUT_WINDOW - (self._sent[stream] - self._acked[stream])
            if free <= 0:
                await self._wait_for_room()
                continue
            part, view = view[:free], view[free:]
            self._sent[stream] += len(part)
            self.link.send(ahead + frames.frame(To.INPUT, self.id, bytes(part), stream))
            ahead = b""

    async def _write(self, data: bytes) -> None:
        """Past the init."""
        view = memoryview(data)
        while view and self._feed is not None:
            try:
                view = view[os.write(self._feed, view) :]
            except BrokenPipeError:
                return
            except BlockingIOError:
                self.link.loop.add_writer(self._feed, self._wake)
                try:
                    await self._wait_for_room()
                finally:
                    if self._feed is not None:
                        self.link.loop.remove_writer(self._feed)

    async def _wait_for_room(self) -> None:
        self._room = self._room or asyncio.Event()
        self._room.clear()
        await self._room.wait()

    def close_input(self, stream: int = frames.STDIN) -> None:
        if not self.over:
            self.link.send(frames.frame(To.INPUT, self.id, b"", stream))

    def background(self, ring: int) -> None:
        """The command goes on without us; what it printed and was not sent stays readable."""
        self._close_pipes()
        taken = frames.u64(self._received[frames.STDOUT]) + frames.u64(self._received[frames.STDERR])
        self.link.send(frames.frame(To.BACKGROUND, self.id, frames.u32(ring) + taken))

    def abandon(self) -> None:
        """Kill it and let its remaining output drain into nothing."""
        if self.link.lost is not None:
            return
        self.kill()
        for stream in (frames.STDOUT, frames.STDERR):
            self._granted[stream] = UNLIMITED
            self.link.send(frames.frame(To.CREDIT, self.id, frames.u64(UNLIMITED), stream))
        self.on_output, self._paced = None, False
        for stream in self._pipes:
            self._listen(stream)

    def consumed(self, stream: int, count: int) -> None:
        """Output was taken; the init may send as much again."""
        self._consumed[stream] += count
        if stream in self._muted:
            self._listen(stream)
        goal = self._consumed[stream] + CREDIT
        if goal - self._granted[stream] >= CREDIT // 2 and stream not in self._pipes and not self.over:
            self._granted[stream] = goal
            self.link.send(frames.frame(To.CREDIT, self.id, frames.u64(goal), stream))

    # What the link tells us.

    def _output(self, stream: int, data: bytes) -> None:
        if self._received[stream] + len(data) > self._granted[stream] or stream in self._pipes:
            raise frames.FrameError("output beyond its credit")
        self._deliver(stream, data)

    def _deliver(self, stream: int, data: bytes) -> None:
        self._received[stream] += len(data)
        if self.on_output is not None:
            self.on_output(stream, data)
        if not self._paced:
            self.consumed(stream, len(data))

    def _pipe(self, stream: int, offset: int, pipe: int) -> None:
        """From `offset` on, this stream comes through a pipe of its own; what comes in place of stdin is written to."""
        writes = stream == frames.STDIN
        fits = stat.S_ISFIFO(os.fstat(pipe).st_mode) and _is_writable(pipe) == writes
        if not fits or stream in self._pipes or (not writes and offset != self._received[stream]):
            os.close(pipe)
            raise frames.FrameError("a pipe that does not fit")
        os.set_blocking(pipe, False)
        if not writes:
            self._pipes[stream] = pipe
            self._listen(stream)
        elif self._feed is None and offset == self._sent[frames.CONTROL]:
            self._feed = pipe
        else:  # something is still under way through the init, and must not be overtaken
            os.close(pipe)

    def _listen(self, stream: int) -> None:
        """Read the pipe while its output is taken; at the latest a full window behind, let it fill."""
        pipe = self._pipes[stream]
        if not self._paced or self._received[stream] - self._consumed[stream] < CREDIT:
            self._muted.discard(stream)
            self.link.loop.add_reader(pipe, self._read_pipe, stream)
        else:
            self._muted.add(stream)
            self.link.loop.remove_reader(pipe)

    def _read_pipe(self, stream: int) -> None:
        for _ in range(READS_PER_WAKE):
            try:
                data = os.read(self._pipes[stream], READ)
            except BlockingIOError:
                if self._outcome is None:
                    break
                data = (
                    b""  # its tree is dead: if the pipe is still open, somebody else holds it, whose words are not its
                )
            if stream == frames.CONTROL:
                self._read_what_was_printed()
            if not data:
                self._close_pipe(stream)
                break
            self._deliver(stream, data)
            if self._paced and self._received[stream] - self._consumed[stream] >= CREDIT:
                self._listen(stream)
                break
            if len(data) < READ and self._outcome is None:
                break  # it was all

    def _read_what_was_printed(self) -> None:
        """Before a report that was read already: at most a pipe's worth."""
        for stream in (frames.STDOUT, frames.STDERR):
            if stream in self._pipes:
                self._read_pipe(stream)

    def _close_pipe(self, stream: int) -> None:
        pipe = self._pipes.pop(stream)
        self._muted.discard(stream)
        self.link.loop.remove_reader(pipe)
        os.close(pipe)
        if self._outcome is not None and not self._pipes:
            self._settle(self._outcome)

    def _close_pipes(self) -> None:
        for stream in list(self._pipes):
            self._close_pipe(stream)

    def _start(self, pid: int) -> None:
        self.pid = pid
        self._begun = True
        self._tell_all()

    def _ack(self, stream: int, total: int) -> None:
        if self.joined and self._joined_at is None:
            self._joined_at = max(0, total - self._sent[stream])  # what others had written before us
        total -= self._joined_at or 0
        if not self._acked[stream] <= total <= self._sent[stream] and not self.joined:
            raise frames.FrameError("an acknowledgement of what was never sent")
        self._acked[stream] = min(max(total, self._acked[stream]), self._sent[stream])
        self._wake()

    def _wake(self) -> None:
        if self._room is not None:
            self._room.set()

    def _end(self, outcome: frames.EndedBody | Exception) -> None:
        if isinstance(outcome, Exception):
            self._close_pipes()
        elif self._pipes:
            self._outcome = outcome
            for stream in list(self._pipes):
                if stream in self._pipes:  # else it was read before what came with it
                    self._read_pipe(stream)
            return
        self._settle(outcome)

    def _settle(self, outcome: frames.EndedBody | Exception) -> None:
        if self._end_is is not None:
            return
        self._end_is = outcome
        if self._feed is not None:
            self.link.loop.remove_writer(self._feed)
            os.close(self._feed)
            self._feed = None
        self._tell_all()
        self._wake()
        for callback in self._when_ended:
            callback()

    def _tell_all(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


def _is_writable(pipe: int) -> bool:
    return fcntl.fcntl(pipe, fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY
