"""A command that outlives this process, with all of its output.

A background shell keeps the newest output in a ring and drops the rest. A held command drops nothing: the init keeps
its output, and holds the command back once the rings are full, until somebody has *confirmed* how much they have. It
carries a tag of its caller, so that a later process finds it again and goes on reading where the earlier one confirmed.

    held = await box.hold(await box.admit("make"), "c-1")
    taken = await held.take((0, 0), wait=30)          # what there is from these offsets on
    held.confirm(taken.next)                          # the init may drop everything before
    …
    again = (await box.held())["c-1"]                 # in another process

Every `begin` writes one `start` to the audit trail, and every `conclude` one `end`, under a name that both know.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from belljar.errors import CommandError
from belljar.link import frames
from belljar.link.frames import STDERR, STDOUT, Flag, To
from belljar.records import record
from belljar.session.ledger import CommandRecord
from belljar.session.output import Captures
from belljar.session.running_command import GRACE

if TYPE_CHECKING:
    from belljar.session.commands import Commands, Request
    from belljar.session.result import Cause, Result

RING = 1 << 20
"""Bytes of each stream that wait in the init. They count as memory of the sandbox."""
MOST = 1 << 20
"""Bytes of each stream that one `take` brings."""
Position = tuple[int, int]
"""How many bytes of stdout and of stderr."""


@record
class Taken:
    """Output from the wanted position on. It begins later only if the init ran out of memory."""

    stdout: bytes
    stderr: bytes
    start: Position
    ended: frames.EndedBody | None

    @property
    def next(self) -> Position:
        return self.start[0] + len(self.stdout), self.start[1] + len(self.stderr)

    @property
    def is_last(self) -> bool:
        """Whether the command has ended and no more output follows."""
        return self.ended is not None and self.next == (
            self.ended.stdout_total,
            self.ended.stderr_total,
        )


class HeldCommand:
    def __init__(
        self, commands: Commands, number: int, pid: int, record: CommandRecord
    ) -> None:
        self.pid = pid
        self.started = record.started
        self._inside = commands.inside
        self._number = number
        self._record = record

    @classmethod
    async def begin(cls, commands: Commands, request: Request, tag: str) -> HeldCommand:
        """Start an admitted command; CommandError if it cannot start."""
        request = await commands.admitted(request, {}, "hold")
        options, link = request.options, commands.inside.link
        combined = bool(options.get("combined") or options.get("pty"))
        record = commands.new_record(request.verdict, combined)
        process = link.spawn(
            request.argv,
            flags=request.flags | Flag.BACKGROUND | Flag.HELD,
            cwd=request.cwd,
            env=request.env,
            deadline=options.get("timeout"),
            grace=options.get("grace", GRACE),
            ring=RING,
            tag=tag.encode(),
            size=options.get("size") or (24, 80),
            user=request.user,
        )
        commands.ledger.record(
            "start",
            run=tag,
            digest=request.verdict.digest,
            command=request.verdict.canonical,
            cwd=os.fsdecode(request.cwd),
            env=request.env,
        )
        try:
            pid = await process.started()
        except CommandError:
            commands.ledger.record(
                "end", run=tag, digest=request.verdict.digest, cause="not_started"
            )
            raise
        finally:
            link.forget(process)
        return cls(commands, process.id, pid, record)

    @classmethod
    async def all(cls, commands: Commands) -> dict[str, HeldCommand]:
        """The held commands that the sandbox knows, by their tags."""
        found = {}
        for listed in await commands.inside.link.list():
            if listed.flags & Flag.HELD:
                started, combined = (
                    listed.started_ms / 1000,
                    bool(listed.flags & (Flag.COMBINED | Flag.PTY)),
                )
                record = CommandRecord(
                    commands.ledger,
                    commands.inside.surroundings,
                    combined=combined,
                    started=started,
                )
                found[listed.tag.decode()] = cls(
                    commands, listed.id, listed.pid, record
                )
        return found

    async def take(
        self, position: Position, *, wait: float = 0.0, most: int = MOST
    ) -> Taken:
        """What comes after `position`; waits so long for something to come, or for the end."""
        reply = await self._inside.link.read(self._number, *position, most, wait)
        return Taken(
            reply.out, reply.err, (reply.out_start, reply.err_start), reply.ended
        )

    def confirm(self, position: Position) -> None:
        """The output before `position` is safe elsewhere: the init need not keep it."""
        for stream, offset in zip((STDOUT, STDERR), position, strict=True):
            self._send(To.CREDIT, frames.u64(offset), stream)

    async def conclude(
        self, captures: Captures, ended: frames.EndedBody, stopped: Cause | None = None
    ) -> Result:
        """The result of a command whose end `take` has told."""
        await self._inside.aftermath.run_files.refresh()
        result = self._record.ended(captures, ended, stopped)
        if result.oom_kills:
            self._inside.aftermath.new_oom_kills()
        return result

    def lost(self, captures: Captures, now: float, why: object) -> Result:
        """The result of a command whose sandbox went away."""
        return self._record.lost(captures, why, now)

    # Steering.

    async def write(self, data: bytes) -> None:
        """Write to its stdin; returns when the command's pipe has all of it."""
        process = self._inside.link.join(self._number)
        await process.input(data)
        await process.delivered()

    def close_input(self) -> None:
        self._inside.link.join(self._number).close_input()

    def resize(self, rows: int, cols: int) -> None:
        self._inside.link.join(self._number).resize(rows, cols)

    def signal(self, signo: int) -> None:
        """To all its processes."""
        self._send(To.SIGNAL, frames.u32(signo))

    def kill(self, grace: float = GRACE) -> None:
        """SIGTERM, then SIGKILL after `grace`. `take` tells when no process of it is left."""
        self._send(To.KILL, frames.u32(frames.milliseconds(grace)))

    def left(self, ended: frames.EndedBody) -> None:
        """It has ended: let those go on who wait to write to it."""
        self._inside.link.leave(self._number, ended)

    def forget(self) -> None:
        """Let the init drop it and its output."""
        self._send(To.FORGET, b"")

    def _send(self, kind: To, payload: Any, stream: int = 0) -> None:
        self._inside.link.send(frames.frame(kind, self._number, payload, stream))
