"""Connects a command's stdin and stdout with ours: as a terminal, or as plain streams.

If stdin, stdout and stderr are a terminal, the command gets one too (`-t` and `-T` override this). While the command
runs all keys are read, so that none is left for the host's shell.
"""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from belljar.records import record

if TYPE_CHECKING:
    from anyio import CancelScope

    from belljar.session.options import Approver
    from belljar.session.watched_run import Run
    from belljar.surfaces.terminal.host import HostTerminal
    from belljar.surfaces.terminal.keys import Answers, DetachKeys, Keyboard


@record
class Streams:
    pty: bool
    """The command gets a terminal."""
    passed: bool
    """Our stdin is passed to the command."""
    terminal: HostTerminal | None
    """Our stdin, if it is a terminal."""
    stays: bool = False
    """If the terminal is lost, the command continues: it can be reached through its session."""

    @classmethod
    def of(cls, args: Namespace) -> Streams:
        terminal = _terminal()
        all_terminals = (
            terminal is not None and not args.json and os.isatty(1) and os.isatty(2)
        )
        pty = all_terminals if args.tty is None else args.tty
        stays = bool(args.session) and pty and terminal is not None
        return cls(
            pty,
            args.interactive or terminal is not None or _is_piped(),
            terminal,
            stays,
        )

    def options(self, args: Namespace) -> dict[str, Any]:
        options = {
            "timeout": args.timeout,
            "env": {**self._environment(), **dict(args.env)},
            "cwd": args.cwd,
        }
        if args.user is not None:
            options["user"] = args.user
        if self.pty:
            return {
                **options,
                "pty": True,
                "size": self.terminal.size if self.terminal is not None else None,
            }
        return {**options, "stdin_open": self.passed}

    def _environment(self) -> dict[str, str]:
        if not self.pty:
            return {}
        from belljar.surfaces.terminal import host

        return host.environment()

    def lent(self) -> AbstractContextManager[None]:
        return (
            self.terminal.raw()
            if self.pty and self.terminal is not None
            else nullcontext()
        )

    @cached_property
    def keyboard(self) -> Keyboard:
        from belljar.surfaces.terminal.keys import Keyboard

        return Keyboard(self.terminal)

    def approver(self, args: Namespace) -> Approver | None:
        """Asks the user at the terminal; None if there is none."""
        if self.terminal is None or args.json or not os.isatty(2):
            return None
        from belljar.surfaces.cli import asking

        return partial(asking.approve, keyboard=self.keyboard)

    def terminal_size(self) -> tuple[int, int]:
        return self.terminal.size if self.terminal is not None else (24, 80)

    async def pass_on(
        self, running: Run, answers: Answers, detach: DetachKeys, watching: CancelScope
    ) -> None:
        """Pass on stdin until it ends or the user detaches, which cancels `watching`."""
        import anyio

        from belljar.surfaces.terminal.keys import pass_size

        terminal = self.terminal if self.pty else None
        async with anyio.create_task_group() as tasks:
            if self.pty:
                tasks.start_soon(answers.pass_on, running.write)
            if terminal is not None:
                tasks.start_soon(pass_size, terminal, running.resize)
            if self.passed:
                await self.keyboard.pass_keys(
                    running.write, detach if terminal is not None else None
                )
                if terminal is None:
                    running.close_input()
                elif detach.pressed or self.stays:
                    detach.pressed = True
                    watching.cancel()
                else:  # a raw terminal only ends when it is closed
                    running.kill()
            tasks.cancel_scope.cancel()


def _terminal() -> HostTerminal | None:
    if not os.isatty(0):
        return None
    from belljar.surfaces.terminal.host import HostTerminal

    return HostTerminal.here()


def _is_piped() -> bool:
    try:
        return sys.stdin is not None and not os.isatty(0)
    except OSError:
        return False
