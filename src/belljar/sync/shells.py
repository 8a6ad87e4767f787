"""Background shells, the persistent shell and watched commands, blocking."""

from __future__ import annotations

from typing import Self

from belljar.session import background_shell, persistent_shell, watched_run
from belljar.session.background_shell import Chunk, Position
from belljar.session.result import Event, Result, Status
from belljar.sync.facade import Facade, Same, blocking, in_loop


class Shell(Facade[background_shell.Shell]):
    """A command in the background; `Session.start` makes one.

    shell = box.start("npm run dev")
    print(shell.read(wait=1).text)
    shell.kill()
    """

    id = Same[str]()
    command = Same[str]()
    pid = Same[int]()
    started = Same[float]("Unix time.")
    status = Same[Status]("The last known status; `poll` asks for the current one.")
    exit_code = Same[int | None]()
    so_far = Same[Chunk | None](
        "What a command had printed when `yielding` turned it into a shell."
    )
    read = blocking(background_shell.Shell.read)

    def observe(self, offset: int | Position = 0) -> Observer:
        """All of its output from there on, until it ends: `for chunk in shell.observe(): print(chunk.text, end="")`."""
        return Observer(self._loop, self._of.observe(offset))

    poll = blocking(background_shell.Shell.poll)
    wait = blocking(background_shell.Shell.wait)
    result = blocking(background_shell.Shell.result)
    write = blocking(background_shell.Shell.write)
    close_stdin = close_input = in_loop(background_shell.Shell.close_stdin)
    resize = in_loop(background_shell.Shell.resize)
    signal = in_loop(background_shell.Shell.signal)
    kill = blocking(background_shell.Shell.kill)
    forget = in_loop(background_shell.Shell.forget)


class Observer(Facade[background_shell.Observer]):
    """Made by `Shell.observe`; iterate over it."""

    position = Same[Position]("Where the next chunk begins, for each stream.")

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Chunk:
        chunk: Chunk | None = self._loop.call(self._next)
        if chunk is None:
            raise StopIteration
        return chunk

    async def _next(self) -> Chunk | None:
        return await anext(self._of, None)


class PersistentShell(Facade[persistent_shell.PersistentShell]):
    """The one bash of a session whose state holds from call to call.

    box.persistent.run("cd src"); box.persistent.run("make")
    """

    cwd = Same[str]()
    environment = Same[dict[str, str] | None](
        "The exported variables; None before the first report."
    )
    ended = Same[bool]("Whether no shell runs; the next call starts one.")
    state = Same[dict[str, str]](
        "Its directory and exported variables after the last call."
    )
    run = blocking(persistent_shell.PersistentShell.run)
    interrupt = in_loop(persistent_shell.PersistentShell.interrupt)
    kill = in_loop(persistent_shell.PersistentShell.kill)
    restart = blocking(persistent_shell.PersistentShell.restart)
    settle = blocking(persistent_shell.PersistentShell.settle)


class Run(Facade[watched_run.Run]):
    """A command that is being watched: iterate over it for `Started`, `Output`… and `Ended`.

    with box.stream("npm test") as events:
        for event in events: ...
    """

    pid = Same[int]()
    result = Same[Result | None]("Once it has ended.")
    interrupt = in_loop(watched_run.Run.interrupt)
    kill = in_loop(watched_run.Run.kill)
    signal = in_loop(watched_run.Run.signal)
    resize = in_loop(watched_run.Run.resize)
    write = blocking(watched_run.Run.write)
    close_stdin = close_input = in_loop(watched_run.Run.close_stdin)

    def detach(self) -> Shell | None:
        """Go on as a background shell, also when the block is left; None if it has just ended: `events.detach()`."""
        shell = self._loop.call(self._of.detach)
        return Shell(self._loop, shell) if shell is not None else None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Event:
        event: Event | None = self._loop.call(self._next)
        if event is None:
            raise StopIteration
        return event

    async def _next(self) -> Event | None:
        return await anext(self._of, None)
