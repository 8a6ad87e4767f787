"""The methods of a session for background shells and the persistent shell."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Unpack

import anyio

from belljar.errors import ShellNotFound
from belljar.link.frames import Flag
from belljar.options import seconds, whole
from belljar.session.options import Command, Options
from belljar.session.request import Request
from belljar.session.result import Result
from belljar.session.running_command import RunningCommand
from belljar.session.verbs import Verbs

if TYPE_CHECKING:
    from belljar.session.background_shell import Shell
    from belljar.session.persistent_shell import PersistentShell


class ShellVerbs(Verbs):
    def __init__(self) -> None:
        self._shells: dict[str, Shell] = {}
        self._persistent: PersistentShell | None = None

    async def start(self, command: Command | Request, *, ring: int | None = None, **options: Unpack[Options]) -> Shell:
        """Start a background shell. It runs until it ends, is killed or the session closes.

        shell = await box.start("npm run dev")
        chunk = await shell.read()
        """
        from belljar.session.background_shell import Shell  # few sessions have one

        if ring is not None:
            whole("ring", ring, 4096, 64 << 20)
        request = await self._box._admitted(
            command, options, "start", without=("stdin", "stdin_open", "on_output", "output_limit")
        )
        request = replace(request, flags=request.flags | Flag.STDIN)
        async with RunningCommand(self._box, request, ring=ring or self._box.limits.shell_output) as running:
            await running.execution.started()
            self._box.sandbox.link.forget(running.execution)
            running.in_background = True
            return self._keep(Shell.of(self._box, running))

    async def yielding(
        self, command: Command | Request, *, yield_after: float, **options: Unpack[Options]
    ) -> Result | Shell:
        """Run a command; after `yield_after` seconds it goes on as a background shell.

        result_or_shell = await box.yielding("make", yield_after=10)
        """
        seconds("yield_after", yield_after, optional=False, zero=True)
        request = await self._box._admitted(command, options, "yielding", without=("pty",))
        async with RunningCommand(self._box, request) as running:
            await running.input.feed()
            with anyio.move_on_after(yield_after):
                return await running.conclude()
            return await self._take_over(running) or await running.conclude()

    async def _take_over(self, running: RunningCommand) -> Shell | None:
        """Turn a foreground command into a background shell; None if it has just ended."""
        from belljar.session.background_shell import Shell

        shell = Shell.of(self._box, running)
        taken = await shell.take_over(running, self._box.limits.shell_output)
        return self._keep(shell) if taken else None

    @property
    def _busy(self) -> bool:
        """Whether something may run at the same time as the next command."""
        return self._persistent is not None or any(shell.status == "running" for shell in self._shells.values())

    def shells(self) -> list[Shell]:
        """The background shells that this object knows; `refresh` also finds those of other processes.

        running = [shell for shell in box.shells() if shell.status == "running"]
        """
        return list(self._shells.values())

    def shell(self, id: str) -> Shell:
        """One of the background shells: `box.shell("shell_00000001")`."""
        if id not in self._shells:
            raise ShellNotFound(f"Shell not found: {id}")
        return self._shells[id]

    def _keep(self, shell: Shell) -> Shell:
        self._shells[shell.id] = shell
        return shell

    async def refresh(self) -> list[Shell]:
        """Ask the sandbox for all its shells, also those that other processes started.

        shells = await box.refresh()
        """
        from belljar.session.background_shell import Shell

        listing, known = await self._box.sandbox.link.list(), self._shells
        self._shells = {id: shell for id, shell in known.items() if shell._is_ours}
        for listed in listing:
            if listed.flags & Flag.BACKGROUND:
                shell = Shell.from_listed(self._box, listed)
                self._shells.setdefault(shell.id, known.get(shell.id, shell)).learn(listed.ended)
        return self.shells()

    async def cleanup(self) -> int:
        """Forget the shells that have ended, and return how many there were: `await box.cleanup()`."""
        ended = [shell for shell in await self.refresh() if shell.status != "running"]
        for shell in ended:
            shell.forget()
            del self._shells[shell.id]
        return len(ended)

    @property
    def persistent(self) -> PersistentShell:
        """One bash that keeps its state from call to call: `await box.persistent.run("cd src")`."""
        if self._persistent is None:
            from belljar.session.persistent_shell import PersistentShell

            self._persistent = PersistentShell(self._box)
        return self._persistent
