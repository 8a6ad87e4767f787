"""One connection to a sandbox's init.

Theory of operation. A link has no task of its own: the event loop calls `_readable` when bytes are there, and that
call decodes, checks and hands each frame to its command at once; so a small command costs one wake-up, and opening or
closing a link may happen in any task. Sending never blocks either: what the kernel does not take waits in `_outbox`.

 - Each command holds *credit*: how far the init may send each of its streams. It is renewed as output is consumed, so
   one flood or one slow reader fills its own pipe and nobody else's. An init that sends past its credit is cut off.
 - Input has a window the other way round: at most INPUT_WINDOW bytes that the init has not acknowledged.
 - A cut network or a paused container leaves a stream silent, not closed. While anything is awaited, silence is
   answered with a PING, then with the question `still_alive` to the engine, then the link counts as lost and
   everything that waits on it learns so.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import secrets
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from belljar import frames
from belljar.errors import (
    CommandError,
    CommandNotExecutable,
    CommandNotFound,
    SandboxLost,
    ShellNotFound,
    WorkingDirectoryError,
)
from belljar.frames import Flag, From, To

CREDIT = 1 << 20
INPUT_WINDOW = 256 << 10
RECEIVE = 1 << 20
SMALL = 4096  # after so little there is hardly more to receive, and a try costs a system call
RECEIVES_PER_WAKE = 8  # then the loop's other callers get their turn
UNLIMITED = (1 << 63) - 1

PULSE = 1.0  # how often silence is looked at while something is awaited
SUSPECT = 2.2  # silence after which the engine is asked
GIVE_UP = 20.0  # silence after which even a container said to be running is given up


T = TypeVar("T")


class Transport(Protocol):
    """A non-blocking byte stream; `socket.socket` is one."""

    def fileno(self) -> int: ...
    def recv(self, size: int, /) -> bytes: ...
    def send(self, data: bytes, /) -> int: ...
    def close(self) -> None: ...


class Execution:
    """One command, as seen over the link."""

    def __init__(self, link: Link, id: int, on_output: Callable[[int, bytes], None] | None, paced: bool) -> None:
        self.link, self.id, self.pid = link, id, 0
        self._on_output = on_output
        self._paced = paced
        self._received = [0, 0, 0, 0]
        self._consumed = [0, 0, 0, 0]
        self._granted = [0, CREDIT, CREDIT, UNLIMITED]
        self._sent = [0, 0, 0, 0]
        self._acked = [0, 0, 0, 0]
        self._room: asyncio.Event | None = None
        self._started: asyncio.Future[int] = link.loop.create_future()
        self._ended: asyncio.Future[frames.EndedBody] = link.loop.create_future()

    async def started(self) -> int:
        return await asyncio.shield(self._started)

    async def ended(self) -> frames.EndedBody:
        return await asyncio.shield(self._ended)

    def when_ended(self, callback: Callable[[], None]) -> None:
        self._ended.add_done_callback(lambda _: callback())

    @property
    def over(self) -> bool:
        return self._ended.done()

    def signal(self, signo: int) -> None:
        self.link.send(frames.frame(To.SIGNAL, self.id, frames.u32(signo)))

    def kill(self, grace: float = 0.0) -> None:
        self.link.send(frames.frame(To.KILL, self.id, frames.u32(_ms(grace))))

    def deadline(self, seconds: float | None, grace: float) -> None:
        self.link.send(frames.frame(To.DEADLINE, self.id, frames.u32(_ms(seconds), _ms(grace))))

    def resize(self, rows: int, cols: int) -> None:
        self.link.send(frames.frame(To.RESIZE, self.id, rows.to_bytes(2, "little") + cols.to_bytes(2, "little")))

    async def input(self, data: bytes, stream: int = frames.STDIN) -> None:
        view = memoryview(data)
        while view and not self.over:
            free = INPUT_WINDOW - (self._sent[stream] - self._acked[stream])
            if free <= 0:
                await self._wait_for_room()
                continue
            part, view = view[:free], view[free:]
            self._sent[stream] += len(part)
            self.link.send(frames.frame(To.INPUT, self.id, bytes(part), stream))

    async def _wait_for_room(self) -> None:
        self._room = self._room or asyncio.Event()
        self._room.clear()
        await self._room.wait()

    def close_input(self, stream: int = frames.STDIN) -> None:
        if not self.over:
            self.link.send(frames.frame(To.INPUT, self.id, b"", stream))

    def background(self, ring: int) -> None:
        """The command goes on without us; what it printed and was not sent stays readable."""
        self.link.send(frames.frame(To.BACKGROUND, self.id, frames.u32(ring)))

    def abandon(self) -> None:
        """Kill it and let its remaining output drain into nothing."""
        self.kill()
        for stream in (frames.STDOUT, frames.STDERR):
            self._granted[stream] = UNLIMITED
            self.link.send(frames.frame(To.CREDIT, self.id, frames.u64(UNLIMITED), stream))
        self._on_output = None

    def consumed(self, stream: int, count: int) -> None:
        """Output was taken; the init may send as much again."""
        self._consumed[stream] += count
        goal = self._consumed[stream] + CREDIT
        if goal - self._granted[stream] >= CREDIT // 2 and not self.over:
            self._granted[stream] = goal
            self.link.send(frames.frame(To.CREDIT, self.id, frames.u64(goal), stream))

    # What the link tells us.

    def _output(self, stream: int, data: bytes) -> None:
        self._received[stream] += len(data)
        if self._received[stream] > self._granted[stream]:
            raise frames.FrameError("output beyond its credit")
        if self._on_output is not None:
            self._on_output(stream, data)
        if not self._paced:
            self.consumed(stream, len(data))

    def _start(self, pid: int) -> None:
        self.pid = pid
        if not self._started.done():
            self._started.set_result(pid)

    def _ack(self, stream: int, total: int) -> None:
        if not self._acked[stream] <= total <= self._sent[stream]:
            raise frames.FrameError("an acknowledgement of what was never sent")
        self._acked[stream] = total
        self._wake()

    def _wake(self) -> None:
        if self._room is not None:
            self._room.set()

    def _end(self, outcome: frames.EndedBody | Exception) -> None:
        for future, value in ((self._started, self.pid), (self._ended, outcome)):
            if future.done():
                continue
            if isinstance(outcome, Exception):
                future.set_exception(outcome)
                future.exception()  # seen: a caller that never asks is not a warning
            else:
                future.set_result(value)  # type: ignore[arg-type]
        self._wake()


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
        self._reads: dict[int, deque[asyncio.Future[frames.ReadReply]]] = {}
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
        flags: Flag,
        cwd: bytes = b"",
        env: Mapping[bytes, bytes] | None = None,
        deadline: float | None = None,
        grace: float = 2.0,
        ring: int = 0,
        tag: bytes = b"",
        on_output: Callable[[int, bytes], None] | None = None,
        paced: bool = False,
    ) -> Execution:
        execution = Execution(self, secrets.randbits(63) | 1, on_output, paced)
        data = frames.spawn(
            execution.id, argv, flags=flags, cwd=cwd, env=env, deadline_ms=_ms(deadline), grace_ms=_ms(grace),
            ring=ring, credit=0 if flags & Flag.BACKGROUND else CREDIT, tag=tag,
        )  # fmt: skip
        self._commands[execution.id] = execution
        try:
            self.send(data)
        except SandboxLost:
            self.forget(execution)
            raise
        return execution

    async def read(self, id: int, out_from: int, err_from: int, limit: int, wait: float = 0.0) -> frames.ReadReply:
        future: asyncio.Future[frames.ReadReply] = self.loop.create_future()
        self.send(frames.read(id, out_from, err_from, limit, _ms(wait)))
        self._reads.setdefault(id, deque()).append(future)
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
        self.send(frames.frame(To.LEASE, 0, frames.u32(_ms(seconds))))

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
        waiting = [self._hello, *self._pongs, *self._lists, *(f for queue in self._reads.values() for f in queue)]
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
        if kind in (From.OUTPUT, From.ENDED, From.STARTED, From.SPAWN_ERROR, From.INPUT_ACK):
            execution = self._commands.get(id)
            if execution is not None:  # else: of a command that was given up; its last words may still be under way
                self._tell(execution, kind, stream, payload)
        elif kind == From.READ_REPLY:
            self._answer(self._reads.get(id), frames.parse_read_reply(payload), id)
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

    def _tell(self, execution: Execution, kind: int, stream: int, payload: bytes) -> None:
        if kind == From.OUTPUT:
            execution._output(stream, payload)
        elif kind == From.STARTED:
            execution._start(frames.parse_u32(payload))
        elif kind == From.INPUT_ACK:
            execution._ack(stream, frames.parse_u64(payload))
        else:
            ended = kind == From.ENDED
            outcome = frames.parse_ended(payload) if ended else spawn_error(*frames.parse_spawn_error(payload))
            self.forget(execution)
            execution._end(outcome)

    def _answer(self, queue: deque[asyncio.Future[T]] | None, value: T, id: int | None = None) -> None:
        if not queue:
            raise frames.FrameError("an answer to no question")
        future = queue.popleft()
        if id is not None and not queue:
            del self._reads[id]
        if not future.done():
            future.set_result(value)

    def _refuse(self, id: int, code: int, _text: str) -> None:
        queue = self._reads.get(id)
        if not queue:
            return  # a signal or input that raced with the end of its command
        future = queue.popleft()
        if not queue:
            del self._reads[id]
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


def _ms(seconds: float | None) -> int:
    """Milliseconds for the wire; 0 means none, so anything above zero is at least one."""
    return 0 if not seconds or seconds <= 0 else max(1, min(int(seconds * 1000), 0xFFFFFFFF))


def spawn_error(code: int, stage: int, text: str) -> CommandError:
    """The typed error for a command that the init could not start."""
    if stage == frames.Stage.CWD:
        return WorkingDirectoryError(f"Invalid working directory: {text}")
    if code == errno.ENOENT:
        return CommandNotFound(f"Command not found: {text}")
    if code in (errno.EACCES, errno.ENOEXEC, errno.EISDIR, errno.ENOTDIR, errno.ELOOP):
        return CommandNotExecutable(f"Not executable: {text}")
    if code == errno.E2BIG:
        return CommandError(f"Arguments and environment are too large together: {text}")
    return CommandError(f"The command could not be started: {text}")
