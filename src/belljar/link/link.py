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
import contextlib
import errno
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from belljar.errors import SandboxLost, ShellNotFound, UsageError
from belljar.link import frames
from belljar.link.decoder import Decoder
from belljar.link.frames import Flag, FrameError, From, To, milliseconds
from belljar.link.heartbeat import Heartbeat
from belljar.link.outbox import Outbox
from belljar.link.questions import Questions
from belljar.link.remote_command import CREDIT, Execution
from belljar.link.spawn_errors import spawn_error
from belljar.link.transport import Transport

RECEIVE = 64 << 10  # the allocator serves it from its heap; what it maps anew for each try costs ten times the try
SMALL = 4096  # after so little there is hardly more to receive, and a try costs a system call
_OTHER_LOOP = "this session belongs to another event loop: open it in the one that uses it, or use belljar.sync.Session"
RECEIVES_PER_WAKE = 8  # then the loop's other callers get their turn
FRAMES_PER_WAKE = 512  # likewise, where the frames are tiny
LEFT = 1024  # commands we no longer follow, whose last words may still be under way
LAST_WORDS = 64  # frames that each of them may still send

PULSE = 1.0  # how often silence is looked at while something is awaited
SUSPECT = 2.2  # silence after which the engine is asked
GIVE_UP = 60.0  # silence after which even a container said to be running is given up

REFUSABLE = frozenset({To.SIGNAL, To.RESIZE, To.DEADLINE, To.KILL, To.READ, To.BACKGROUND, To.STATE})
"""What the init may answer with ERROR."""

OF_THOSE_LEFT = frozenset({From.INPUT_ACK, From.STARTED, From.SPAWN_ERROR})

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
        self._questions = Questions()
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
        boot: int = await self._ask(To.HELLO, From.WELCOME, payload=frames.u32(frames.VERSION) + token)
        return boot

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
        self.check_loop()
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
        self.check_loop()
        tag = self._questions.free_tag(From.READ_REPLY, id)
        self.send(frames.read(id, out_from, err_from, limit, milliseconds(wait), tag))
        reply: frames.ReadReply = await self._questions.ask(From.READ_REPLY, id, tag, most=limit)
        return reply

    async def state(self, id: int) -> frames.CommandState:
        """What the kernel says of a command: its directory, what it has used so far."""
        state: frames.CommandState = await self._ask(To.STATE, From.STATE_REPLY, id)
        return state

    async def list(self) -> list[frames.Listed]:
        listed: list[frames.Listed] = await self._ask(To.LIST, From.LIST_REPLY)
        return listed

    async def ping(self) -> None:
        await self._ask(To.PING, From.PONG, payload=bytes(8))

    def check_loop(self) -> None:
        if asyncio.get_running_loop() is not self.loop:
            raise UsageError(_OTHER_LOOP)

    def _ask(self, kind: To, answer: From, id: int = 0, payload: bytes = b"") -> asyncio.Future[Any]:
        self.check_loop()
        self.send(frames.frame(kind, id, payload))
        return self._questions.ask(answer, id)

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

    @property
    def follows_nothing(self) -> bool:
        """No command of ours runs, and the init is there."""
        return not self._commands and self.lost is None

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
        self._questions.fail(self.lost)
        callbacks, self._when_lost = self._when_lost, []
        for callback in callbacks:
            callback()

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
            pass  # SandboxLost: sending failed, and everybody knows already
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
        self._questions.answer(welcome.boot, From.WELCOME)

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
        self._questions.answer(None, From.PONG)

    def _take_list(self, _stream: int, _id: int, payload: bytes) -> None:
        self._questions.answer(frames.parse_list(payload), From.LIST_REPLY)

    def _take_state(self, _stream: int, id: int, payload: bytes) -> None:
        self._questions.answer(frames.parse_state(payload), From.STATE_REPLY, id)

    def _take_read(self, tag: int, id: int, payload: bytes) -> None:
        reply = frames.parse_read_reply(payload)
        self._questions.answer(reply, From.READ_REPLY, id, tag, size=max(len(reply.out), len(reply.err)))

    def _take_error(self, _stream: int, id: int, payload: bytes) -> None:
        code, _ = frames.parse_error(payload)
        self._refusable -= 1
        if self._refusable < 0:
            raise FrameError("a refusal of nothing")
        if code != errno.ENOENT:
            return
        gone = ShellNotFound("Shell not found")
        if not self._questions.fail(gone, id) and (execution := self._commands.get(id)) is not None:
            self.forget(execution)  # a signal or input that raced with the end of its command
            execution.end(gone)

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
        if (silence >= PULSE * 0.9 or now == self._heard) and From.PONG not in self._questions:
            with contextlib.suppress(SandboxLost):
                self._ask(To.PING, From.PONG, payload=bytes(8))
        if silence > SUSPECT and self._asking is None:
            self._asking = self.loop.create_task(self._ask_engine())
        if self.lost is None and self._pulse is None:
            self._pulse = self.loop.call_later(PULSE, self._listen, time.monotonic() + PULSE)

    def _awaited(self) -> bool:
        return bool(self._commands or self._questions or self._outbox)

    async def _ask_engine(self) -> None:
        heard = self._heard
        alive = self._still_alive is not None and await self._still_alive()
        self._asking = None
        if not alive and heard == self._heard:
            self.close("the sandbox stopped answering (paused, killed or cut off)")


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
