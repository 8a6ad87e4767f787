"""Background shells of a remote session, and its named shells.

A shell is a command that nobody waits for: the service keeps its output, so any process can read it, from any byte. The
service counts the bytes of both streams together. Positions here are per stream, as a local shell's, so what was read
is remembered as steps: a position of the log, and how many bytes of each stream come before it.
"""

from __future__ import annotations

import asyncio
import signal as signals
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Unpack, cast

import anyio
from anyio import to_thread

from belljar.errors import BelljarError, ShellNotFound, UsageError
from belljar.options import must, seconds, whole
from belljar.patterns import lazy_pattern
from belljar.remote.command import RemoteCommands, RemoteRun, Spoken, result_of
from belljar.remote.wire import LONGEST_WAIT
from belljar.session import options as checks
from belljar.session.background_shell import (
    READ_LIMIT,
    Chunk,
    Observer,
    Position,
    check_reading,
)
from belljar.session.named_shell import PLACE
from belljar.session.new_output import NewOutput, compiled, matching
from belljar.session.output import Output
from belljar.session.persistent_shell import INTERRUPT_SECONDS, ShellResult
from belljar.session.result import Cause, Result, Status, split_tail, status_of

if TYPE_CHECKING:
    from belljar.session.commands import Request
    from belljar.session.files import Files
    from belljar.session.options import Command, Options

GRACE = 2.0
NAME = lazy_pattern(r"[A-Za-z0-9_-]{1,64}")
PERSISTENT = "persistent"
SHELL_ID = lazy_pattern(r"c-[A-Za-z0-9_-]+")
_NOT_IN_THE_BACKGROUND = ("stdin", "stdin_open", "on_output", "output_limit")


