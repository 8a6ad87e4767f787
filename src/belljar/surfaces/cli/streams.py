"""How a command's stdin and stdout meet ours: as a terminal, or as plain streams.

Where stdin, stdout and stderr are a terminal, the command gets one (`-t` and `-T` force it). Whatever a terminal's
keys are, they are read as long as the command runs, so none is left for the host's shell.
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
    """Our stdin is the command's."""
    terminal: HostTerminal | None
    """Our stdin, if it is a terminal."""
    stays: bool = False
    """The command goes on without a terminal that is lost: its session is there to come back to."""

    @classmethod
    def of(cls, args: Namespace) -> Streams:
        terminal = _terminal()
        everywhere = terminal is not None and not args.json and os.isatty(1) and os.isatty(2)
        pty = everywhere if args.tty is None else args.tty
        stays = bool(args.session) and pty and terminal is not None
        return cls(pty, args.interactive or terminal is not None or _is_piped(), terminal, stays)

    def options(self, args: Namespace) -> dict[str, Any]:
        given = {"timeout": args.timeout, "env": {**self._environment(), **dict(args.env)}, "cwd": args.cwd}
        size = self.terminal.size if self.terminal is not None else None
        return {**given, "pty": True, "size": size} if self.pty else {**given, "stdin": b"" if self.passed else None}

    def _environment(self) -> dict[str, str]:
        if not self.pty:
            return {}
        from belljar.surfaces.terminal import host

        return host.environment()

    def lent(self) -> AbstractContextManager[None]:
        return self.terminal.raw() if self.pty and self.terminal is not None else nullcontext()

    @cached_property
    def keyboard(self) -> Keyboard:
        from belljar.surfaces.terminal.keys import Keyboard

        return Keyboard(self.terminal)

    def approver(self, args: Namespace) -> Approver | None:
        """Whoever sits at the terminal, if somebody does."""
        if self.terminal is None or args.json or not os.isatty(2):
            return None
        from belljar.surfaces.cli import asking

        return partial(asking.once, keyboard=self.keyboard)

    def terminal_size(self) -> tuple[int, int]:
        return self.terminal.size if self.terminal is not None else (24, 80)

    async def pass_on(self, running: Run, answers: Answers, detach: DetachKeys, watching: CancelScope) -> None:
        """What is typed or piped in, until it ends or somebody detaches, which ends the watching."""
        import anyio

        from belljar.surfaces.terminal.keys import pass_size

        terminal = self.terminal if self.pty else None
        async with anyio.create_task_group() as tasks:
            if self.pty:
                tasks.start_soon(answers.pass_on, running.write)
            if terminal is not None:
                tasks.start_soon(pass_size, terminal, running.resize)
            if self.passed:
                await self.keyboard.pass_keys(running.write, detach if terminal is not None else None)
                if terminal is None:
                    running.close_input()
                elif detach.pressed or self.stays:
                    detach.pressed = True
                    watching.cancel()
                else:  # a raw terminal has no end but its own
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
