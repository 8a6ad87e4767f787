"""One running command: spawned over the link, its output collected, its end recorded.

After the `async with` block the command has ended, or goes on as a background shell.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING, Self

import anyio

from belljar.errors import AuditError, BelljarError, CommandNotFound, SandboxLost, UsageError
from belljar.link import frames
from belljar.link.frames import Flag
from belljar.patience import stretched
from belljar.session.collector import Collector
from belljar.session.command_input import CommandInput
from belljar.session.request import Request, encoded
from belljar.session.result import Result
from belljar.tasks import beside, see_through

if TYPE_CHECKING:
    from belljar.link.remote_process import RemoteProcess
    from belljar.session.conclusion import Conclusion
    from belljar.session.inside import Inside
    from belljar.session.ledger import Entry, Ledger

GRACE = 2.0
SAFETY_NET = 15.0  # the init enforces the deadline; so many seconds later the host treats the sandbox as lost
LONGEST_TAG = 2000  # bytes of its command that a listed shell shows
LAST_WORDS = 3.0  # how long to wait for the end of a cancelled command


class RunningCommand:
    def __init__(
        self,
        inside: Inside,
        ledger: Ledger,
        request: Request,
        conclusion: Conclusion,
        *,
        paced: bool = False,
        ring: int = 0,
    ) -> None:
        self._inside, self._ledger = inside, ledger
        self.request, self.conclusion = request, conclusion
        options = request.options
        self.grace, self.timeout = options.get("grace", GRACE), options.get("timeout")
        self._ring = ring
        self.process = self._spawn(paced, ring)
        limit = options.get("output_limit")
        # So that the first `limit` bytes all fit the head.
        cap = max(inside.options.limits.output, 2 * (limit or 0))
        self.collector = Collector(self.process, cap, grace=self.grace, limit=limit, on_output=options.get("on_output"))
        self.input = CommandInput(self.process, options, request.flags)
        self.entry = self._record()
        self.in_background = False
        """It goes on as a background shell."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, _: object, error: BaseException | None, __: object) -> None:
        if self.in_background:
            return
        try:
            if not self.process.over:
                await see_through(self._cancel())
        finally:
            self.entry.end(_unfinished(self.process.error or error), None, time.time() - self.conclusion.started)
        if isinstance(self.process.error, CommandNotFound):
            self._name_image(self.process.error)

    def _name_image(self, error: CommandNotFound) -> None:
        """Add to the message which of our images has the program."""
        from belljar.session.hints import image_with  # most commands need none

        name, image = os.path.basename(os.fsdecode(self.request.argv[0])), self._inside.options.image
        if (better := image_with(name)) is not None and better != image:
            error.args = (f"{error}; the image {image!r} has none, {better!r} has",)

    def _spawn(self, paced: bool, ring: int) -> RemoteProcess:
        request = self.request
        flags, tag = request.flags, b""
        if ring:
            flags |= Flag.BACKGROUND
        if ring or flags & Flag.PTY:  # it may be detached later
            tag = encoded(request.verdict.canonical)[:LONGEST_TAG]
        try:
            return self._inside.link.spawn(
                request.argv, flags=flags, cwd=request.cwd, env=request.env, deadline=self.timeout,
                grace=self.grace, ring=ring, tag=tag, paced=paced, size=request.options.get("size") or (24, 80),
                user=request.user,
            )  # fmt: skip
        except frames.FrameError as error:
            raise UsageError(f"the command and its environment are too large: {error}") from error

    def _record(self) -> Entry:
        """Written while the command starts. With BELLJAR_AUDIT=required its verdict has been written before."""
        try:
            return self._ledger.start(self.request.verdict, os.fsdecode(self.request.cwd), self.request.env)
        except AuditError:
            self.process.abandon()
            raise

    async def concluded(self) -> Result:
        """Feed it, and wait for its end."""
        if self.input.is_whole:
            await self.input.feed()
            return await self.conclude()
        async with beside() as tasks:  # the input may have no end
            tasks.start_soon(self.input.feed, self.collector.fail)
            return await self.conclude()

    async def conclude(self) -> Result:
        """Wait for its end; by then all its processes are gone."""
        try:
            body = await self._ended()
            await self._inside.aftermath.look()
            result = self.conclusion.ended(self.collector.captures, body, self.collector.stopped)
        except SandboxLost as lost:
            result = self.conclusion.lost(self.collector.captures, time.time(), lost)
        self.entry.concluded(result)
        if result.oom_kills:
            self._inside.aftermath.new_oom_kills()  # so that the persistent shell does not count them
        if self.collector.listener.failure is not None:
            raise self.collector.listener.failure
        return result

    async def _ended(self) -> frames.EndedBody:
        if self.timeout is None:
            return await self.process.ended()
        return await self.process.ended_within(self.timeout + self.grace + stretched(SAFETY_NET))

    async def _cancel(self) -> None:
        with contextlib.suppress(BelljarError), anyio.move_on_after(stretched(LAST_WORDS)):
            self.process.abandon()
            if self._ring:  # nobody waits for a background command's end
                self._inside.link.forget(self.process)
            else:
                await self.process.ended()


def _unfinished(error: BaseException | None) -> str:
    """The cause to record for a command without a result."""
    if isinstance(error, SandboxLost):
        return "sandbox_lost"
    return "not_started" if isinstance(error, BelljarError) else "killed"
