"""One command at a service: asked for once, followed by position, ended for certain.

A plain command is one request that waits for its end. One that is watched, fed or may have to be approved here is a
stream of events. Either way it runs at the service: a connection that breaks off is opened again and nothing is lost.
Leaving it kills it.
"""

from __future__ import annotations

import asyncio
import secrets
import signal as signals
from base64 import b64decode
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Never, Self

import anyio
from anyio import to_thread

from belljar import codec
from belljar.errors import BelljarError, ServiceError, UsageError
from belljar.link.frames import Flag
from belljar.options import whole
from belljar.policy import Verdict
from belljar.remote.wire import LONGEST_WAIT, Events, Wire, error_from
from belljar.session.commands import Request
from belljar.session.options import Command, Options, Stdin
from belljar.session.output import Stream
from belljar.session.result import Ended, Event, Output, Result, Started
from belljar.tasks import beside, see_through

if TYPE_CHECKING:
    from belljar.session.options import Approver

STDIN_AT_ONCE = 256 << 10  # bytes that go with the command; more are sent after it
STDIN_PIECE = 1 << 20
KILL_SECONDS = 30.0  # how long a cancelled caller waits for a kill
_AS_THEY_ARE = (
    "timeout",
    "grace",
    "combined",
    "pty",
    "clean_env",
    "output_limit",
    "user",
)


class Spoken:
    """A command as it is asked for: a body, and the input that is sent after it."""

    def __init__(
        self, command: Command | Request, options: Options, **more: Any
    ) -> None:
        if isinstance(command, Request):
            options, command = command.options, _of_request(command)
        given: dict[str, Any] = {
            "command": command if isinstance(command, str) else list(command)
        }
        for name in _AS_THEY_ARE:
            if (value := options.get(name)) is not None:
                given[name] = str(value) if name == "user" else value
        if (cwd := options.get("cwd")) is not None:
            given["cwd"] = str(cwd)
        if size := options.get("size"):
            given["size"] = list(size)
        given["env"] = dict(options.get("env") or {})
        self.feeds: Stdin | None = None
        stdin, stays_open = options.get("stdin"), bool(options.get("stdin_open"))
        if (text := _short(stdin)) is not None:
            given["stdin"] = text
        elif stdin is not None:
            self.feeds = stdin
        if stays_open or self.feeds is not None:
            given["stdin_open"] = True
        self.closes = self.feeds is not None and not stays_open
        self.grace = float(options.get("grace", 2.0))
        self.on_output = options.get("on_output")
        self.body = {**given, **more}

    @property
    def is_plain(self) -> bool:
        return self.feeds is None and self.on_output is None


def _of_request(request: Request) -> Command:
    words = [word.decode("utf-8", "surrogateescape") for word in request.argv]
    return words[0] if request.flags & Flag.SHELL else words


def _short(stdin: Stdin | None) -> str | None:
    """Input that fits into the body."""
    data = stdin.encode() if isinstance(stdin, str) else stdin
    if not isinstance(data, bytes) or len(data) > STDIN_AT_ONCE:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


