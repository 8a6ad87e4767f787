"""Safe mode: a prompt whose commands run in the sandbox's persistent shell. Nothing typed here runs on the host.

Two threads: the session lives on an event loop in one; the main one has the terminal, reads commands, prints output
and asks. They meet in a bounded queue of happenings, so a terminal that does not read holds the command back.
Ctrl+C interrupts the command, twice kills it. Without a terminal the lines of stdin are run, nobody is asked, and the
last command's status is ours.
"""

from __future__ import annotations

import os
import signal
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from queue import Queue
from typing import Any

from anyio import to_thread
from anyio.from_thread import BlockingPortal, start_blocking_portal

from belljar.errors import BelljarError, PolicyDenied
from belljar.policy import Verdict
from belljar.policy.parser import Parser
from belljar.result import Output, Result
from belljar.session import Session
from belljar.surfaces import ci, console, render
from belljar.surfaces.cli import denial
from belljar.surfaces.lines import Pipe, Reader, Terminal, read_command
from belljar.surfaces.opening import planned

_HAPPENINGS = 256
HELP = """  every line runs in the sandbox; cd, exports, functions and jobs hold from one to the next
  :policy   what is judged by which rules      :shells   background shells of this session
  :help     this                               :quit     leave (so do exit and Ctrl+D)
  Ctrl+C interrupts the running command, twice kills it"""

Question = tuple[Verdict, "Future[bool]"]


def shell(args: Namespace) -> int:
    interactive = sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()
    console.leave_on_signals()
    with start_blocking_portal("asyncio") as portal:
        mode = SafeMode(portal, args, interactive)
        with portal.wrap_async_context_manager(mode.box):
            return mode.converse()


class SafeMode:
    def __init__(self, portal: BlockingPortal, args: Namespace, interactive: bool) -> None:
        self.box: Session = portal.call(lambda: planned(args, approve=self._ask if interactive else None))
        self._portal, self._args, self._interactive = portal, args, interactive
        self._happenings: Queue[Output | Question | None] = Queue(_HAPPENINGS)
        self._reader: Reader = Terminal() if interactive else Pipe()
        self._parser = Parser()
        self._status, self._over, self._line_open = 0, False, False

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
            text = read_command(self._reader, f"belljar:{self.box.persistent.cwd}$ ", self._parser)
        except KeyboardInterrupt:
            return
        if self._interactive and text.strip().startswith(":") and (own := self._own(text.strip())):
            own()
        elif text.strip():
            self._carry_out(text)

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
        screens = {name: render.Screen() for name, fd in _FDS.items() if os.isatty(fd)}
        future = self._portal.start_task_soon(self._run, text)
        future.add_done_callback(lambda _: self._happenings.put(None))
        with self._hands_on(future):
            while (happening := self._happenings.get()) is not None:
                if isinstance(happening, Output):
                    self._print(happening, screens)
                else:
                    self._answer(*happening)
        for name, screen in screens.items():
            self._put(_FDS[name], screen.feed(b"", final=True))
        return future.result()

    async def _run(self, text: str) -> Result:
        return await self.box.persistent.run(text, timeout=self._args.timeout, on_output=self._happenings.put)

    @contextmanager
    def _hands_on(self, future: Future[Result]) -> Iterator[None]:
        """Ctrl+C goes to the command. If we cannot go on (a broken pipe), the command is ended and waited for."""
        shell, times = self.box.persistent, 0

        def pass_on(*_: object) -> None:
            nonlocal times
            times += 1
            self._portal.start_task_soon(shell.interrupt if times == 1 else shell.kill)

        before = signal.signal(signal.SIGINT, pass_on)
        try:
            yield
        except BaseException:
            self._portal.start_task_soon(shell.kill)
            while self._happenings.get() is not None:
                pass
            raise
        finally:
            signal.signal(signal.SIGINT, before)

    def _print(self, output: Output, screens: dict[str, render.Screen]) -> None:
        screen = screens.get(output.stream)
        self._put(_FDS[output.stream], screen.feed(output.data) if screen else output.data)

    def _put(self, fd: int, data: bytes) -> None:
        view = memoryview(data)
        while view:
            self._line_open = view[-1] != ord("\n")
            view = view[os.write(fd, view) :]

    def _concluded(self, result: Result) -> None:
        self._status = result.exit_code
        # A shell that ended by itself was told to: `exit 3`, or `set -e` and a failure.
        self._over = (result.cause == "exited" and self.box.persistent.ended) or not self.box.is_open
        if what := ci.mishap(result, self._args):
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
        self._happenings.put((verdict, answer))
        return await to_thread.run_sync(answer.result)

    def _answer(self, verdict: Verdict, answer: Future[bool]) -> None:
        """y: this once; always: whatever has the same effects, as long as this session lives."""
        console.note("this needs your approval")
        sys.stderr.write(f"{render.safe(verdict.explain())}\n")
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            said = input("run it? [y]es / [n]o / [a]lways: ").strip().lower()
        except (EOFError, KeyboardInterrupt):
            said = "no"
        finally:
            signal.signal(signal.SIGINT, before)
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
