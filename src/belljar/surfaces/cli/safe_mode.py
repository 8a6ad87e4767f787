"""Safe mode: a prompt whose commands run in the sandbox's persistent shell. Nothing typed here runs on the host.

There are two threads. One has the session's event loop; the main thread has the terminal: it reads commands, prints
output and asks. They share a bounded queue of events, so a terminal that is not read slows the command down.

On a terminal the persistent shell has one too, and while a command runs every key goes to it. Without a terminal the
lines of stdin are run, nobody is asked, and the exit status is that of the last command.
"""

from __future__ import annotations

import asyncio
import os
import sys
from argparse import Namespace
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext
from enum import Enum
from functools import partial
from queue import SimpleQueue
from threading import Semaphore

import anyio
from anyio.from_thread import BlockingPortal, start_blocking_portal

from belljar.errors import BelljarError, PolicyDenied
from belljar.policy import Verdict
from belljar.policy.parser import Parser
from belljar.session.bash_channel import FIRST_SAMPLE
from belljar.session.persistent_shell import ShellResult
from belljar.session.result import Output
from belljar.session.session import Session
from belljar.surfaces.cli import (
    asking,
    console,
    devcontainer,
    own_commands,
    prompt,
    staged_offer,
)
from belljar.surfaces.cli.completer import Completions
from belljar.surfaces.cli.main import denial
from belljar.surfaces.cli.open_session import opened
from belljar.surfaces.cli.pending import continuing
from belljar.surfaces.cli.remarks import remarks
from belljar.surfaces.cli.signals import SignalGate
from belljar.surfaces.terminal import render
from belljar.surfaces.terminal.drawing import Drawing
from belljar.surfaces.terminal.host import HostTerminal, environment
from belljar.surfaces.terminal.lending import Lending

_EVENTS = 256

Question = tuple[Verdict, "Future[bool]"]


class Phase(Enum):
    """Decides what Ctrl+C does."""

    OPENING = "opening"
    """The sandbox is being started: Ctrl+C ends safe mode."""
    ASKING = "asking"
    """The user may type: Ctrl+C cancels the line, or answers no."""
    RUNNING = "running"
    """Ctrl+C interrupts the command."""
    INTERRUPTED = "interrupted"
    """The command was interrupted before: Ctrl+C kills it."""
    BETWEEN = "between"
    """Ctrl+C does nothing."""


def shell(args: Namespace) -> int:
    if args.devcontainer:
        devcontainer.prepare(args)
    terminal = (
        HostTerminal.here() if sys.stdout is not None and sys.stdout.isatty() else None
    )
    with start_blocking_portal("asyncio") as portal:
        mode = SafeMode(portal, args, terminal)
        with mode.opened():
            status = mode.converse()
    if args.changes == "staged" and not args.session:
        staged_offer.conclude(mode.id, ask=terminal is not None)
    return status


