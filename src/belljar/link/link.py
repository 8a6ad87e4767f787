"""One connection to a sandbox's init.

Theory of operation. A link has no task of its own: the event loop calls `_readable` when bytes are there, and that
call decodes, checks and hands each frame to its command at once; so a small command costs one wake-up, and opening or
closing a link may happen in any task. Sending never blocks either: what the kernel does not take waits in `_outbox`.

The host accepts only what it asked for. Before the greeting nothing but a greeting is heard; each kind of frame has a
handler, and a command takes only those of its state (remote_command.py); an answer needs its question; output needs
credit, on every stream. So whatever an init sends, it costs the host a bounded amount of memory, and at most
FRAMES_PER_WAKE frames go by before the event loop's other callers get their turn.

A cut network or a paused container leaves a stream silent, not closed. While anything is awaited, silence is answered
with a PING, then with the question `still_alive` to the engine, then the link counts as lost and everything that waits
on it learns so. Time in which the event loop itself stood still is nobody's silence. The init in turn gives up a host
behind a bridge that says nothing; heartbeat.py sees to that from a thread of its own.
"""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import errno
import os
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from belljar.errors import SandboxLost, ShellNotFound, UsageError
from belljar.link import frames
from belljar.link.decoder import Decoder
from belljar.link.frames import Flag, FrameError, From, To, milliseconds
from belljar.link.heartbeat import Heartbeat
from belljar.link.outbox import Outbox
from belljar.link.remote_command import CREDIT, Execution
from belljar.link.spawn_errors import spawn_error
from belljar.link.transport import Transport

RECEIVE = 64 << 10  # the allocator serves it from its heap; what it maps anew for each try costs ten times the try
SMALL = 4096  # after so little there is hardly more to receive, and a try costs a system call
RECEIVES_PER_WAKE = 8  # then the loop's other callers get their turn
FRAMES_PER_WAKE = 512  # likewise, where the frames are tiny
TAGS = 256  # reads of one command that can wait at once, each with a tag that comes back with its answer
LEFT = 1024  # commands we no longer follow, whose last words may still be under way
LAST_WORDS = 64  # frames that each of them may still send

PULSE = 1.0  # how often silence is looked at while something is awaited
SUSPECT = 2.2  # silence after which the engine is asked
GIVE_UP = 60.0  # silence after which even a container said to be running is given up

REFUSABLE = frozenset({To.SIGNAL, To.RESIZE, To.DEADLINE, To.KILL, To.READ, To.BACKGROUND, To.STATE})
"""What the init may answer with ERROR."""

OF_THOSE_LEFT = frozenset({From.INPUT_ACK, From.STARTED, From.SPAWN_ERROR})

T = TypeVar("T")
Handler = Callable[["Link", int, int, bytes], None]


