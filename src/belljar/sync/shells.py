"""Background shells, the persistent shell and watched commands, blocking."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Self

from belljar.session.background_shell import GRACE, READ_LIMIT

if TYPE_CHECKING:
    from belljar.session import background_shell, persistent_shell, watched_run
    from belljar.session.background_shell import Chunk, Position
    from belljar.session.conclusion import Status
    from belljar.session.persistent_shell import ShellResult
    from belljar.session.result import Event, Output, Result
    from belljar.sync.loop import Loop


class Shell:
    """A command in the background; `Session.start` makes one.

    shell = box.start("npm run dev")
    print(shell.read(wait=1).text)
    shell.kill()
    """

    def __init__(self, loop: Loop, shell: background_shell.Shell) -> None:
        self._loop, self._shell = loop, shell

    @property
    def id(self) -> str:
        return self._shell.id

    @property
    def command(self) -> str:
        return self._shell.command

    @property
    def pid(self) -> int:
        return self._shell.pid

    @property
    def started(self) -> float:
        return self._shell.started

    @property
    def status(self) -> Status:
        """As last heard; `poll` asks."""
        return self._shell.status

    @property
    def exit_code(self) -> int | None:
        return self._shell.exit_code

    @property
    def so_far(self) -> Chunk | None:
        """What it had printed when it was turned from a foreground command into a shell."""
        return self._shell.so_far

    def read(
        self, filter: str | None = None, *, offset: int | Position | None = None, limit: int = READ_LIMIT,
        wait: float = 0.0,
    ) -> Chunk:  # fmt: skip
        """What is new since the last check; with `offset`, from there on and without moving any cursor."""
        return self._loop.call(self._shell.read, filter, offset=offset, limit=limit, wait=wait)

    def poll(self) -> Status:
        return self._loop.call(self._shell.poll)

    def wait(self, timeout: float | None = None) -> Result:
        """Its end; TimeoutError if that does not come in time (the shell goes on)."""
        return self._loop.call(self._shell.wait, timeout)

    def result(self) -> Result:
        """Of a shell that has ended."""
        return self._loop.call(self._shell.result)

    def write(self, data: bytes | str) -> None:
        """To its stdin; waits while the command does not read."""
        self._loop.call(self._shell.write, data)

    def close_input(self) -> None:
        self._loop.do(self._shell.close_input)

    def resize(self, rows: int, cols: int) -> None:
        """Of its terminal (`start(pty=True)`)."""
        self._loop.do(self._shell.resize, rows, cols)

    def signal(self, signo: int) -> None:
        self._loop.do(self._shell.signal, signo)

    def kill(self, grace: float = GRACE) -> None:
        """End the whole tree; when this returns nothing of it is left."""
        self._loop.call(self._shell.kill, grace)

    def forget(self) -> None:
        self._loop.do(self._shell.forget)


class PersistentShell:
    """The one bash of a session whose state holds from call to call.

    box.persistent.run("cd src"); box.persistent.run("make")
    """

    def __init__(self, loop: Loop, shell: persistent_shell.PersistentShell) -> None:
        self._loop, self._shell = loop, shell

    @property
    def cwd(self) -> str:
        return self._shell.cwd

    @property
    def environment(self) -> dict[str, str] | None:
        return self._shell.environment

    @property
    def ended(self) -> bool:
        return self._shell.ended

    def run(
        self, command: str, *, timeout: float | None = None, grace: float = GRACE,
        on_output: Callable[[Output], None] | None = None,
    ) -> ShellResult:  # fmt: skip
        """One command in the shell; calls from several threads take turns."""
        return self._loop.call(self._shell.run, command, timeout=timeout, grace=grace, on_output=on_output)

    def interrupt(self) -> None:
        """Ctrl+C for what runs, from another thread."""
        self._loop.do(self._shell.interrupt)

    def kill(self) -> None:
        self._loop.do(self._shell.kill)

    def restart(self) -> None:
        """End the shell and forget its directory and variables: the next call begins afresh."""
        self._loop.call(self._shell.restart)

    def settle(self) -> None:
        """Learn what the last call left: `cwd` and `environment` are right afterwards."""
        self._loop.call(self._shell.settle)


class Run:
    """A command that is being watched: iterate over it for `Started`, `Output`… and `Ended`."""

    def __init__(self, loop: Loop, run: watched_run.Run) -> None:
        self._loop, self._run = loop, run

    @property
    def pid(self) -> int:
        return self._run.pid

    @property
    def result(self) -> Result | None:
        """Once it has ended."""
        return self._run.result

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Event:
        event: Event | None = self._loop.call(self._next)
        if event is None:
            raise StopIteration
        return event

    async def _next(self) -> Event | None:
        return await anext(self._run, None)

    def interrupt(self) -> None:
        """Ctrl+C."""
        self._loop.do(self._run.interrupt)

    def kill(self) -> None:
        self._loop.do(self._run.kill)

    def signal(self, signo: int) -> None:
        self._loop.do(self._run.signal, signo)

    def resize(self, rows: int, cols: int) -> None:
        self._loop.do(self._run.resize, rows, cols)

    def write(self, data: bytes) -> None:
        self._loop.call(self._run.write, data)

    def close_input(self) -> None:
        self._loop.do(self._run.close_input)