class SafeMode:
    box: Session
    id: str

    def __init__(
        self, portal: BlockingPortal, args: Namespace, terminal: HostTerminal | None
    ) -> None:
        self.portal, self._args = portal, args
        self._terminal = terminal
        self._lending: Lending | None = None
        self._events: SimpleQueue[Output | Question | None] = SimpleQueue()
        self._room, self._closing = Semaphore(_EVENTS), False
        self._phase = Phase.OPENING
        self._status, self._over, self._line_open = 0, False, False
        self._gate = SignalGate(self._signalled, interrupts=True)

    @contextmanager
    def opened(self) -> Iterator[None]:
        self._finished = self.portal.call(anyio.Event)
        session = self.portal.start_task_soon(self._keep_session_open)
        session.add_done_callback(lambda _: self._events.put(None))
        self._next_event()  # the session is open, or opening it failed
        self._phase = Phase.BETWEEN
        if session.done():
            session.result()
        self._parser = Parser()
        self._reader: prompt.Reader = prompt.read_pipe
        if self._terminal is not None:
            self.portal.call(self.box.persistent.use_terminal, environment())
            self._lending = Lending(self._terminal, self.portal, self.box.persistent)
            incomplete = partial(prompt.is_incomplete, parser=self._parser)
            self._reader = prompt.on_terminal(
                Completions(self.portal, self.box), incomplete
            )
        try:
            yield
        finally:
            self._closing = True
            self._room.release()
            self.portal.call(self._finished.set)
            session.result()

    async def _keep_session_open(self) -> None:
        self._loop = asyncio.get_running_loop()
        approve = self._ask if self._terminal else None
        checkpoints = "auto" if self._args.changes == "staged" else "off"
        async with opened(
            self._args,
            approve=approve,
            checkpoints=checkpoints,
            **continuing(self._args),
        ) as self.box:
            self.id = self.box.id
            self._events.put(None)
            await self._finished.wait()

    def converse(self) -> int:
        if self._terminal is not None:
            box = self.box
            console.note(
                f"{box.id} on {box.workspace.path}, policy {box.policy.name}, network {_network(box)}; :help"
            )
        try:
            for text in self._args.after_create if self._args.devcontainer else ():
                self.carry_out(text)
            while not self._over:
                self._run_next_command()
        except EOFError:
            pass
        finally:
            self._parser.close()
        return self._status

    def _run_next_command(self) -> None:
        try:
            text = prompt.read_command(
                self._read, prompt.prompt_of(self.box, self._staged()), self._parser
            )
        except KeyboardInterrupt:
            return
        if self._terminal is not None and own_commands.is_own(text):
            own_commands.carry_out(self, text)
        elif text.strip():
            self.carry_out(text)

    def _staged(self) -> int | None:
        """The number of staged changes, for the prompt."""
        if self._terminal is None or not self.box.is_staged:
            return None
        return len(self.portal.call(self.box.changes))

    def leave(self) -> None:
        self._over = True

    def _read(self, shown: str) -> str:
        with self._during(Phase.ASKING), self._gate:
            return self._reader(shown)

    @contextmanager
    def _during(self, phase: Phase) -> Iterator[None]:
        before, self._phase = self._phase, phase
        try:
            yield
        finally:
            self._phase = before

    # Running.

    def carry_out(self, text: str) -> None:
        try:
            result = self._watched(text)
        except PolicyDenied as denied:
            console.note(
                "not run: you declined" if denied.declined else denial(denied, hint="")
            )
            self._status = denied.exit_status
        except BelljarError as error:
            console.note(str(error))
            self._status = error.exit_status
            self._over = not self.box.is_open
        else:
            self._conclude(text, result)

    def _watched(self, text: str) -> ShellResult:
        """Run a command and show its output. If that fails (a broken pipe), the command ends with the session."""
        with self._during(Phase.RUNNING):
            if self._lending is not None:
                self._lending.send_size()  # before the command can ask for it
            run = partial(
                self.box.persistent.run,
                text,
                timeout=self._args.timeout,
                on_output=self._post,
            )
            future = self.portal.start_task_soon(run)
            future.add_done_callback(lambda _: self._post(None))
            while (question := self._follow()) is not None:
                self._answer(*question)
        return future.result()

    def _follow(self) -> Question | None:
        """Print output until the command ends or has a question. Until then the terminal belongs to the command."""
        screens = self._screens()
        with self._lending.lent() if self._lending else nullcontext():
            while isinstance(event := self._next_event(), Output):
                self._room.release()
                self._print(event, screens)
            self._room.release()
            for name, screen in screens.items():
                self._put(_FDS[name], screen.close())
        return event

    def _screens(self) -> dict[str, Drawing | render.Screen]:
        if self._lending is not None:
            lending = self._lending
            return {"stdout": Drawing(lambda: lending.size, lending.reply)}
        return {name: render.Screen() for name, fd in _FDS.items() if os.isatty(fd)}

    def _post(self, event: Output | Question | None) -> None:
        """Called on the session's thread, which waits here while the terminal is not read."""
        if not self._closing:
            self._room.acquire()
        self._events.put(event)

    def _next_event(self) -> Output | Question | None:
        with self._gate:  # a hang-up sends two signals at once, and Python may go on waiting after the first
            event = self._events.get()
        self._gate.check()
        return event

    def _signalled(self, number: int) -> None:
        """Runs between any two bytecodes of the main thread, which may hold locks: take none here."""
        if self._phase is Phase.OPENING:
            self._gate.number = number
        if self._gate.number is not None:
            self._events.put(None)
        elif self._phase is Phase.ASKING:
            raise KeyboardInterrupt
        elif self._phase is not Phase.BETWEEN:
            shell = self.box.persistent
            stop = shell.interrupt if self._phase is Phase.RUNNING else shell.kill
            self._phase = Phase.INTERRUPTED
            self._loop.call_soon_threadsafe(stop)

    def _print(
        self, output: Output, screens: dict[str, Drawing | render.Screen]
    ) -> None:
        screen = screens.get(output.stream)
        self._put(
            _FDS[output.stream], screen.feed(output.data) if screen else output.data
        )

    def _put(self, fd: int, data: bytes) -> None:
        view = memoryview(data)
        while view:
            self._line_open = view[-1] != ord("\n")
            with self._gate:
                view = view[os.write(fd, view) :]

    def _conclude(self, text: str, result: ShellResult) -> None:
        self._status = result.exit_code
        self._over = not self.box.is_open or self._ends_safe_mode(text, result)
        if self._terminal is not None and self._line_open:
            sys.stderr.write("\n")
        self._line_open = False
        for line in remarks(result, self._args, "prompt"):
            console.note(line)
        if result.restarted and not self._over:
            console.note(
                _NEW_SHELL.format(
                    "has ended" if result.shell_ended else "had ended before this"
                )
            )
        if self._terminal is not None and not self._over:
            sys.stderr.write(f"\x1b[2m{self._summary(result)}\x1b[0m\n")
            sys.stderr.flush()

    def _ends_safe_mode(self, text: str, result: ShellResult) -> bool:
        """Piped lines are a script: whatever ends their shell (`set -e`, exec) ends the script. A user at a terminal
        keeps typing for the sandbox, so only their own `exit` ends safe mode."""
        ended = result.cause == "exited" and self.box.persistent.ended
        return ended and (
            self._terminal is None or prompt.says_exit(text, self._parser)
        )

    def _summary(self, result: ShellResult) -> str:
        """A very short command ends before its memory is measured, so it is left out."""
        took = (
            f"{result.duration * 1000:.0f} ms"
            if result.duration < 1
            else f"{result.duration:.1f} s"
        )
        used = (
            f" · peak at least {result.peak_memory / (1 << 20):.1f} MiB"
            if result.duration > FIRST_SAMPLE
            else ""
        )
        return f"exit {result.exit_code} · {took}{used}"

    # Asking.

    async def _ask(self, verdict: Verdict) -> bool:
        answer: Future[bool] = Future()
        self._post((verdict, answer))
        return await asyncio.wrap_future(answer)

    def _answer(self, verdict: Verdict, answer: Future[bool]) -> None:
        """Ask the user. `always` approves whatever has the same effects until the session ends."""
        if not answer.set_running_or_notify_cancel():
            return  # a background job asked, and gave up before the user could be asked
        asking.show(verdict)
        question, letters = (
            (_RUN_IT, _LETTERS)
            if verdict.effects
            else (asking.ALLOW_IT, asking.LETTERS)
        )
        while (reply := self._input(question)) == "?":
            asking.explain(letters)
        if reply in ("a", "always"):
            self.box.approvals.remember(verdict, scope="session")
        answer.set_result(reply in (*asking.YES, "a", "always"))

    def _input(self, question: str) -> str:
        try:
            with self._during(Phase.ASKING), self._gate:
                return input(question).strip().lower()
        except (EOFError, KeyboardInterrupt):
            sys.stderr.write("\n")
            return "no"


def _network(box: Session) -> str:
    if box.allow is None:
        return box.network
    names = [*(f"preset {name}" for name in box.allow.presets), *box.allow.hosts]
    more = [f"{len(names) - _NAMED} more"] if len(names) > _NAMED else []
    asked = ["hosts that you are asked about"] if box.allow.ask_hosts else []
    return f"{box.network} but " + ", ".join([*names[:_NAMED], *more, *asked])


_NAMED = 3  # hosts that are named in the first line
_FDS = {"stdout": 1, "stderr": 2}
_NEW_SHELL = (
    "the shell in the sandbox {}: a new one has its directory and exported variables; other variables, functions, "
    "options and jobs are gone"
)
_RUN_IT = (
    "run it? [y]es, once / [n]o / [a]lways: also what does the same, in this session: "
)
_LETTERS = {
    **asking.LETTERS,
    "a": "run it, and do not ask again for commands with the same effects in this session",
}
