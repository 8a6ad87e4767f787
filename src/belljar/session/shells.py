"""`Shells`, the `box.shells` of a session: its background shells by their ids, its persistent shells by their names.

shell = await box.shells.start("npm run dev")
running = [shell for shell in box.shells() if shell.status == "running"]
await box.shells.named("build").run("cd src")

The state of the named shells of a kept session is written down after each call: a process that attaches goes on in
their directories, with their exported variables.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Unpack

import anyio
from anyio import to_thread

from belljar.errors import ShellNotFound
from belljar.link.frames import Flag
from belljar.options import SESSION_NAME, must, seconds, whole
from belljar.patterns import lazy_pattern
from belljar.sandbox import rundir
from belljar.session.commands import Request
from belljar.session.options import Command, Options
from belljar.session.result import Result
from belljar.session.running_command import RunningCommand

if TYPE_CHECKING:
    from belljar.session.background_shell import Shell
    from belljar.session.commands import Commands
    from belljar.session.persistent_shell import PersistentShell, SavedState

SHELL_ID = lazy_pattern(r"shell_[0-9a-f]{8}")
SAVED = "shells"


class Shells:
    def __init__(self, commands: Commands) -> None:
        self._commands = commands
        self._inside = commands.inside
        self._known: dict[str, Shell] = {}
        self._persistent: dict[str, PersistentShell] = {}
        self._saved: dict[str, SavedState] = {}

    def __call__(self) -> list[Shell]:
        """Those that this object knows; `refresh` also finds those of other processes."""
        return list(self._known.values())

    def get(self, id: str) -> Shell:
        if id not in self._known:
            raise ShellNotFound(f"Shell not found: {id}")
        return self._known[id]

    @cached_property
    def persistent(self) -> PersistentShell:
        return self._persistent_one("")

    def named(self, name: str) -> PersistentShell:
        """A persistent shell of its own; it starts with its first command."""
        must(
            bool(SESSION_NAME.fullmatch(name)),
            "name",
            name,
            "made of letters, digits, dots and dashes",
        )
        return self._persistent_one(name)

    def _persistent_one(self, name: str) -> PersistentShell:
        if name not in self._persistent:
            from belljar.session.persistent_shell import PersistentShell

            save = partial(self._save, name) if name else None
            self._persistent[name] = PersistentShell(
                self._commands, self._saved.get(name), save
            )
        return self._persistent[name]

    async def _save(self, name: str, state: SavedState) -> None:
        self._saved[name] = state
        if self._inside.options.keep:
            where = self._inside.sandbox.run_dir
            await to_thread.run_sync(
                rundir.write_session, where, dict(self._saved), SAVED
            )

    def states(self) -> dict[str, SavedState]:
        """The directory and variables of each persistent shell, by its name."""
        return {
            **self._saved,
            **{name: shell.state for name, shell in self._persistent.items()},
        }

    async def restore(self, states: dict[str, SavedState]) -> None:
        """Begin with what `states` gave in another session: new shells, in these directories with these variables."""
        self._saved = dict(states)
        if self._inside.options.keep:
            where = self._inside.sandbox.run_dir
            await to_thread.run_sync(rundir.write_session, where, self._saved, SAVED)

    async def recall(self) -> None:
        """Read what another process has written down."""
        saved = await to_thread.run_sync(
            rundir.read_session, self._inside.sandbox.run_dir, SAVED
        )
        self._saved = dict(saved or {})

    async def start(
        self,
        command: Command | Request,
        *,
        ring: int | None = None,
        **options: Unpack[Options],
    ) -> Shell:
        """Start a background shell. It runs until it ends, is killed or the session closes.

        shell = await box.start("npm run dev")
        chunk = await shell.read()
        """
        from belljar.session.background_shell import Shell  # few sessions have one

        if ring is not None:
            whole("ring", ring, 4096, 64 << 20)
        without = ("stdin", "stdin_open", "on_output", "output_limit")
        request = await self._commands.admitted(command, options, "start", without)
        request = replace(request, flags=request.flags | Flag.STDIN)
        async with self._commands.begin(
            request, ring=ring or self._default_ring
        ) as running:
            await running.process.started()
            self._inside.link.forget(running.process)
            running.in_background = True
            return self._keep(Shell.of(self._inside, running))

    async def yielding(
        self,
        command: Command | Request,
        *,
        yield_after: float,
        **options: Unpack[Options],
    ) -> Result | Shell:
        """Run a command; after `yield_after` seconds it goes on as a background shell.

        result_or_shell = await box.yielding("make", yield_after=10)
        """
        seconds("yield_after", yield_after, optional=False, zero=True)
        request = await self._commands.admitted(
            command, options, "yielding", without=("pty",)
        )
        async with self._commands.begin(request) as running:
            if running.input.is_whole:
                await running.input.feed()
            with anyio.move_on_after(yield_after):
                return await running.concluded()
            return await self.take_over(running) or await running.conclude()

    async def take_over(self, running: RunningCommand) -> Shell | None:
        """Turn a foreground command into a background shell; None if it has just ended."""
        from belljar.session.background_shell import Shell

        shell = Shell.of(self._inside, running)
        taken = await shell.take_over(running, self._default_ring)
        return self._keep(shell) if taken else None

    @property
    def _default_ring(self) -> int:
        return self._inside.options.limits.shell_output

    def _keep(self, shell: Shell) -> Shell:
        self._known[shell.id] = shell
        if shell.status == "running":
            self._inside.lasting.add(shell)
        return shell

    async def refresh(self) -> list[Shell]:
        """Ask the sandbox for all its shells, also those that other processes started.

        shells = await box.refresh()
        """
        from belljar.session.background_shell import Shell

        listing, known = await self._inside.link.list(), self._known
        self._known = {id: shell for id, shell in known.items() if shell.is_ours}
        for listed in listing:
            if listed.flags & Flag.BACKGROUND:
                shell = Shell.from_listed(self._inside, self._commands.ledger, listed)
                shell = known.get(shell.id, shell)
                shell.learn(listed.ended)
                self._keep(shell)
        self._inside.lasting -= set(known.values()) - set(self._known.values())
        return self()

    async def cleanup(self) -> int:
        """Forget the shells that have ended, and return how many there were: `await box.cleanup()`."""
        ended = [shell for shell in await self.refresh() if shell.status != "running"]
        for shell in ended:
            shell.forget()
            del self._known[shell.id]
        return len(ended)
