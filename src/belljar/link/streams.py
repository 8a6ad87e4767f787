"""Flow control of one command's streams, on the host's side of the link.

Output comes in frames, within a credit that the host renews as the output is consumed. For a flood of output the init
passes us the reading end of the command's pipe; from then on the full pipe holds the command back. Input has a window:
at most INPUT_WINDOW bytes may be unacknowledged.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from belljar.link import bulk, frames
from belljar.link.frames import FrameError, To
from belljar.link.transport import close_passed, reopened

CREDIT = 1 << 20
INPUT_WINDOW = 256 << 10
READ = (
    128 << 10
) - 64  # a larger buffer would be mapped anew for each read, which is slower
READS_PER_WAKE = 8  # then other callbacks of the event loop get their turn
UNLIMITED = (1 << 63) - 1


class OutputStream:
    """stdout, stderr or control."""

    __slots__ = (
        "_left",
        "_loop",
        "consumed",
        "granted",
        "muted",
        "number",
        "pipe",
        "received",
    )

    def __init__(
        self, number: int, granted: int, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.number, self.granted = number, granted
        self.received = self.consumed = 0
        self.pipe: int | None = None
        self.muted = False
        self._left: int | None = None
        self._loop = loop

    def count_frame(self, length: int) -> None:
        """Count output that came in a frame."""
        if self.received + length > self.granted or self.pipe is not None:
            raise FrameError("output beyond its credit")
        self.received += length

    def renew(self, id: int) -> bytes:
        """The frame that grants more credit; empty: not needed yet."""
        goal = self.consumed + CREDIT
        if self.pipe is not None or goal - self.granted < CREDIT // 2:
            return b""
        self.granted = goal
        return frames.frame(To.CREDIT, id, frames.u64(goal), self.number)

    def drain(self, id: int) -> bytes:
        """The frame that grants unlimited credit, for output that will be dropped."""
        self.granted = UNLIMITED
        return frames.frame(To.CREDIT, id, frames.u64(UNLIMITED), self.number)

    @property
    def behind(self) -> bool:
        """Whether a full window of output is not consumed yet."""
        return self.received - self.consumed >= CREDIT

    def adopt(self, passed: int, offset: int) -> None:
        """From `offset` on the output comes through the pipe `passed`."""
        if self.pipe is not None or offset != self.received:
            close_passed([passed])
            raise FrameError("a pipe at the wrong offset")
        self.pipe = reopened(passed, to_write=False)

    def finish(self) -> None:
        """Who wrote to the pipe is dead: what is in it now is all that will be read."""
        if self.pipe is not None:
            self._left = bulk.unread(self.pipe)

    @property
    def finished(self) -> bool:
        """All was read that is to be read. Another process may hold the pipe, so nothing else may ever wake us."""
        return self._left == 0

    def read(self) -> bytes | None:
        """From the pipe; None: nothing now."""
        if self.pipe is None or self.finished:
            return b""
        try:
            data = os.read(
                self.pipe, READ if self._left is None else min(READ, self._left)
            )
        except BlockingIOError:
            return None
        if self._left is not None:
            self._left -= len(data)
        return data

    def listen(self, wake: Callable[[int], None], *, paced: bool) -> None:
        """Read the pipe. A paced stream that is a full window behind pauses, and the pipe fills up."""
        if self.pipe is None:
            return
        self.muted = paced and self.behind
        if self.muted:
            self._loop.remove_reader(self.pipe)
        else:
            self._loop.add_reader(self.pipe, wake, self.number)

    def close(self) -> None:
        if self.pipe is not None:
            self._loop.remove_reader(self.pipe)
            os.close(self.pipe)
        self.pipe, self.muted = None, False


class InputStream:
    """stdin or control."""

    __slots__ = (
        "_loop",
        "_room",
        "acked",
        "closed",
        "feed",
        "joined_at",
        "number",
        "sent",
    )

    def __init__(self, number: int, loop: asyncio.AbstractEventLoop) -> None:
        self.number = number
        self.sent = self.acked = 0
        self.joined_at: int | None = None
        """For a command that others may have written to: how much they had written when we joined; None: unknown."""
        self.feed: int | None = None
        """The pipe to write to, if the init passed it."""
        self.closed = False
        self._room: asyncio.Event | None = None
        self._loop = loop

    @property
    def window(self) -> int:
        return INPUT_WINDOW - (self.sent - self.acked)

    def acknowledge(self, total: int, *, joined: bool) -> None:
        """`joined`: others may have written to it before us."""
        if joined and self.joined_at is None:
            self.joined_at = max(0, total - self.sent)
        total -= self.joined_at or 0
        if not joined and not self.acked < total <= self.sent:
            raise FrameError("an acknowledgement of bytes that were never sent")
        self.acked = min(max(total, self.acked), self.sent)
        self.wake()

    def adopt(self, passed: int, offset: int) -> None:
        if self.feed is not None:
            close_passed([passed])
            raise FrameError("a second pipe for one stream")
        if offset == self.sent and not self.closed:
            self.feed = reopened(passed, to_write=True)
            self.wake()
        else:  # earlier input is still on its way through the init and must arrive first
            close_passed([passed])

    async def write(self, data: bytes) -> None:
        """Write to the pipe directly."""
        view = memoryview(data)
        while view and self.feed is not None:
            try:
                view = view[os.write(self.feed, view) :]
            except BrokenPipeError:
                return
            except BlockingIOError:
                if not bulk.enlarge(self.feed):
                    await self._until_writable(self.feed)

    async def _until_writable(self, feed: int) -> None:
        self._loop.add_writer(feed, self.wake)
        try:
            await self.wait_for_room()
        finally:
            if self.feed is not None:
                self._loop.remove_writer(feed)

    async def wait_for_room(self) -> None:
        self._room = self._room or asyncio.Event()
        self._room.clear()
        await self._room.wait()

    def wake(self) -> None:
        if self._room is not None:
            self._room.set()

    def close(self) -> None:
        if self.feed is not None:
            self._loop.remove_writer(self.feed)
            os.close(self.feed)
        self.feed, self.closed = None, True
        self.wake()