class RemoteShell:
    """A command in the background: `shell = await box.start("npm run dev")`."""

    def __init__(self, commands: RemoteCommands, told: dict[str, Any]) -> None:
        self.id: str = told["id"]
        command = told["command"]
        self.command: str = command if isinstance(command, str) else " ".join(command)
        self.pid = 0
        self.started: float = told["started"] or told["created"]
        self.exit_code: int | None = None
        self.status: Status = "running"
        self._commands = commands
        self._at = f"{commands.at}/{self.id}"
        self._new = NewOutput(), NewOutput()
        self._steps: list[tuple[int, int, int]] = [(0, 0, 0)]
        """Position of the log, and the bytes of stdout and of stderr before it."""
        self._told = told
        self._killed = self._is_forgotten = False
        self.learn(told)

    def __repr__(self) -> str:
        return f"<belljar.Shell {self.id}, {self.status}: {self.command[:60]!r}>"

    # Reading.

    async def read(
        self,
        filter: str | None = None,
        *,
        offset: int | Position | None = None,
        limit: int = READ_LIMIT,
        wait: float = 0.0,
    ) -> Chunk:
        """The output since the last read; with `offset`, the output from there on.

        chunk = await shell.read(filter="error", wait=5)
        """
        check_reading(filter, offset, limit, wait)
        self._check_known()
        pattern = (
            await to_thread.run_sync(compiled, filter) if filter is not None else None
        )
        if offset is None:
            new, start = (
                self._new,
                (self._new[0].start(filter), self._new[1].start(filter)),
            )
        else:
            new, start = (
                (NewOutput(), NewOutput()),
                (offset, offset) if isinstance(offset, int) else offset,
            )
        chunk = await self._fetch(start, limit, wait)
        streams = zip(
            new,
            chunk.offset,
            (chunk.stdout_bytes, chunk.stderr_bytes),
            chunk.next,
            strict=True,
        )
        found = [(stream.pieces(at, data), end) for stream, at, data, end in streams]
        if pattern is not None:
            found = await to_thread.run_sync(matching, found, pattern, chunk.status)
        out, err = (
            stream.take(filter, pieces, end)
            for stream, (pieces, end) in zip(new, found, strict=True)
        )
        return replace(
            chunk, stdout_bytes=out, stderr_bytes=err, next=(found[0][1], found[1][1])
        )

    def observe(self, offset: int | Position = 0) -> Observer:
        """All of its output from there on, until it ends: `async for chunk in shell.observe(): ...`"""
        check_reading(None, offset, READ_LIMIT, 0.0)
        return Observer(self, (offset, offset) if isinstance(offset, int) else offset)

    async def _fetch(self, start: Position, limit: int, wait: float) -> Chunk:
        """Output from this position on; waits until there is some."""
        place, *at = max(
            step for step in self._steps if step[1] <= start[0] and step[2] <= start[1]
        )
        while True:
            data, place, lost, state = await self._piece(
                place, min(limit, READ_LIMIT), wait
            )
            begin = (
                at[0] + lost,
                at[1],
            )  # what is lost counts as stdout: the service does not say whose it was
            at = [begin[0] + len(data[0]), begin[1] + len(data[1])]
            self._note((place, at[0], at[1]))
            out, err = (
                data[0][max(0, start[0] - begin[0]) :],
                data[1][max(0, start[1] - begin[1]) :],
            )
            if out or err or data == (b"", b""):
                break
        if state == "ended":
            await self.poll()
        else:  # not the half of a character
            out, err = (
                out[: len(out) - split_tail(out)],
                err[: len(err) - split_tail(err)],
            )
        begin = max(start[0], begin[0]), max(start[1], begin[1])
        following = begin[0] + len(out), begin[1] + len(err)
        dropped = begin[0] - start[0], begin[1] - start[1]
        return Chunk(out, err, begin, following, dropped, self.status, self.exit_code)

    async def _piece(
        self, at: int, limit: int, wait: float
    ) -> tuple[tuple[bytes, bytes], int, int, str]:
        """Both streams of one part of the log, where the next part begins, what is lost before it, and the state."""
        wire, deadline = self._commands.wire, anyio.current_time() + wait
        while True:
            left = max(0.0, min(deadline - anyio.current_time(), LONGEST_WAIT))
            query = {
                "offset": at,
                "limit": limit,
                "wait": left or None,
                "stream": "stdout",
            }
            first = await wire.ask("GET", f"{self._at}/output", query=query, wait=left)
            begin, end = (
                int(first.headers["Belljar-Offset"]),
                int(first.headers["Belljar-Next"]),
            )
            if (
                end > begin
                or first.headers["Belljar-State"] == "ended"
                or anyio.current_time() >= deadline
            ):
                break
        other = b""
        if end - begin > len(first.content):
            query = {"offset": begin, "limit": end - begin, "stream": "stderr"}
            other = (await wire.ask("GET", f"{self._at}/output", query=query)).content
        lost = int(first.headers["Belljar-Dropped"])
        return (first.content, other), end, lost, str(first.headers["Belljar-State"])

    def _note(self, step: tuple[int, int, int]) -> None:
        if step > self._steps[-1]:
            self._steps.append(step)

    def learn(self, told: dict[str, Any]) -> None:
        """What the service says of it now."""
        self._told = told
        if told["state"] != "ended":
            return
        self.exit_code = told["exit_code"]
        result = told["result"]
        cause: Cause = result["cause"] if result is not None else "exited"
        self.status = (
            "killed"
            if self._killed
            else status_of(cause, 1 if self.exit_code is None else self.exit_code)
        )

    async def poll(self) -> Status:
        """Its status, asked of the service: `await shell.poll() == "running"`."""
        self._check_known()
        if self.status == "running":
            self.learn(await self._commands.wire.get(self._at))
        return self.status

    async def wait(self, timeout: float | None = None) -> Result:
        """Wait for its end; TimeoutError if that takes longer (the shell goes on).

        result = await shell.wait(timeout=60)
        """
        seconds("timeout", timeout)
        with anyio.fail_after(timeout):
            while self.status == "running":
                self.learn(await self._commands.wire.get(self._at, wait=LONGEST_WAIT))
        return result_of(self._told)

    async def result(self) -> Result:
        """The result of a shell that has ended: `result = await shell.result()`."""
        if await self.poll() == "running":
            raise UsageError(
                f"{self.id} still runs: `await shell.wait()` gives its result"
            )
        return result_of(self._told)

    # Input and signals.

    async def write(self, data: bytes | str) -> None:
        """Write to its stdin; does nothing once it has ended: `await shell.write("yes\\n")`."""
        if not isinstance(data, bytes | str):
            raise UsageError(f"write takes bytes or text, not {type(data).__name__}")
        if await self.poll() == "running":
            await self._commands.write(
                self.id, data.encode() if isinstance(data, str) else data
            )

    def close_stdin(self) -> None:
        """Close its stdin: `shell.close_stdin()`."""
        self._commands.later(lambda: self._commands.write(self.id, b"", close=True))

    close_input = close_stdin

    def resize(self, rows: int, cols: int) -> None:
        """Resize its terminal: `shell.resize(24, 80)`."""
        self._commands.later(
            lambda: self._commands.resize(self.id, rows, cols, self._steps[-1][0])
        )

    def signal(self, signo: int) -> None:
        """Send a signal to all its processes: `shell.signal(signal.SIGHUP)`."""
        whole("signo", signo, 1, 64)
        self._killed = self._killed or signo in (signals.SIGKILL, signals.SIGTERM)
        self._commands.later(lambda: self._commands.signal(self.id, signo))

    async def kill(self, grace: float = GRACE) -> None:
        """Kill all its processes, and wait until they are gone: `await shell.kill()`."""
        seconds("grace", grace, optional=False, zero=True)
        if await self.poll() == "running":
            self._killed = True
            self.learn(await self._commands.kill(self.id, grace))

    def forget(self) -> None:
        """Show it no more: `shell.forget()`. The service keeps its record."""
        self._is_forgotten = True

    def _check_known(self) -> None:
        if self._is_forgotten:
            raise ShellNotFound(f"Shell not found: {self.id} was forgotten")


