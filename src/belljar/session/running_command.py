"""A running command: its input, its output up to its limit, its end.

After the `async with` block the command has ended, or goes on as a background shell.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Self

import anyio
from anyio import to_thread

from belljar.errors import BelljarError, CommandNotFound, SandboxLost
from belljar.link.frames import Flag
from belljar.patience import stretched
from belljar.session.output import STREAMS, Listener, captures
from belljar.tasks import beside, see_through

if TYPE_CHECKING:
    from belljar.link.remote_process import RemoteProcess
    from belljar.session.inside import Inside
    from belljar.session.ledger import CommandRecord
    from belljar.session.options import InputPiece, Options
    from belljar.session.result import Cause, Result

GRACE = 2.0
SAFETY_NET = 15.0  # the init enforces the deadline; so many seconds later the host treats the sandbox as lost
LAST_WORDS = 3.0  # how long to wait for the end of a cancelled command


class RunningCommand:
    def __init__(
        self,
        inside: Inside,
        process: RemoteProcess,
        record: CommandRecord,
        options: Options,
        cap: int,
    ) -> None:
        """`cap`: how many bytes of each stream are kept."""
        self._inside = inside
        self.process = process
        self.record = record
        self.grace = options.get("grace", GRACE)
        timeout = options.get("timeout")
        self._longest = (
            None if timeout is None else timeout + self.grace + stretched(SAFETY_NET)
        )
        """Seconds; the init enforces the deadline, and when it is missed by so much the host does."""
        self._limit = options.get("output_limit")
        # The first `limit` bytes must all fit the head.
        self.output = captures(max(cap, 2 * (self._limit or 0)))
        self._order = 0
        self._listener = Listener(options.get("on_output"))
        self._stopped: Cause | None = None
        """Why the host ended it, if it did."""
        self.input = CommandInput(process, options)
        self.in_background = False
        """It goes on as a background shell."""
        self._has_result = False
        process.on_output = self.take

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _: object, error: BaseException | None, __: object
    ) -> None:
        if self.in_background or self._has_result:
            return
        try:
            if not self.process.over:
                await see_through(self._cancel())
        finally:
            self.record.end(
                _unfinished(self.process.error or error),
                None,
                time.time() - self.record.started,
            )
        if isinstance(self.process.error, CommandNotFound):
            self._name_image(self.process.error)

    def _name_image(self, error: CommandNotFound) -> None:
        """Add to the message which of our images has the program."""
        from belljar.session.hints import image_with  # most commands need none

        name, image = os.path.basename(self.process.program), self._inside.options.image
        if (better := image_with(name)) is not None and better != image:
            error.args = (f"{error}; the image {image!r} has none, {better!r} has",)

    # Output.

    def take(self, stream: int, data: bytes) -> bytes:
        """Keep `data` up to the limit; returns what was kept."""
        name = STREAMS.get(stream)
        if name is None:
            return b""
        self._order += 1
        capture = self.output[name == "stderr"]
        kept = (
            data if self._limit is None else data[: max(0, self._limit - self.produced)]
        )
        if kept:
            capture.add(self._order, kept)
            if not self._listener.call(name, kept):
                self.stop("killed")
        if len(kept) < len(data):
            capture.produced += len(data) - len(kept)
            if self._stopped is None:
                self.stop("output_limit")
        return kept

    @property
    def produced(self) -> int:
        return self.output[0].produced + self.output[1].produced

    def stop(self, cause: Cause) -> None:
        """Kill the command; the result will give this cause."""
        self._stopped = self._stopped or cause
        self.process.kill(self.grace)

    def fail(self, failure: Exception) -> None:
        """Kill the command; the caller will get this exception."""
        self._listener.failure = self._listener.failure or failure
        self.stop("killed")

    def interrupt(self) -> None:
        self._stopped = self._stopped or "interrupted"
        self.process.signal(signal.SIGINT)

    # The end.

    async def concluded(self) -> Result:
        """Feed it, and wait for its end."""
        if self.input.is_whole:
            await self.input.feed()
            return await self.conclude()
        async with beside() as tasks:  # the input may have no end
            tasks.start_soon(self.input.feed, self.fail)
            return await self.conclude()

    async def conclude(self) -> Result:
        """Wait for its end; by then all its processes are gone."""
        try:
            body = await self.process.ended(self._longest)
            await self._inside.aftermath.run_files.refresh()
            result = self.record.ended(self.output, body, self._stopped)
        except SandboxLost as lost:
            result = self.record.lost(self.output, lost)
        self._has_result = True
        if result.oom_kills:
            self._inside.aftermath.new_oom_kills()  # so that the persistent shell does not count them
        if self._listener.failure is not None:
            raise self._listener.failure
        return result

    async def _cancel(self) -> None:
        with (
            contextlib.suppress(BelljarError),
            anyio.move_on_after(stretched(LAST_WORDS)),
        ):
            self.process.abandon()
            if (
                self.process.flags & Flag.BACKGROUND
            ):  # nobody waits for a background command's end
                self._inside.link.forget(self.process)
            else:
                await self.process.ended()


def _unfinished(error: BaseException | None) -> str:
    """The cause to record for a command without a result."""
    if isinstance(error, SandboxLost):
        return "sandbox_lost"
    return "not_started" if isinstance(error, BelljarError) else "killed"


class CommandInput:
    """A command's stdin: first the `stdin` option, then what is written, then its end.

    The option is bytes or text, or an iterator of such pieces, which come while the command runs.
    """

    def __init__(self, process: RemoteProcess, options: Options) -> None:
        self._process = process
        self._first = options.get("stdin")
        self._ends = (
            self._first is not None
            and not options.get("stdin_open")
            and not process.flags & Flag.PTY
        )
        """Whether it ends after the first bytes. A terminal's input has no end, unless somebody types one."""
        self._fed = anyio.Event()

    @property
    def is_whole(self) -> bool:
        """Whether all of the option is there, so that feeding it takes no longer than the command reads."""
        return isinstance(self._first, bytes | str | None)

    async def feed(self, fail: Callable[[Exception], None] | None = None) -> None:
        """`fail` is called with an exception of the caller's iterator."""
        if self._fed.is_set():
            return
        first, self._first = self._first, None
        try:
            if isinstance(first, bytes | str):
                await self._process.input(_encoded(first))
            elif first is not None:
                async for piece in _pieces(first):
                    await self._process.input(_encoded(piece))
        except Exception as failure:
            if fail is None:
                raise
            fail(failure)
        finally:
            self._fed.set()
        if self._ends:
            self._process.close_input()

    async def write(self, data: bytes) -> None:
        """Waits while the command does not read, or while the first bytes are on their way."""
        await self._fed.wait()
        await self._process.input(data)

    def close(self) -> None:
        self._ends = True
        if self._fed.is_set():
            self._process.close_input()


def _encoded(piece: InputPiece) -> bytes:
    return piece.encode() if isinstance(piece, str) else bytes(piece)


async def _pieces(
    first: AsyncIterable[InputPiece] | Iterator[InputPiece],
) -> AsyncIterator[InputPiece]:
    """An ordinary iterator, such as an open file, may wait, so a thread does that."""
    if isinstance(first, AsyncIterable):
        async for piece in first:
            yield piece
        return
    following = partial(next, first, None)
    while (
        piece := await to_thread.run_sync(following, abandon_on_cancel=True)
    ) is not None:
        yield piece
