"""One connection to a sandbox's init.

Theory of operation. A link has no task of its own: the event loop calls `_readable` when bytes are there, and that
call decodes, checks and hands each frame to its command at once; so a small command costs one wake-up, and opening or
closing a link may happen in any task. Sending never blocks either: what the kernel does not take waits in `_outbox`.

 - Each command holds *credit*: how far the init may send each of its streams. It is renewed as output is consumed, so
   one flood or one slow reader fills its own pipe and nobody else's. An init that sends past its credit is cut off.
 - A flood is read past the init: it sends the reading end of the command's pipe, and from then on the pipe itself holds
   the command back.
 - Input has a window the other way round: at most INPUT_WINDOW bytes that the init has not acknowledged.
 - A cut network or a paused container leaves a stream silent, not closed. While anything is awaited, silence is
   answered with a PING, then with the question `still_alive` to the engine, then the link counts as lost and
   everything that waits on it learns so.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from belljar.errors import (
    CommandError,
    CommandNotExecutable,
    CommandNotFound,
    SandboxLost,
    ShellNotFound,
    UsageError,
    WorkingDirectoryError,
)
from belljar.link import frames
from belljar.link.frames import Flag, From, To, milliseconds
from belljar.link.remote_command import CREDIT, Execution
from belljar.link.transport import Transport

OF_COMMANDS = frozenset({From.OUTPUT, From.ENDED, From.STARTED, From.SPAWN_ERROR, From.INPUT_ACK})
RECEIVE = 64 << 10  # the allocator serves it from its heap; what it maps anew for each try costs ten times the try
SMALL = 4096  # after so little there is hardly more to receive, and a try costs a system call
RECEIVES_PER_WAKE = 8  # then the loop's other callers get their turn
TAGS = 256  # reads of one command that can wait at once, each with a tag that comes back with its answer

PULSE = 1.0  # how often silence is looked at while something is awaited
SUSPECT = 2.2  # silence after which the engine is asked
GIVE_UP = 20.0  # silence after which even a container said to be running is given up


T = TypeVar("T")


class Link:
    def __init__(self, transport: Transport, still_alive: Callable[[], Awaitable[bool]] | None = None) -> None:
        self.loop = asyncio.get_running_loop()
        self.lost: SandboxLost | None = None
        self._transport = transport
        self._still_alive = still_alive
        self._decoder = frames.Decoder()
        self._outbox: deque[bytes] = deque()
        self._writing = False
        self._commands: dict[int, Execution] = {}
        self._reads: dict[int, dict[int, asyncio.Future[frames.ReadReply]]] = {}
        self._lists: deque[asyncio.Future[list[frames.Listed]]] = deque()
        self._hello: asyncio.Future[int] = self.loop.create_future()
        self._pongs: deque[asyncio.Future[None]] = deque()
        self._heard = time.monotonic()
        self._pulse: asyncio.TimerHandle | None = None
        self._asking: asyncio.Task[None] | None = None
        self._when_lost: list[Callable[[], None]] = []
        self.loop.add_reader(transport.fileno(), self._readable)

    async def hello(self, token: bytes = b"") -> int:
        """Greets the init; its boot id tells whether it is still the same one."""
        self.send(frames.frame(To.HELLO, 0, frames.u32(frames.VERSION) + token))
        return await self._hello

    def spawn(
        self,
        argv: Sequence[bytes],
        *,
        flags: int,
        cwd: bytes = b"",
        env: Mapping[bytes, bytes] | None = None,
        deadline: float | None = None,
        grace: float = 2.0,
        ring: int = 0,
        tag: bytes = b"",
        paced: bool = False,
    ) -> Execution:
        id = int.from_bytes(os.urandom(8), "little") >> 1 | 1
        self.send(frames.spawn(
            id, argv, flags=flags, cwd=cwd, env=env,
            deadline_ms=milliseconds(deadline), grace_ms=milliseconds(grace), ring=ring,
            credit=0 if flags & Flag.BACKGROUND else CREDIT, tag=tag,
        ))  # fmt: skip
        # The rest is made ready while the command starts: nothing of it is heard before the loop's next turn.
        program = "bash" if flags & Flag.SHELL else os.fsdecode(argv[0])
        self._commands[id] = execution = Execution(self, id, program, os.fsdecode(cwd), paced=paced)
        return execution

    async def read(self, id: int, out_from: int, err_from: int, limit: int, wait: float = 0.0) -> frames.ReadReply:
        future: asyncio.Future[frames.ReadReply] = self.loop.create_future()
        waiting = self._reads.get(id, {})
        tag = next((tag for tag in range(TAGS) if tag not in waiting), None)
        if tag is None:
            raise UsageError(f"{TAGS} reads of one shell are waiting already")
        self.send(frames.read(id, out_from, err_from, limit, milliseconds(wait), tag))
        self._reads.setdefault(id, waiting)[tag] = future
        return await future

    async def list(self) -> list[frames.Listed]:
        future: asyncio.Future[list[frames.Listed]] = self.loop.create_future()
        self.send(frames.frame(To.LIST))
        self._lists.append(future)
        return await future

    async def ping(self) -> None:
        future: asyncio.Future[None] = self.loop.create_future()
        self.send(frames.frame(To.PING, 0, frames.u64(len(self._pongs))))
        self._pongs.append(future)
        await future

    def shutdown(self) -> None:
        """Everything in the sandbox is killed and its PID 1 exits."""
        with contextlib.suppress(SandboxLost):
            self.send(frames.frame(To.SHUTDOWN))

    def lease(self, seconds: float) -> None:
        self.send(frames.frame(To.LEASE, 0, frames.u32(milliseconds(seconds))))

    def join(self, id: int) -> Execution:
        """A command that somebody else started, to write to."""
        if id not in self._commands:
            self._commands[id] = execution = Execution(self, id)
            execution.joined = True
        return self._commands[id]

    def leave(self, id: int, ended: frames.EndedBody) -> None:
        """What was joined is over; who still writes to it learns so."""
        if (execution := self._commands.pop(id, None)) is not None:
            execution._end(ended)

    def forget(self, execution: Execution) -> None:
        self._commands.pop(execution.id, None)

    def when_lost(self, callback: Callable[[], None]) -> None:
        self._when_lost.append(callback)

    def close(self, reason: str = "the session was closed") -> None:
        if self.lost is not None:
            return
        self.lost = SandboxLost(reason)
        self.loop.remove_reader(self._transport.fileno())
        if self._writing:
            self.loop.remove_writer(self._transport.fileno())
        self._transport.close()
        if self._pulse is not None:
            self._pulse.cancel()
        for execution in list(self._commands.values()):
            execution._end(self.lost)
        self._commands.clear()
        reads = [future for tagged in self._reads.values() for future in tagged.values()]
        waiting = [self._hello, *self._pongs, *self._lists, *reads]
        for future in waiting:
            if not future.done():  # type: ignore[attr-defined]
                future.set_exception(self.lost)  # type: ignore[attr-defined]
                future.exception()  # type: ignore[attr-defined]
        for callback in self._when_lost:
            callback()

    # Sending.

    def send(self, data: bytes) -> None:
        if self.lost is not None:
            raise SandboxLost(str(self.lost))
        self._expect()
        if not self._outbox:
            data = data[self._try_send(data) :]
        if data:
            self._outbox.append(data)
            if not self._writing:
                self._writing = True
                self.loop.add_writer(self._transport.fileno(), self._writable)

    def _try_send(self, data: bytes) -> int:
        try:
            return self._transport.send(data)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            self.close(f"the sandbox went away ({error.strerror or error})")
            raise SandboxLost(str(self.lost)) from None

    def _writable(self) -> None:
        with contextlib.suppress(SandboxLost):
            while self._outbox:
                data = self._outbox.popleft()
                sent = self._try_send(data)
                if sent < len(data):
                    self._outbox.appendleft(data[sent:])
                    return
            self._writing = False
            self.loop.remove_writer(self._transport.fileno())

    # Receiving.

    def _readable(self) -> None:
        try:
            for _ in range(RECEIVES_PER_WAKE):
                data = self._transport.recv(RECEIVE)
                if not data:
                    self.close("the sandbox ended")
                    break
                self._heard = time.monotonic()
                for frame in self._decoder.feed(data):
                    self._take(*frame)
                if self.lost is not None or len(data) < SMALL:
                    break
        except (BlockingIOError, InterruptedError):
            pass
        except frames.FrameError as error:
            self.close(f"the sandbox broke the protocol: {error}")
        except OSError as error:
            self.close(f"the sandbox went away ({error.strerror or error})")

    def _take(self, kind: int, stream: int, id: int, payload: bytes) -> None:
        if kind in OF_COMMANDS:
            execution = self._commands.get(id)
            if execution is not None:  # else: of a command that was given up; its last words may still be under way
                self._tell(execution, kind, stream, payload)
        elif kind == From.PIPE:
            self._take_pipe(id, stream, frames.parse_u64(payload))
        elif kind == From.READ_REPLY:
            self._answer_read(id, stream, frames.parse_read_reply(payload))
        elif kind == From.LIST_REPLY:
            self._answer(self._lists, frames.parse_list(payload))
        elif kind == From.PONG:
            if self._pongs:
                self._answer(self._pongs, None)
        elif kind == From.HELLO:
            if not self._hello.done():
                self._hello.set_result(frames.parse_hello(payload))
        elif kind == From.ERROR:
            self._refuse(id, *frames.parse_error(payload))

    def _take_pipe(self, id: int, stream: int, offset: int) -> None:
        if not self._transport.pipes:
            raise frames.FrameError("a pipe that did not come")
        pipe, execution = self._transport.pipes.popleft(), self._commands.get(id)
        if execution is None:
            os.close(pipe)
        else:
            execution._pipe(stream, offset, pipe)

    def _tell(self, execution: Execution, kind: int, stream: int, payload: bytes) -> None:
        if kind == From.OUTPUT:
            execution._output(stream, payload)
        elif kind == From.STARTED:
            execution._start(frames.parse_u32(payload))
        elif kind == From.INPUT_ACK:
            execution._ack(stream, frames.parse_u64(payload))
        else:
            ended = kind == From.ENDED
            outcome = (
                frames.parse_ended(payload) if ended else spawn_error(execution, *frames.parse_spawn_error(payload))
            )
            self.forget(execution)
            execution._end(outcome)

    def _answer(self, queue: deque[asyncio.Future[T]], value: T) -> None:
        if not queue:
            raise frames.FrameError("an answer to no question")
        future = queue.popleft()
        if not future.done():
            future.set_result(value)

    def _answer_read(self, id: int, tag: int, reply: frames.ReadReply) -> None:
        future = self._reads.get(id, {}).pop(tag, None)
        if future is None:
            raise frames.FrameError("an answer to no question")
        if not self._reads[id]:
            del self._reads[id]
        if not future.done():
            future.set_result(reply)

    def _refuse(self, id: int, code: int, _text: str) -> None:
        reads = self._reads.pop(id, None)
        if not reads:  # a signal or input that raced with the end of its command
            if (execution := self._commands.pop(id, None)) is not None:
                execution._end(ShellNotFound("Shell not found"))
            return
        for future in reads.values():
            if not future.done():
                future.set_exception(
                    ShellNotFound("Shell not found") if code == errno.ENOENT else SandboxLost("the sandbox refused")
                )

    # Silence.

    def _expect(self) -> None:
        if self._pulse is None:
            self._heard = time.monotonic()
            self._pulse = self.loop.call_later(PULSE, self._listen)

    def _listen(self) -> None:
        self._pulse = None
        if self.lost is not None or not self._awaited():
            return
        silence = time.monotonic() - self._heard
        if silence > GIVE_UP:
            self.close("the sandbox stopped answering")
            return
        if silence >= PULSE * 0.9 and not self._pongs:
            self._pongs.append(self.loop.create_future())
            self.send(frames.frame(To.PING, 0, frames.u64(0)))
        if silence > SUSPECT and self._asking is None:
            self._asking = self.loop.create_task(self._ask())
        if self.lost is None and self._pulse is None:
            self._pulse = self.loop.call_later(PULSE, self._listen)

    def _awaited(self) -> bool:
        return (
            bool(self._commands or self._reads or self._lists or self._pongs or self._outbox) or not self._hello.done()
        )

    async def _ask(self) -> None:
        heard = self._heard
        alive = self._still_alive is not None and await self._still_alive()
        self._asking = None
        if not alive and heard == self._heard:
            self.close("the sandbox stopped answering (paused, killed or cut off)")


def spawn_error(execution: Execution, code: int, stage: int, text: str) -> CommandError:
    """The typed error for a command that the init could not start."""
    if stage == frames.Stage.CWD:
        return WorkingDirectoryError(f"Invalid working directory: {execution.cwd}: {text}")
    program = execution.program
    if code == errno.ENOENT:
        return CommandNotFound(f"Command not found: {program}")
    if code in (errno.EACCES, errno.ENOEXEC, errno.EISDIR, errno.ENOTDIR, errno.ELOOP):
        return CommandNotExecutable(f"Permission denied: {program} is not something that can be executed ({text})")
    if code == errno.E2BIG:
        return CommandError(f"{program} could not be started: its arguments and environment are too large together")
    return CommandError(f"{program} could not be started: {text}")
