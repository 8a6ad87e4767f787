"""One connection to a sandbox's init.

Theory of operation. A link has no task of its own. The event loop calls `_receive` when bytes arrive; that call
decodes and checks each frame and passes it to its command at once. So a short command costs one wake-up, and a link may
be opened and closed in any task. Sending never blocks: what the kernel does not accept waits in `_outbox`.

The host accepts only frames that it expects. Before the greeting that is only a greeting. Each kind of frame has a
handler, a command accepts only the kinds of its phase (remote_process.py), an answer needs a question, and output needs
credit on its stream. So an init can cost the host only a bounded amount of memory. After at most FRAMES_PER_WAKE frames
the other callbacks of the event loop get their turn, and nothing more is received before the rest is handled.

When the network is cut or the container paused, the stream falls silent without being closed. If that happens while we
wait for something, we send a PING, then ask the engine (`still_alive`), and finally close the link; everything that
waits on it then fails. The same happens if a question stays unanswered, whatever else the init says meanwhile. Time
during which our own event loop was blocked does not count.

While the sandbox is paused its init is frozen: nothing is asked, no silence counts, and whatever waits within a time on
this link (`within`) has its time stand still. The init's own clock is stopped too, before it is frozen.

On this machine the init's socket closes when the host dies. Behind a bridge nothing closes, so the init drops a
connection that is silent for 25 s; then its lease starts to run. There a thread of its own sends a HEARTBEAT, even
while the event loop is blocked.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import math
import os
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import anyio

from belljar.errors import BelljarError, SandboxLost, ShellNotFound, UsageError
from belljar.link import frames
from belljar.link.decoder import Decoder, Frame
from belljar.link.frames import Flag, FrameError, From, To, milliseconds
from belljar.link.questions import Questions
from belljar.link.remote_process import RemoteProcess, spawn_error
from belljar.link.streams import CREDIT
from belljar.link.transport import Outbox, Transport
from belljar.turns import Turns

RECEIVE = (
    64 << 10
)  # a larger buffer would be mapped anew for each try, at ten times the cost
SMALL = 4096  # after fewer bytes there is hardly more to receive, so the next system call is saved
PAUSED = "the sandbox is paused: resume it first"
_OTHER_LOOP = "this session belongs to another event loop: open it in the one that uses it, or use belljar.sync.Session"
RECEIVES_PER_WAKE = 8  # then other callbacks of the event loop get their turn
FRAMES_PER_WAKE = 64  # likewise, for tiny frames: more are handled in turns with whoever else has much to do
FRAMES_PER_LOOK = 8  # at the clock
FORGOTTEN_MAX = 1024  # commands we no longer follow, whose last frames may still arrive
LATE_FRAMES_MAX = 64  # how many frames each of them may still send

PULSE = 1.0  # how often silence is checked while we wait for something
SUSPECT = 2.2  # silence after which the engine is asked

HEARTBEAT = 5.0  # seconds; the init waits five times as long

REFUSABLE = frozenset(
    {To.SIGNAL, To.RESIZE, To.DEADLINE, To.KILL, To.READ, To.BACKGROUND, To.STATE}
)
"""What the init may answer with ERROR."""

LATE_KINDS = frozenset({From.INPUT_ACK, From.STARTED, From.SPAWN_ERROR})

Handler = Callable[["Link", int, int, bytes], None]


class Link:
    def __init__(
        self,
        transport: Transport,
        still_alive: Callable[[], Awaitable[bool]] | None = None,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.lost: SandboxLost | None = None
        self.isolation = 0
        """The Landlock ABI that separates this sandbox's commands; 0: they are not separated."""
        self._transport = transport
        self._still_alive = still_alive
        self._decoder = Decoder()
        self._handlers = GREETING
        self._outbox = Outbox(transport)
        self._received: deque[Frame] = deque()
        """Decoded, but not handled yet."""
        self._turns = Turns.here()
        self._writing = False
        self._refusable = 0
        self._commands: dict[int, RemoteProcess] = {}
        self._forgotten: dict[int, int] = {}
        """Id → how many late frames it may still send."""
        self._questions = Questions()
        self._last_received = time.monotonic()
        self._pulse: asyncio.TimerHandle | None = None
        self._asking_engine: asyncio.Task[None] | None = None
        self._when_lost: list[Callable[[], None]] = []
        self.is_paused = False
        self._goes_on = asyncio.Event()
        self._waits: dict[anyio.CancelScope, float] = {}
        """Whatever waits within a time, and how much of it was left when the sandbox was paused."""
        self.bridged = transport.bridged
        self._closed = threading.Event()
        if transport.bridged:
            threading.Thread(
                target=self._beat, name="belljar-heartbeat", daemon=True
            ).start()
        self.loop.add_reader(transport.fileno(), self._guarded, self._receive)

    # Asking.

    async def hello(self, token: bytes = b"") -> int:
        """Greet the init and return its boot id, which tells whether it is still the same init."""
        boot: int = await self._ask(
            To.HELLO, From.WELCOME, payload=frames.u32(frames.VERSION) + token
        )
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
        user: bytes = b"",
    ) -> RemoteProcess:
        self.check_loop()
        if self.lost is not None:
            raise SandboxLost(f"{self.lost}; open a new session")
        self._refuse_if_paused()
        id = int.from_bytes(os.urandom(8), "little") >> 1 | 1
        self.send(
            frames.spawn(
                id,
                argv,
                flags=flags,
                cwd=cwd,
                env=env,
                deadline_ms=milliseconds(deadline),
                grace_ms=milliseconds(grace),
                ring=ring,
                credit=0 if flags & Flag.BACKGROUND else CREDIT,
                tag=tag,
                rows=size[0],
                cols=size[1],
                user=user,
            )
        )
        # The command starts while we prepare the rest: its frames are not read before the loop runs again.
        program = "bash" if flags & Flag.SHELL else os.fsdecode(argv[0])
        self._commands[id] = process = RemoteProcess(
            self, id, program, os.fsdecode(cwd), flags=flags, paced=paced
        )
        return process

    async def read(
        self, id: int, out_from: int, err_from: int, limit: int, wait: float = 0.0
    ) -> frames.ReadReply:
        self.check_loop()
        while self.is_paused and wait and self.lost is None:
            await self._goes_on.wait()
        self._refuse_if_paused()
        tag = self._questions.free_tag(From.READ_REPLY, id)
        self.send(frames.read(id, out_from, err_from, limit, milliseconds(wait), tag))
        reply: frames.ReadReply = await self._questions.ask(
            From.READ_REPLY, id, tag, most=limit, wait=wait
        )
        return reply

    async def state(self, id: int) -> frames.CommandState:
        """What the kernel shows of a command: its directory, what it has used so far."""
        state: frames.CommandState = await self._ask(To.STATE, From.STATE_REPLY, id)
        return state

    async def list(self) -> list[frames.Listed]:
        listed: list[frames.Listed] = await self._ask(To.LIST, From.LIST_REPLY)
        return listed

    async def testify(self, paths: Sequence[str]) -> frames.Testimony:
        """What the init reads of its own sandbox, and whether something is at these paths."""
        testimony: frames.Testimony = await self._ask(
            To.TESTIFY, From.TESTIMONY, payload=frames.testify(paths)
        )
        if len(testimony.there) != len(paths):
            raise SandboxLost("the sandbox's init did not answer what it was asked")
        return testimony

    async def ping(self) -> None:
        await self._ask(To.PING, From.PONG, payload=bytes(8))

    def check_loop(self) -> None:
        if asyncio.get_running_loop() is not self.loop:
            raise UsageError(_OTHER_LOOP)

    def _ask(
        self, kind: To, answer: From, id: int = 0, payload: bytes = b""
    ) -> asyncio.Future[Any]:
        self.check_loop()
        self._refuse_if_paused()
        self.send(frames.frame(kind, id, payload))
        return self._questions.ask(answer, id)

    # While the sandbox is paused.

    async def halt(self) -> None:
        """Before it is frozen: no time passes from now on, for its init and for whatever waits within a time."""
        self.send(frames.frame(To.CLOCK, 0, frames.u32(0)))
        await self.ping()
        self.is_paused = True
        self._goes_on.clear()
        for wait in self._waits:
            self._waits[wait] = wait.deadline - anyio.current_time()
            wait.deadline = math.inf

    def go_on(self) -> None:
        self.is_paused = False
        self._goes_on.set()
        self._last_received = time.monotonic()
        for wait, left in self._waits.items():
            wait.deadline = anyio.current_time() + left
        self.send(frames.frame(To.CLOCK, 0, frames.u32(1)))

    @contextlib.contextmanager
    def within(self, seconds: float) -> Iterator[anyio.CancelScope]:
        """`anyio.move_on_after`, but time does not count while the sandbox is paused."""
        with anyio.move_on_after(math.inf if self.is_paused else seconds) as wait:
            self._waits[wait] = seconds
            try:
                yield wait
            finally:
                del self._waits[wait]

    def _refuse_if_paused(self) -> None:
        if self.is_paused and self.lost is None:
            raise UsageError(PAUSED)

    def shutdown(self) -> None:
        """Kill everything in the sandbox; its PID 1 exits."""
        with contextlib.suppress(SandboxLost):
            self.send(frames.frame(To.SHUTDOWN))

    def lease(self, seconds: float) -> None:
        self.send(frames.frame(To.LEASE, 0, frames.u32(milliseconds(seconds))))

    def join(self, id: int) -> RemoteProcess:
        """Attach to a command that somebody else started, to write to it."""
        if id not in self._commands:
            self._commands[id] = RemoteProcess(self, id, joined=True)
        return self._commands[id]

    def leave(self, id: int, ended: frames.EndedBody) -> None:
        """End the handle of a joined command that is over, so that writers stop waiting."""
        if (process := self._commands.get(id)) is not None:
            process.end(ended)

    def forget(self, process: RemoteProcess) -> None:
        """Stop following a command: it is over, or goes on in the background."""
        if self._commands.pop(process.id, None) is not None:
            self._forgotten[process.id] = LATE_FRAMES_MAX
            if len(self._forgotten) > FORGOTTEN_MAX:
                del self._forgotten[next(iter(self._forgotten))]

    @property
    def follows_nothing(self) -> bool:
        """Whether the link is up and no command of ours runs."""
        return not self._commands and self.lost is None

    def when_lost(self, callback: Callable[[], None]) -> None:
        self._when_lost.append(callback)

    def close(self, reason: str = "the session was closed") -> None:
        if self.lost is not None:
            return
        self.lost = SandboxLost(reason)
        self._closed.set()
        self._goes_on.set()
        self.loop.remove_reader(self._transport.fileno())
        if self._writing:
            self.loop.remove_writer(self._transport.fileno())
        with self._outbox.lock:
            self._transport.close()
        self._received.clear()
        if self._pulse is not None:
            self._pulse.cancel()
        for process in list(self._commands.values()):
            process.end(self.lost)
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
        self._start_pulse()
        self._put(data)
        if self.lost is not None:
            raise SandboxLost(str(self.lost))

    def _put(self, data: bytes = b"") -> None:
        try:
            waits = self._outbox.put(data)
        except OSError as error:
            self.close(f"the sandbox went away ({error.strerror or error})")
            return
        if waits:
            self._watch_for_room()

    def _watch_for_room(self) -> None:
        if not self._writing and self.lost is None:
            self._writing = True
            self.loop.add_writer(self._transport.fileno(), self._writable)

    def _writable(self) -> None:
        self._put()
        if self.lost is None and not self._outbox:
            self._writing = False
            self.loop.remove_writer(self._transport.fileno())

    def _beat(self) -> None:
        """Runs on a thread of its own: tells the init that the host is alive."""
        while not self._closed.wait(HEARTBEAT):
            if self.is_paused:  # nobody reads it
                continue
            # The event loop notices a loss itself, unless it is closed.
            with contextlib.suppress(OSError, RuntimeError):
                if self._outbox.put(frames.frame(To.HEARTBEAT)):
                    self.loop.call_soon_threadsafe(self._watch_for_room)

    # Receiving.

    def _guarded(self, work: Callable[[], None]) -> None:
        """Whatever is wrong with what was received closes the link."""
        try:
            work()
        except (BlockingIOError, InterruptedError, SandboxLost):
            pass  # SandboxLost: sending failed, and the link is closed already
        except frames.VersionMismatch as error:
            self.close(str(error))
        except FrameError as error:
            self.close(f"the sandbox broke the protocol: {error}")
        except OSError as error:
            self.close(f"the sandbox went away ({error.strerror or error})")

    def _receive(self) -> None:
        handled = 0
        for _ in range(RECEIVES_PER_WAKE):
            with self._outbox.lock:
                data = self._transport.recv(RECEIVE)
            if not data:
                self.close("the sandbox ended")
                return
            self._last_received = time.monotonic()
            self._received.extend(self._decoder.feed(data))
            if len(self._received) > FRAMES_PER_WAKE:
                self.loop.remove_reader(self._transport.fileno())
                self._turns.soon(partial(self._guarded, self._handle_many))
                return
            handled += len(self._received)
            while self._received:
                self._handle(*self._received.popleft())
            self._check_descriptors()
            if len(data) < SMALL or handled >= FRAMES_PER_WAKE:
                return

    def _handle_many(self) -> None:
        """Tiny frames, more than one turn has time for. Nothing is received before all are handled."""
        while self._received and self.lost is None:
            for _ in range(min(FRAMES_PER_LOOK, len(self._received))):
                self._handle(*self._received.popleft())
            if self._turns.is_used_up and self._received:
                self._turns.soon(partial(self._guarded, self._handle_many))
                return
        if self.lost is None:
            self._check_descriptors()
            self.loop.add_reader(self._transport.fileno(), self._guarded, self._receive)

    def _handle(self, kind: int, stream: int, id: int, payload: bytes) -> None:
        if self.lost is not None:
            return
        handler = self._handlers.get(kind)
        if handler is None:
            raise FrameError(f"an unexpected frame of kind {kind}")
        handler(self, stream, id, payload)

    def _check_descriptors(self) -> None:
        if self.lost is None and self._transport.pipes and not self._decoder.midway:
            raise FrameError("a descriptor that belongs to no stream")

    def _take_welcome(self, _stream: int, _id: int, payload: bytes) -> None:
        welcome = frames.parse_welcome(payload)
        self.isolation, self._handlers = welcome.isolation, HANDLERS
        self._questions.answer(welcome.boot, From.WELCOME)

    def _command(self, kind: From, id: int) -> RemoteProcess | None:
        """The command a frame belongs to; None: a late frame of a command that was forgotten."""
        process = self._commands.get(id)
        if process is None and kind in LATE_KINDS and self._forgotten.get(id, 0) > 0:
            self._forgotten[id] -= 1
            return None
        if process is None or kind not in process.accepts:
            raise FrameError(f"a frame of kind {kind} that its command does not expect")
        return process

    def _take_ended(self, _stream: int, id: int, payload: bytes) -> None:
        body = frames.parse_ended(payload)
        if (process := self._command(From.ENDED, id)) is not None:
            process.end(body)

    def _take_spawn_error(self, _stream: int, id: int, payload: bytes) -> None:
        if (process := self._command(From.SPAWN_ERROR, id)) is not None:
            process.end(
                spawn_error(
                    process.program, process.cwd, *frames.parse_spawn_error(payload)
                )
            )

    def _take_pipe(self, stream: int, id: int, payload: bytes) -> None:
        if not self._transport.pipes:
            raise FrameError("a PIPE frame without its descriptor")
        if (process := self._command(From.PIPE, id)) is not None:
            process.take_pipe(
                stream, frames.parse_u64(payload), self._transport.pipes.popleft()
            )

    def _take_read(self, tag: int, id: int, payload: bytes) -> None:
        reply = frames.parse_read_reply(payload)
        self._questions.answer(
            reply, From.READ_REPLY, id, tag, size=max(len(reply.out), len(reply.err))
        )

    def _take_error(self, _stream: int, id: int, payload: bytes) -> None:
        self._refusable -= 1
        if self._refusable < 0:
            raise FrameError("an error without a request")
        code = frames.parse_u32(payload)
        if code != errno.ENOENT:
            name = errno.errorcode.get(code, f"error {code}")
            self._questions.refuse(
                BelljarError(f"the sandbox refused the request ({name})"), id
            )
            return
        gone = ShellNotFound("Shell not found")
        if (
            not self._questions.fail(gone, id)
            and (process := self._commands.get(id)) is not None
        ):
            process.end(
                gone
            )  # a signal or input that raced with the end of its command

    # Silence.

    def _start_pulse(self) -> None:
        if self._pulse is None and not self.is_paused:
            self._last_received = time.monotonic()
            self._pulse = self.loop.call_later(
                PULSE, self._check_silence, self._last_received + PULSE
            )

    def _check_silence(self, due: float) -> None:
        self._pulse = None
        if (
            self.lost is not None
            or self.is_paused
            or not (self._commands or self._questions or self._outbox)
        ):
            return
        now = time.monotonic()
        if now - due > PULSE:
            self._last_received = now  # our own loop was blocked; bytes may have arrived that are not read yet
        silence = now - self._last_received
        if silence > self._transport.silence or self._questions.overdue(
            PULSE, self._transport.silence
        ):
            self.close("the sandbox stopped answering")
            return
        if (
            silence >= PULSE * 0.9 or now == self._last_received
        ) and From.PONG not in self._questions:
            with contextlib.suppress(SandboxLost):
                self._ask(To.PING, From.PONG, payload=bytes(8))
        if silence > SUSPECT and self._asking_engine is None:
            self._asking_engine = self.loop.create_task(self._ask_engine())
        if self.lost is None and self._pulse is None:
            self._pulse = self.loop.call_later(
                PULSE, self._check_silence, time.monotonic() + PULSE
            )

    async def _ask_engine(self) -> None:
        last_received = self._last_received
        alive = self._still_alive is not None and await self._still_alive()
        self._asking_engine = None
        if not alive and not self.is_paused and last_received == self._last_received:
            self.close("the sandbox stopped answering (paused, killed or cut off)")