class Link:
    def __init__(self, transport: Transport, still_alive: Callable[[], Awaitable[bool]] | None = None) -> None:
        self.loop = asyncio.get_running_loop()
        self.lost: SandboxLost | None = None
        self.isolation = 0
        """The Landlock ABI that keeps this sandbox's commands apart; 0: none does."""
        self._transport = transport
        self._still_alive = still_alive
        self._decoder = Decoder()
        self._handlers = GREETING
        self._outbox = Outbox(transport)
        self._writing = False
        self._refusable = 0
        self._commands: dict[int, Execution] = {}
        self._left: dict[int, int] = {}
        self._reads: dict[int, dict[int, tuple[int, asyncio.Future[frames.ReadReply]]]] = {}
        self._states: dict[int, deque[asyncio.Future[frames.CommandState]]] = {}
        self._lists: deque[asyncio.Future[list[frames.Listed]]] = deque()
        self._hello: asyncio.Future[int] = self.loop.create_future()
        self._pongs: deque[asyncio.Future[None]] = deque()
        self._heard = time.monotonic()
        self._pulse: asyncio.TimerHandle | None = None
        self._asking: asyncio.Task[None] | None = None
        self._when_lost: list[Callable[[], None]] = []
        self.bridged = transport.bridged
        self._heartbeat = Heartbeat(self._beat) if transport.bridged else None
        self.loop.add_reader(transport.fileno(), self._readable)

    # Asking.

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
        size: tuple[int, int] = (24, 80),
    ) -> Execution:
        id = int.from_bytes(os.urandom(8), "little") >> 1 | 1
        self.send(frames.spawn(
            id, argv, flags=flags, cwd=cwd, env=env,
            deadline_ms=milliseconds(deadline), grace_ms=milliseconds(grace), ring=ring,
            credit=0 if flags & Flag.BACKGROUND else CREDIT, tag=tag, rows=size[0], cols=size[1],
        ))  # fmt: skip
        # The rest is made ready while the command starts: nothing of it is heard before the loop's next turn.
        program = "bash" if flags & Flag.SHELL else os.fsdecode(argv[0])
        self._commands[id] = execution = Execution(self, id, program, os.fsdecode(cwd), flags=flags, paced=paced)
        return execution

    async def read(self, id: int, out_from: int, err_from: int, limit: int, wait: float = 0.0) -> frames.ReadReply:
        future: asyncio.Future[frames.ReadReply] = self.loop.create_future()
        waiting = self._reads.get(id, {})
        tag = next((tag for tag in range(TAGS) if tag not in waiting), None)
        if tag is None:
            raise UsageError(f"{TAGS} reads of one shell are waiting already")
        self.send(frames.read(id, out_from, err_from, limit, milliseconds(wait), tag))
        self._reads.setdefault(id, waiting)[tag] = limit, future
        return await future

    async def state(self, id: int) -> frames.CommandState:
        """What the kernel says of a command: its directory, what it has used so far."""
        future: asyncio.Future[frames.CommandState] = self.loop.create_future()
        self.send(frames.frame(To.STATE, id))
        self._states.setdefault(id, deque()).append(future)
        return await future

    async def list(self) -> list[frames.Listed]:
        future: asyncio.Future[list[frames.Listed]] = self.loop.create_future()
        self.send(frames.frame(To.LIST))
        self._lists.append(future)
        return await future

    async def ping(self) -> None:
        future: asyncio.Future[None] = self.loop.create_future()
        self.send(frames.frame(To.PING, 0, bytes(8)))
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
            self._commands[id] = Execution(self, id, joined=True)
        return self._commands[id]

    def leave(self, id: int, ended: frames.EndedBody) -> None:
        """What was joined is over; who still writes to it learns so."""
        if (execution := self._commands.get(id)) is not None:
            self.forget(execution)
            execution.end(ended)

    def forget(self, execution: Execution) -> None:
        """No longer followed here: it is over, or goes on in the background."""
        if self._commands.pop(execution.id, None) is not None:
            self._left[execution.id] = LAST_WORDS
            if len(self._left) > LEFT:
                del self._left[next(iter(self._left))]

    def when_lost(self, callback: Callable[[], None]) -> None:
        self._when_lost.append(callback)

    def close(self, reason: str = "the session was closed") -> None:
        if self.lost is not None:
            return
        self.lost = SandboxLost(reason)
        if self._heartbeat is not None:
            self._heartbeat.stop()
        self.loop.remove_reader(self._transport.fileno())
        if self._writing:
            self.loop.remove_writer(self._transport.fileno())
        with self._outbox.lock:
            self._transport.close()
        if self._pulse is not None:
            self._pulse.cancel()
        for execution in list(self._commands.values()):
            execution.end(self.lost)
        self._commands.clear()
        _fail(self._waiting(), self.lost)
        for callback in self._when_lost:
            callback()

    def _waiting(self) -> Iterator[asyncio.Future[Any]]:
        yield self._hello
        for tagged in self._reads.values():
            yield from (future for _, future in tagged.values())
        for queue in (self._pongs, self._lists, *self._states.values()):
            yield from queue  # type: ignore[misc]

    # Sending.

    def send(self, data: bytes) -> None:
        if self.lost is not None:
            raise SandboxLost(str(self.lost))
        if data[4] in REFUSABLE:
            self._refusable += 1
        self._expect()
        if not self._put(data):
            raise SandboxLost(str(self.lost)) from None
        if self._outbox:
            self._watch_for_room()

    def _put(self, data: bytes = b"") -> bool:
        try:
            self._outbox.put(data)
        except OSError as error:
            self.close(f"the sandbox went away ({error.strerror or error})")
            return False
        return True

    def _watch_for_room(self) -> None:
        if not self._writing and self.lost is None:
            self._writing = True
            self.loop.add_writer(self._transport.fileno(), self._writable)

    def _writable(self) -> None:
        if self._put() and not self._outbox:
            self._writing = False
            self.loop.remove_writer(self._transport.fileno())

    def _beat(self) -> None:
        """On the heartbeat's thread: the host lives, whatever its event loop is doing."""
        if self.lost is None:
            with contextlib.suppress(OSError, RuntimeError):  # a loss is the loop's to notice, if it is still there
                self._outbox.put(frames.frame(To.HEARTBEAT))
                if self._outbox:
                    self.loop.call_soon_threadsafe(self._watch_for_room)

    # Receiving.

    def _readable(self) -> None:
        try:
            self._receive()
        except (BlockingIOError, InterruptedError, SandboxLost):
            pass  # the loss: of the other direction, and told to everybody already
        except frames.VersionMismatch as error:
            self.close(str(error))
        except FrameError as error:
            self.close(f"the sandbox broke the protocol: {error}")
        except OSError as error:
            self.close(f"the sandbox went away ({error.strerror or error})")

    def _receive(self) -> None:
        taken = 0
        for _ in range(RECEIVES_PER_WAKE):
            with self._outbox.lock:
                data = self._transport.recv(RECEIVE)
            if not data:
                self.close("the sandbox ended")
                return
            self._heard = time.monotonic()
            found = self._decoder.feed(data)
            for kind, stream, id, payload in found:
                handler = self._handlers.get(kind)
                if handler is None:
                    raise FrameError(f"a frame of kind {kind} that nobody asked for")
                handler(self, stream, id, payload)
                if self.lost is not None:
                    return
            if self._transport.pipes and not self._decoder.midway:
                raise FrameError("a descriptor that belongs to no stream")
            taken += len(found)
            if len(data) < SMALL or taken >= FRAMES_PER_WAKE:
                return

    def _take_welcome(self, _stream: int, _id: int, payload: bytes) -> None:
        welcome = frames.parse_welcome(payload)
        self.isolation, self._handlers = welcome.isolation, HANDLERS
        if not self._hello.done():
            self._hello.set_result(welcome.boot)

    def _command(self, kind: From, id: int) -> Execution | None:
        """Whom a frame is for; None for the last words to somebody who left."""
        execution = self._commands.get(id)
        if execution is None and kind in OF_THOSE_LEFT and self._left.get(id, 0) > 0:
            self._left[id] -= 1
            return None
        if execution is None or kind not in execution.accepts:
            raise FrameError(f"a frame of kind {kind} that its command did not wait for")
        return execution

    def _take_ended(self, _stream: int, id: int, payload: bytes) -> None:
        body = frames.parse_ended(payload)
        if (execution := self._command(From.ENDED, id)) is not None:
            self.forget(execution)
            execution.end(body)

    def _take_spawn_error(self, _stream: int, id: int, payload: bytes) -> None:
        if (execution := self._command(From.SPAWN_ERROR, id)) is not None:
            self.forget(execution)
            execution.end(spawn_error(execution.program, execution.cwd, *frames.parse_spawn_error(payload)))

    def _take_pipe(self, stream: int, id: int, payload: bytes) -> None:
        if not self._transport.pipes:
            raise FrameError("a pipe that did not come")
        if (execution := self._command(From.PIPE, id)) is not None:
            execution.take_pipe(stream, frames.parse_u64(payload), self._transport.pipes.popleft())

    def _take_pong(self, _stream: int, _id: int, _payload: bytes) -> None:
        self._answer(self._pongs, None)

    def _take_list(self, _stream: int, _id: int, payload: bytes) -> None:
        self._answer(self._lists, frames.parse_list(payload))

    def _take_state(self, _stream: int, id: int, payload: bytes) -> None:
        queue = self._states.get(id, deque())
        self._answer(queue, frames.parse_state(payload))
        if not queue:
            del self._states[id]

    def _take_read(self, tag: int, id: int, payload: bytes) -> None:
        reply = frames.parse_read_reply(payload)
        limit, future = self._reads.get(id, {}).get(tag, (0, None))
        if future is None or max(len(reply.out), len(reply.err)) > limit:
            raise FrameError("an answer to no question")
        del self._reads[id][tag]
        if not self._reads[id]:
            del self._reads[id]
        if not future.done():
            future.set_result(reply)

    def _take_error(self, _stream: int, id: int, payload: bytes) -> None:
        code, _ = frames.parse_error(payload)
        self._refusable -= 1
        if self._refusable < 0:
            raise FrameError("a refusal of nothing")
        if code != errno.ENOENT:
            return
        gone = ShellNotFound("Shell not found")
        asked: builtins.list[asyncio.Future[Any]] = [future for _, future in self._reads.pop(id, {}).values()]
        asked += self._states.pop(id, deque())
        _fail(asked, gone)
        if not asked and (execution := self._commands.get(id)) is not None:
            self.forget(execution)  # a signal or input that raced with the end of its command
            execution.end(gone)

    def _answer(self, queue: deque[asyncio.Future[T]], value: T) -> None:
        if not queue:
            raise FrameError("an answer to no question")
        future = queue.popleft()
        if not future.done():
            future.set_result(value)

    # Silence.

    def _expect(self) -> None:
        if self._pulse is None:
            self._heard = time.monotonic()
            self._pulse = self.loop.call_later(PULSE, self._listen, self._heard + PULSE)

    def _listen(self, due: float) -> None:
        self._pulse = None
        if self.lost is not None or not self._awaited():
            return
        now = time.monotonic()
        if now - due > PULSE:
            self._heard = now  # our own loop stood still; what came meanwhile was not read yet
        silence = now - self._heard
        if silence > GIVE_UP:
            self.close("the sandbox stopped answering")
            return
        if (silence >= PULSE * 0.9 or now == self._heard) and not self._pongs:
            self._pongs.append(self.loop.create_future())
            with contextlib.suppress(SandboxLost):
                self.send(frames.frame(To.PING, 0, bytes(8)))
        if silence > SUSPECT and self._asking is None:
            self._asking = self.loop.create_task(self._ask())
        if self.lost is None and self._pulse is None:
            self._pulse = self.loop.call_later(PULSE, self._listen, time.monotonic() + PULSE)

    def _awaited(self) -> bool:
        return not self._hello.done() or bool(
            self._commands or self._reads or self._states or self._lists or self._pongs or self._outbox
        )

    async def _ask(self) -> None:
        heard = self._heard
        alive = self._still_alive is not None and await self._still_alive()
        self._asking = None
        if not alive and heard == self._heard:
            self.close("the sandbox stopped answering (paused, killed or cut off)")


def _fail(futures: Iterable[asyncio.Future[Any]], error: Exception) -> None:
    for future in futures:
        if not future.done():
            future.set_exception(error)
            future.exception()  # nobody may be left to look at it


def _to_command(kind: From, take: Callable[[Execution, int, bytes], None]) -> Handler:
    def handler(link: Link, stream: int, id: int, payload: bytes) -> None:
        if (execution := link._command(kind, id)) is not None:
            take(execution, stream, payload)

    return handler


GREETING: dict[int, Handler] = {From.WELCOME: Link._take_welcome}
HANDLERS: dict[int, Handler] = {
    From.STARTED: _to_command(From.STARTED, Execution.take_started),
    From.SPAWN_ERROR: Link._take_spawn_error,
    From.OUTPUT: _to_command(From.OUTPUT, Execution.take_output),
    From.ENDED: Link._take_ended,
    From.INPUT_ACK: _to_command(From.INPUT_ACK, Execution.take_ack),
    From.READ_REPLY: Link._take_read,
    From.LIST_REPLY: Link._take_list,
    From.STATE_REPLY: Link._take_state,
    From.PONG: Link._take_pong,
    From.ERROR: Link._take_error,
    From.PIPE: Link._take_pipe,
}