class RemoteShells:
    """`box.shells` of a remote session."""

    def __init__(self, commands: RemoteCommands, files: Files) -> None:
        self._commands, self._files = commands, files
        self._known: dict[str, RemoteShell] = {}
        commands.as_shell = lambda told: self._keep(RemoteShell(commands, told))
        self._forgotten: set[str] = set()
        self._named: dict[str, RemotePersistentShell] = {}

    def __call__(self) -> list[RemoteShell]:
        return list(self._known.values())

    def get(self, id: str) -> RemoteShell:
        if id not in self._known:
            raise ShellNotFound(f"Shell not found: {id}")
        return self._known[id]

    @property
    def persistent(self) -> RemotePersistentShell:
        return self.named(PERSISTENT)

    def named(self, name: str) -> RemotePersistentShell:
        """A shell whose directory and variables hold from call to call, also for other processes."""
        must(
            bool(NAME.fullmatch(name)),
            "name",
            name,
            "made of letters, digits, dashes and underscores",
        )
        return self._named.setdefault(
            name, RemotePersistentShell(self._commands, self._files, name)
        )

    async def start(
        self,
        command: Command | Request,
        *,
        ring: int | None = None,
        **options: Unpack[Options],
    ) -> RemoteShell:
        """Start a background shell; the service keeps its output, whatever `ring` says."""
        if ring is not None:
            whole("ring", ring, 4096, 64 << 20)
        spoken = Spoken(
            command,
            checks.check(options, "start", _NOT_IN_THE_BACKGROUND),
            stdin_open=True,
        )
        told = await self._commands.begin(spoken)
        if (
            told["state"] == "waiting"
            and self._commands.approve is not None
            and told["approval"]
        ):
            await self._commands.decide(
                await self._commands.wire.get(f"/v1/approvals/{told['approval']}")
            )
        return self._keep(RemoteShell(self._commands, told))

    async def yielding(
        self,
        command: Command | Request,
        *,
        yield_after: float,
        **options: Unpack[Options],
    ) -> Result | RemoteShell:
        """Run a command; after `yield_after` seconds it goes on as a background shell."""
        seconds("yield_after", yield_after, optional=False, zero=True)
        spoken = Spoken(command, checks.check(options, "yielding", ("pty",)))
        async with RemoteRun.begun(self._commands, spoken) as run:
            with anyio.move_on_after(yield_after):
                async for _ in run:
                    pass
                return run.concluded()
            shell = await run.detach()
        return run.concluded() if shell is None else cast(RemoteShell, shell)

    def _keep(self, shell: RemoteShell) -> RemoteShell:
        self._known[shell.id] = shell
        return shell

    async def refresh(self) -> list[RemoteShell]:
        """Ask the service for all shells, also those that other processes started."""
        for told in await self._commands.listed():
            if told["id"] in self._known:
                self._known[told["id"]].learn(told)
            elif (
                told["id"] not in self._forgotten | self._commands.foreground
                and told["shell"] is None
            ):
                self._keep(RemoteShell(self._commands, told))
        return self()

    async def cleanup(self) -> int:
        """Forget the shells that have ended, and return how many there were."""
        ended = [shell for shell in await self.refresh() if shell.status != "running"]
        for shell in ended:
            shell.forget()
            self._forgotten.add(shell.id)
            del self._known[shell.id]
        return len(ended)


