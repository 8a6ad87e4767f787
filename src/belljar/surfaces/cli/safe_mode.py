"""Safe mode: a prompt whose commands run in the sandbox's persistent shell. Nothing typed here runs on the host.

Two threads: the session lives on an event loop in one; the main one has the terminal, reads commands, prints output
and asks. They meet in a bounded queue of happenings, so a terminal that does not read holds the command back.
Ctrl+C interrupts the command, twice kills it. Without a terminal the lines of stdin are run, nobody is asked, and the
last command's status is ours.
"""

from __future__ import annotations

import asyncio
import os
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from queue import SimpleQueue
from threading import Semaphore
from typing import Any

import anyio
from anyio import to_thread
from anyio.from_thread import BlockingPortal, start_blocking_portal

from belljar.errors import BelljarError, PolicyDenied
from belljar.policy import Verdict
from belljar.policy.parser import Parser
from belljar.session.result import Output, Result
from belljar.session.session import Session
from belljar.surfaces.cli import ci_report, console, render
from belljar.surfaces.cli.main import denial
from belljar.surfaces.cli.open_session import planned
from belljar.surfaces.cli.prompt import Pipe, Reader, Terminal, read_command
from belljar.surfaces.terminal.host import HostTerminal

_HAPPENINGS = 256
HELP = """  every line runs in the sandbox; cd, exports, functions and jobs hold from one to the next
  :policy   what is judged by which rules      :shells   background shells of this session
  :help     this                               :quit     leave (so do exit and Ctrl+D)
  Ctrl+C interrupts the running command, twice kills it"""

Question = tuple[Verdict, "Future[bool]"]


def shell(args: Namespace) -> int:
    interactive = HostTerminal.here() is not None and sys.stdout.isatty()
    with start_blocking_portal("asyncio") as portal:
        mode = SafeMode(portal, args, interactive)
        with mode.opened():
            return mode.converse()