class RemoteCommands:
    """The commands of one session."""

    def __init__(self, wire: Wire, session: str, approve: Approver | None) -> None:
        self.wire = wire
        self.at = f"/v1/sessions/{session}/commands"
        self.approve = approve
        self.foreground: set[str] = set()
        """Ids of commands that somebody waits for."""
        self.as_shell: Callable[[dict[str, Any]], Any] = dict
        """Makes a background shell of a command; set by who has the shells."""
        self._later: asyncio.Task[None] | None = None

    async def run(self, spoken: Spoken) -> Result:
        if spoken.is_plain and self.approve is None:
            return await self._awaited(spoken)
        async with RemoteRun.begun(self, spoken) as run:
            async for _ in run:
                pass
        return run.concluded()

    async def _awaited(self, spoken: Spoken) -> Result:
        key = secrets.token_hex(16)
        try:
            told = await self.wire.post(
                self.at, spoken.body, wait=LONGEST_WAIT, key=key
            )
            self.foreground.add(told["id"])
            while told["state"] != "ended":
                told = await self.wire.get(f"{self.at}/{told['id']}", wait=LONGEST_WAIT)
        except BelljarError:
            raise
        except BaseException:
            await see_through(self._kill_unseen(spoken, key))
            raise
        return result_of(told)

    async def _kill_unseen(self, spoken: Spoken, key: str) -> None:
        """End a command whose answer was not waited for: the same key gives the same command."""
        with suppress(BelljarError), anyio.move_on_after(KILL_SECONDS):
            told = await self.wire.post(self.at, spoken.body, wait=0, key=key)
            await self.kill(told["id"], spoken.grace)

    async def begin(self, spoken: Spoken, wait: float = 0.0) -> dict[str, Any]:
        """Start it and leave it; waits a while for its end."""
        told: dict[str, Any] = await self.wire.post(self.at, spoken.body, wait=wait)
        return told

    async def listed(self) -> list[dict[str, Any]]:
        """All commands of the session, newest first, without their output."""
        found, cursor = [], None
        while True:
            page = await self.wire.get(self.at, {"limit": 200, "cursor": cursor})
            found += page["items"]
            cursor = page["next"]
            if cursor is None:
                return found

    def later(self, step: Callable[[], Awaitable[object]]) -> None:
        """Do it soon, after what was asked for before; for calls that return at once."""
        before = self._later

        async def after() -> None:
            if before is not None:
                await asyncio.wait([before])
            with suppress(BelljarError):  # it may have ended meanwhile
                await step()

        self._later = asyncio.get_running_loop().create_task(after())

    async def settled(self) -> None:
        """Wait for what was to be done later."""
        if self._later is not None:
            await asyncio.wait([self._later])

    async def kill(self, id: str, grace: float) -> dict[str, Any]:
        answer = await self.wire.ask(
            "DELETE", f"{self.at}/{id}", query={"grace": grace}, wait=grace
        )
        told: dict[str, Any] = answer.json()
        return told

    async def signal(self, id: str, signo: int) -> None:
        await self.wire.ask("POST", f"{self.at}/{id}/signal", json={"signal": signo})

    async def write(self, id: str, data: bytes, *, close: bool = False) -> None:
        headers = {"Content-Type": "application/octet-stream"}
        at = f"{self.at}/{id}/stdin"
        for begin in range(0, max(len(data), 1), STDIN_PIECE):
            piece, is_last = (
                data[begin : begin + STDIN_PIECE],
                begin + STDIN_PIECE >= len(data),
            )
            await self.wire.ask(
                "POST",
                at,
                query={"close": close and is_last},
                content=piece,
                headers=headers,
            )

    async def resize(self, id: str, rows: int, cols: int, position: int) -> None:
        await self.wire.tell(
            f"{self.at}/{id}/attach?offset={position}", {"resize": [rows, cols]}
        )

    async def decide(self, approval: dict[str, Any]) -> None:
        """Ask here what the service asks. Whoever answers first wins."""
        if self.approve is None or approval.get("state") != "waiting":
            return
        answer = self.approve(verdict_of(approval))
        answer = await answer if isawaitable(answer) else answer
        if answer is None:
            return
        decision = {
            "decision": "allow" if answer is True else "deny",
            "token": approval["token"],
        }
        try:
            await self.wire.post(f"/v1/approvals/{approval['id']}", decision)
        except ServiceError as refused:
            if refused.problem.get("code") != "approval_decided":
                raise


def verdict_of(approval: dict[str, Any]) -> Verdict:
    names = ("risk", "reason", "rules", "policy")
    told = {name: approval[name] for name in names}
    verdict = codec.decode(
        Verdict, {**told, "decision": "ask", "canonical": approval["text"]}
    )
    return replace(
        verdict, about="host" if approval.get("about") == "host" else "command"
    )


def result_of(told: dict[str, Any], *, interrupted: bool = False) -> Result:
    """The result of a command that has ended; the error, if it did not run."""
    if told["result"] is None:
        raise error_from(
            told["error"]
            or {"code": "failed", "detail": "the service does not say how it ended"}
        )
    result = codec.decode(Result, told["result"])
    if interrupted and (
        result.signal == signals.SIGINT
        or result.exit_code == 128 + signals.SIGINT
        or result.cause == "killed"  # it did not end by itself
    ):
        return replace(result, cause="interrupted")
    return result