def _to_command(
    kind: From, take: Callable[[RemoteProcess, int, bytes], None]
) -> Handler:
    def handler(link: Link, stream: int, id: int, payload: bytes) -> None:
        if (process := link._command(kind, id)) is not None:
            take(process, stream, payload)

    return handler


def _to_question(kind: From, parse: Callable[[bytes], Any]) -> Handler:
    return lambda link, _, id, payload: link._questions.answer(parse(payload), kind, id)


GREETING: dict[int, Handler] = {From.WELCOME: Link._take_welcome}
HANDLERS: dict[int, Handler] = {
    From.STARTED: _to_command(From.STARTED, RemoteProcess.take_started),
    From.SPAWN_ERROR: Link._take_spawn_error,
    From.OUTPUT: _to_command(From.OUTPUT, RemoteProcess.take_output),
    From.ENDED: Link._take_ended,
    From.INPUT_ACK: _to_command(From.INPUT_ACK, RemoteProcess.take_ack),
    From.READ_REPLY: Link._take_read,
    From.LIST_REPLY: _to_question(From.LIST_REPLY, frames.parse_list),
    From.STATE_REPLY: _to_question(From.STATE_REPLY, frames.parse_state),
    From.TESTIMONY: _to_question(From.TESTIMONY, frames.parse_testimony),
    From.PONG: _to_question(From.PONG, lambda payload: None),
    From.ERROR: Link._take_error,
    From.PIPE: Link._take_pipe,
}