class SafeMode:
    box: Session

    def __init__(self, portal: BlockingPortal, args: Namespace, interactive: bool) -> None:
        self._portal, self._args, self._interactive = portal, args, interactive
        self._happenings: SimpleQueue[Output | Question | None] = SimpleQueue()
        self._room, self._gone = Semaphore(_HAPPENINGS), False
        self._opening, self._reading, self._running, self._interrupts = True, False, False, 0
        self._status, self._over, self._line_open = 0, False, False
        self._door = console.Door(self._knocked, interrupts=True)

    @contextmanager
    def opened(self) -> Iterator[None]:
        self._left = self._portal.call(anyio.Event)
        holding = self._portal.start_task_soon(self._hold)
        holding.add_done_callback(lambda _: self._happenings.put(None))
        self._next()  # it is open, or could not be opened
        self._opening = False
        if holding.done():
            holding.result()
        self._reader: Reader = Terminal() if self._interactive else Pipe()
        self._parser = Parser()
        try:
            yield
        finally:
            self._gone = True
            self._room.release()
            self._portal.call(self._left.set)
            holding.result()

    async def _hold(self) -> None:
        """Keeps the session open as long as we converse."""
        self._loop = asyncio.get_running_loop()
        self.box = planned(self._args, approve=self._ask if self._interactive else None)
        async with self.box:
            self._happenings.put(None)
            await self._left.wait()

    def converse(self) -> int:
        if self._interactive:
            box = self.box
            console.note(f"{box.id} on {box.workspace.path}, policy {box.policy.name}, network {box.network}; :help")
        try:
            while not self._over:
                self._step()
        except EOFError:
            pass
        finally:
            self._parser.close()
        return self._status

    def _step(self) -> None:
        try:
            text = read_command(self, f"belljar:{self.box.persistent.cwd}$ ", self._parser)
        except KeyboardInterrupt:
            return
        if self._interactive and text.strip().startswith(":") and (own := self._own(text.strip())):
            own()
        elif text.strip():
            self._carry_out(text)

    def read(self, prompt: str) -> str:
        with self._listening():
            return self._reader.read(prompt)

    @contextmanager
    def _listening(self) -> Iterator[None]:
        """Somebody may type; Ctrl+C is an answer too."""
        self._reading = True
        try:
            with self._door:
                yield
        finally:
            self._reading = False

    # Running.

    def _carry_out(self, text: str) -> None:
        try:
            result = self._watched(text)
        except PolicyDenied as denied:
            console.note(denial(denied, hint=""))
            self._status = denied.exit_status
        except BelljarError as error:
            console.note(str(error))
            self._status = error.exit_status
            self._over = not self.box.is_open
        else:
            self._concluded(result)

    def _watched(self, text: str) -> Result:
        """Ctrl+C goes to the command. If we cannot go on (a broken pipe), the command ends with the session."""
        screens = {name: render.Screen() for name, fd in _FDS.items() if os.isatty(fd)}
        self._interrupts, self._running = 0, True
        try:
            future = self._portal.start_task_soon(self._run, text)
            future.add_done_callback(lambda _: self._happen(None))
            while (happening := self._next()) is not None:
                self._room.release()
                if isinstance(happening, Output):
                    self._print(happening, screens)
                else:
                    self._answer(*happening)
            self._room.release()
        finally:
            self._running = False
        for name, screen in screens.items():
            self._put(_FDS[name], screen.feed(b"", final=True))
        return future.result()

    async def _run(self, text: str) -> Result:
        return await self.box.persistent.run(text, timeout=self._args.timeout, on_output=self._happen)

    def _happen(self, what: Output | Question | None) -> None:
        """On the session's thread, which waits here while the terminal does not read."""
        if not self._gone:
            self._room.acquire()
        self._happenings.put(what)

    def _next(self) -> Output | Question | None:
        happening = self._happenings.get()
        self._door.check()
        return happening

    def _knocked(self, number: int) -> None:
        """A signal that came between two steps of ours, whatever these hold: no lock may be taken here."""
        if self._reading and self._door.number is None:
            raise KeyboardInterrupt
        if self._opening:
            self._door.number = number
        if self._door.number is not None:
            self._happenings.put(None)
        elif self._running:
            self._interrupts += 1
            shell = self.box.persistent
            self._loop.call_soon_threadsafe(shell.interrupt if self._interrupts == 1 else shell.kill)

    def _print(self, output: Output, screens: dict[str, render.Screen]) -> None:
        screen = screens.get(output.stream)
        self._put(_FDS[output.stream], screen.feed(output.data) if screen else output.data)

    def _put(self, fd: int, data: bytes) -> None:
        view = memoryview(data)
        while view:
            self._line_open = view[-1] != ord("\n")
            with self._door:
                view = view[os.write(fd, view) :]

    def _concluded(self, result: Result) -> None:
        self._status = result.exit_code
        # A shell that ended by itself was told to: `exit 3`, or `set -e` and a failure.
        self._over = (result.cause == "exited" and self.box.persistent.ended) or not self.box.is_open
        if what := ci_report.mishap(result, self._args):
            console.note(what)
        if self._interactive and not self._over:
            start = "\n" if self._line_open or result.cause == "interrupted" else ""
            self._line_open = False
            sys.stderr.write(f"{start}\x1b[2m{self._summary(result)}\x1b[0m\n")

    def _summary(self, result: Result) -> str:
        took = f"{result.duration * 1000:.0f} ms" if result.duration < 1 else f"{result.duration:.1f} s"
        memory = self.box.usage().get("memory")
        used = f" · {memory / (1 << 20):.1f} MiB" if memory else ""
        return f"exit {result.exit_code} · {took}{used}"

    # Asking.

    async def _ask(self, verdict: Verdict) -> bool:
        answer: Future[bool] = Future()
        self._happen((verdict, answer))
        return await to_thread.run_sync(answer.result, abandon_on_cancel=True)

    def _answer(self, verdict: Verdict, answer: Future[bool]) -> None:
        """y: this once; always: whatever has the same effects, as long as this session lives."""
        console.note("this needs your approval")
        sys.stderr.write(f"{render.safe(verdict.explain())}\n")
        try:
            with self._listening():
                said = input("run it? [y]es / [n]o / [a]lways: ").strip().lower()
        except (EOFError, KeyboardInterrupt):
            said = "no"
        if said in ("a", "always"):
            self.box.approvals.remember(verdict, scope="session")
        answer.set_result(said in ("y", "yes", "a", "always"))

    # Our own commands.

    def _own(self, text: str) -> Callable[[], Any] | None:
        return {":help": self._help, ":policy": self._policy, ":shells": self._shells, ":quit": self._quit}.get(text)

    def _help(self) -> None:
        console.say(HELP)

    def _quit(self) -> None:
        self._over = True

    def _policy(self) -> None:
        policy = self.box.policy
        console.say(f"{policy.name} ({policy.version}); `belljar check --explain CMD` shows a verdict and why")

    def _shells(self) -> None:
        shells = self._portal.call(self.box.refresh)
        console.table([(s.id, s.status, s.command) for s in shells], "SHELL", "STATUS", "COMMAND")


_FDS = {"stdout": 1, "stderr": 2}