class RemoteRun:
    """A command that is watched. It waits at the service while nobody takes its output."""

    def __init__(
        self, commands: RemoteCommands, spoken: Spoken, told: dict[str, Any]
    ) -> None:
        self.id: str = told["id"]
        self.pid = 0
        """Not known of a command at a service."""
        self.result: Result | None = None
        self._commands = commands
        self._spoken = spoken
        self._events = Events(commands.wire, f"{commands.at}/{self.id}")
        self._position = 0
        self._failure: BelljarError | None = None
        self._announced = self._interrupted = self._detached = False
        self._steps: deque[Callable[[], Awaitable[object]]] = deque()
        self._news = anyio.Event()
        self._writing = anyio.Lock()

    @classmethod
    @asynccontextmanager
    async def begun(
        cls, commands: RemoteCommands, spoken: Spoken
    ) -> AsyncIterator[RemoteRun]:
        """Start it; leaving the block ends it."""
        spoken.body["on_full"] = "wait"  # the reader sets the pace, and misses nothing
        run = cls(commands, spoken, await commands.begin(spoken))
        commands.foreground.add(run.id)
        try:
            async with beside() as tasks:
                tasks.start_soon(run._steer)
                if spoken.feeds is not None:
                    tasks.start_soon(run._feed, spoken.feeds)
                yield run
        finally:
            await see_through(run._leave())

    async def _leave(self) -> None:
        await self._events.close()
        if self._detached or self._events.is_over:
            return
        with suppress(BelljarError), anyio.move_on_after(KILL_SECONDS):
            told = await self._commands.kill(self.id, self._spoken.grace)
            if told["result"] is not None:
                self.result = result_of(told, interrupted=self._interrupted)

    def concluded(self) -> Result:
        assert self.result is not None
        return self.result

    # Its events.

    def __iter__(self) -> Never:
        raise UsageError(
            "events come while the command runs: write `async for`, or use belljar.sync"
        )

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        if self._failure is not None:
            raise self._failure
        try:
            return await self._next()
        except BelljarError as failure:
            self._failure = failure
            raise

    async def _next(self) -> Event:
        async for name, data in self._events:
            if name == "started" and not self._announced:
                self._announced = True
                return Started(self.pid)
            if name == "waiting":
                await self._commands.decide(data["approval"])
            if name == "dropped":
                self._position = data["offset"] + data["bytes"]
            if name == "output" and (output := self._output(data)) is not None:
                if self._spoken.on_output is not None:
                    self._spoken.on_output(output)
                return output
            if name == "ended":
                self.result = result_of(data["command"], interrupted=self._interrupted)
                return Ended(self.result)
        raise StopAsyncIteration

    def _output(self, data: dict[str, Any]) -> Output | None:
        """A piece, without what was there already."""
        piece = b64decode(data["base64"]) if "base64" in data else data["text"].encode()
        fresh = piece[max(0, self._position - data["offset"]) :]
        self._position = max(self._position, data["offset"] + len(piece))
        stream: Stream = "stderr" if data["stream"] == "stderr" else "stdout"
        return Output(stream, fresh) if fresh else None

    # Steering it: calls return at once, and take effect in their order.

    async def _steer(self) -> None:
        while True:
            while self._steps:
                with suppress(BelljarError):  # it may have ended meanwhile
                    await self._steps.popleft()()
            self._news = anyio.Event()
            await self._news.wait()

    def _step(self, step: Callable[[], Awaitable[object]]) -> None:
        self._steps.append(step)
        self._news.set()

    async def _feed(self, stdin: Stdin) -> None:
        with suppress(BelljarError):  # it has ended, or does not read on
            async for piece in pieces_of(stdin):
                await self._commands.write(self.id, piece)
            if self._spoken.closes:
                await self._commands.write(self.id, b"", close=True)

    async def write(self, data: bytes | str) -> None:
        """Write to its stdin (`stdin_open=True` keeps it open): `await events.write("y\\n")`."""
        content = data.encode() if isinstance(data, str) else bytes(data)
        async with self._writing:
            with suppress(UsageError):  # it has ended
                await self._commands.write(self.id, content)

    def close_stdin(self) -> None:
        """Close its stdin: `events.close_stdin()`."""
        self._step(lambda: self._commands.write(self.id, b"", close=True))

    close_input = close_stdin

    def resize(self, rows: int, cols: int) -> None:
        """Resize its terminal (`pty=True`): `events.resize(24, 80)`."""
        self._step(lambda: self._commands.resize(self.id, rows, cols, self._position))

    def signal(self, signo: int) -> None:
        """Send a signal to all its processes: `events.signal(signal.SIGHUP)`."""
        whole("signo", signo, 1, 64)
        self._step(lambda: self._commands.signal(self.id, signo))

    def interrupt(self) -> None:
        """Send Ctrl+C: `events.interrupt()`."""
        self._interrupted = True
        self.signal(signals.SIGINT)

    def kill(self) -> None:
        """Kill the command and all its processes: `events.kill()`."""
        self._step(lambda: self._commands.kill(self.id, self._spoken.grace))

    async def detach(self) -> Any:
        """Let it go on as a background shell, also after this block; None if it has ended."""

        if self._events.is_over:
            return None
        self._detached = True
        self._commands.foreground.discard(self.id)
        return self._commands.as_shell(
            await self._commands.wire.get(f"{self._commands.at}/{self.id}")
        )


async def pieces_of(stdin: Stdin) -> AsyncIterator[bytes]:
    if isinstance(stdin, bytes | str):
        yield stdin.encode() if isinstance(stdin, str) else stdin
    elif isinstance(stdin, AsyncIterable):
        async for piece in stdin:
            yield piece.encode() if isinstance(piece, str) else piece
    else:
        while (found := await to_thread.run_sync(next, stdin, None)) is not None:
            yield found.encode() if isinstance(found, str) else found