class RemotePersistentShell:
    """`box.persistent`: commands that share a directory, variables, functions and options. Jobs end with their call."""

    def __init__(self, commands: RemoteCommands, files: Files, name: str) -> None:
        self._commands, self._files = commands, files
        self.name = name
        self.cwd = "/workspace"
        """The shell's directory after the last call."""
        self._turn = anyio.Lock()
        self._now: RemoteRun | None = None
        self._has_begun = anyio.Event()
        """The running call has started, or it has ended without; set when there is none."""
        self._has_begun.set()
        self._terminal: Options = {}
        self._size = (24, 80)

    @property
    def ended(self) -> bool:
        """Never: it is no process, and each call finds what the one before has left."""
        return False

    async def run(
        self,
        command: str,
        *,
        timeout: float | None = None,
        grace: float = GRACE,
        on_output: Callable[[Output], None] | None = None,
    ) -> ShellResult:
        """Run a command in the shell: `await box.persistent.run("cd src")`."""
        checks.check(
            {"timeout": timeout, "grace": grace, "on_output": on_output}, "run"
        )
        options: Options = {"timeout": timeout, "grace": grace, "on_output": on_output}
        if self._terminal:
            options |= {**self._terminal, "size": self._size}
        async with self._turn:
            result = await self._followed(Spoken(command, options, shell=self.name))
            with suppress(BelljarError, UnicodeDecodeError):
                cwd = await self._files.read(f"{self._place}/cwd", length=4096)
                self.cwd = cwd.rstrip(b"\0").decode()
        values = {one.name: getattr(result, one.name) for one in fields(result)}
        return ShellResult(**values, cwd=self.cwd)

    async def _followed(self, spoken: Spoken) -> Result:
        self._has_begun = anyio.Event()
        try:
            async with RemoteRun.begun(self._commands, spoken) as self._now:
                async for _ in self._now:
                    self._has_begun.set()
            return self._now.concluded()
        finally:
            self._now = None
            self._has_begun.set()

    @property
    def _place(self) -> str:
        return f"{PLACE}/{self.name}"

    # On a terminal.

    def use_terminal(self, env: Mapping[str, str]) -> None:
        """Give its commands a terminal: one stream of output, keys as input. Ctrl+C is a key."""
        self._terminal = {"pty": True, "env": env}

    async def write(self, keys: bytes) -> None:
        if not self._terminal:
            return
        await self._has_begun.wait()
        if self._now is not None:
            await self._now.write(keys)

    def resize(self, rows: int, cols: int) -> None:
        self._size = rows, cols
        if self._now is not None:
            self._now.resize(rows, cols)

    def interrupt(self) -> None:
        """Send Ctrl+C to what runs, and kill it if that does not end it: `box.persistent.interrupt()`."""
        if self._now is not None:
            self._now.interrupt()
            loop = asyncio.get_running_loop()
            loop.call_later(INTERRUPT_SECONDS, self._now.kill)

    def kill(self) -> None:
        """Kill what runs: `box.persistent.kill()`."""
        if self._now is not None:
            self._now.kill()

    async def restart(self) -> None:
        """End what runs, and forget directory and variables: `await box.persistent.restart()`."""
        self.kill()
        async with self._turn:
            with suppress(FileNotFoundError):
                await self._files.remove(self._place)
            self.cwd = "/workspace"
