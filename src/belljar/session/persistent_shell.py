"""The persistent shell: one bash per session whose directory, variables, functions, options and jobs hold.

A bash that ended (exit, exec, kill, a timeout, Ctrl+C, a cancelled call) is replaced by the next call, with the
directory and the exported variables of the last report; the result says so. All else that was known of the old one goes
with it: what a cancelled call printed, and the functions that the next command would otherwise be judged with.
"""

from __future__ import annotations

import contextlib
import shlex
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import anyio

from belljar.awaiting import all_pending
from belljar.errors import SandboxLost, UsageError
from belljar.layout import WORKSPACE
from belljar.link import frames
from belljar.link.remote_command import PATIENCE
from belljar.patience import stretched
from belljar.records import record
from belljar.session import options as checks
from belljar.session.bash_channel import Bash, BashState, Phase, Report
from belljar.session.capture import Listener
from belljar.session.conclusion import Conclusion, cause_of
from belljar.session.result import LOST_STATUS, Capture, Cause, Output, Result, Stream
from belljar.session.running_command import GRACE, LAST_WORDS, SAFETY_NET
from belljar.session.shell_judging import ShellJudge

if TYPE_CHECKING:
    from belljar.policy import Verdict
    from belljar.session.ledger import Entry
    from belljar.session.session import Session

INTERRUPT_SECONDS = 2.0  # how long a command may think about Ctrl+C before it is ended
ANSWER_SECONDS = 2.0  # how long an idle shell may take to report its variables
FILLS_NO_MEMORY = 0.005  # seconds; nothing runs out of memory in less, so a quick success is not looked into


@record
class ShellResult(Result):
    """One call's result. Its memory is that of the largest process seen in it: one that lived for less than a few
    hundredths of a second may not have been."""

    restarted: bool = False
    """The shell had to be replaced: directory and exported variables hold, functions, options and jobs are gone."""
    shell_ended: bool = False
    """It was this very call that ended it; the next one starts the new one."""
    cwd: str = WORKSPACE


@dataclass
class _Turn:
    """One call, while it runs."""

    conclusion: Conclusion
    verdict: Verdict
    entry: Entry | None = None
    clock: float = field(default_factory=time.monotonic)
    interrupted: bool = False


@all_pending("box.persistent")
class PersistentShell:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._bash: Bash | None = None
        self._bash_state: BashState | None = None
        self._shell_judge = ShellJudge(session)
        self._replaced = False
        """It ended between calls, or with one that was cancelled: the next result says so."""
        self._lock = anyio.Lock(fast_acquire=True)
        self._turn: _Turn | None = None
        self._listener = Listener(None)
        self._order = 0
        self._captures = self._fresh()
        self._terminal: Mapping[str, str] | None = None
        self._size = (24, 80)
        self._first = ""
        """Text that goes ahead of the next command."""

    @property
    def cwd(self) -> str:
        """The shell's directory after the last call."""
        return self._bash_state.cwd if self._bash_state else WORKSPACE

    @property
    def environment(self) -> dict[str, str] | None:
        """The exported variables; None before the first report."""
        return self._bash_state.variables if self._bash_state and self._bash_state.exports else None

    @property
    def ended(self) -> bool:
        """The last call ended the shell itself; the next one starts a new one."""
        return self._bash is None or self._bash.execution.over

    async def run(
        self,
        command: str,
        *,
        timeout: float | None = None,
        grace: float = GRACE,
        on_output: Callable[[Output], None] | None = None,
    ) -> ShellResult:
        """One command in the shell. Calls take turns; what a job printed since the last one comes first.

        await box.persistent.run("cd src"); await box.persistent.run("make")
        """
        if not isinstance(command, str):
            raise UsageError("the persistent shell runs text; a list of arguments is for Session.run")
        checks.check_command(command)
        checks.check({"timeout": timeout, "grace": grace, "on_output": on_output}, "persistent.run")
        _ = self._session._aftermath  # open, and in this loop
        async with self._lock:
            verdict = await self._judge(command)
            self._listener = listener = Listener(on_output)
            try:
                self._repeat_pending()
                while (result := await self._call(verdict, timeout, grace)) is None:
                    verdict = await self._judge(command)  # again, with the variables as they are now
                if listener.failure is not None:
                    self._replaced = result.restarted  # which the caller does not get to see
                    raise listener.failure
                return result
            finally:
                self._listener = Listener(None)

    async def _call(self, verdict: Verdict, timeout: float | None, grace: float) -> ShellResult | None:
        """None when nothing ran, because the verdict was about another shell than there is now: one with variables that
        the last call changed meanwhile, or one that has just ended."""
        if self._retire():
            return None
        conclusion = Conclusion.begun(self._session, verdict)
        bash = self._begin()
        self._turn = turn = _Turn(conclusion, verdict)
        try:
            return await self._take_turn(bash, turn, timeout, grace)
        finally:
            self._turn = None
            if turn.entry is not None:
                turn.entry.end("killed", None, time.monotonic() - turn.clock)  # if nothing better was said before

    def interrupt(self) -> None:
        """Ctrl+C for the running call, which is killed if that does not end it: `box.persistent.interrupt()`."""
        if self._turn is not None and self._bash is not None and not self._bash.execution.over:
            self._turn.interrupted = True
            self._bash.execution.signal(signal.SIGINT)
            self._bash.execution.deadline(INTERRUPT_SECONDS, GRACE)

    # On a terminal, for a person.

    def use_terminal(self, env: Mapping[str, str]) -> None:
        """What runs from now on has a terminal: one stream of output, keys as input, job control. Ctrl+C is a key."""
        self._terminal = env
        self._begin()

    async def write(self, keys: bytes) -> None:
        if self._bash is not None and self._terminal is not None:
            await self._bash.execution.input(keys)

    def resize(self, rows: int, cols: int) -> None:
        self._size = rows, cols
        if self._bash is not None and not self._bash.execution.over:
            self._bash.execution.resize(rows, cols)

    def workspace_moved(self) -> None:
        """The directory it stands in was mounted anew: it enters it again before the next command."""
        self._first += 'builtin cd -- "$PWD"\n' if self._bash is not None else ""

    def export(self, variables: Mapping[str, str]) -> None:
        """The session's have grown: a shell that runs already learns them before the next command."""
        words = " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())
        self._first += f"builtin export {words}\n" if self._bash is not None else ""

    def kill(self) -> None:
        """End the shell and all it runs; the next call starts a new one: `box.persistent.kill()`."""
        if self._bash is not None and not self._bash.execution.over:
            self._bash.execution.kill()

    async def restart(self) -> None:
        """End the shell and forget its directory and variables: `await box.persistent.restart()`."""
        self.kill()
        async with self._lock:
            bash = self._bash
            self.kill()  # also one that a call began which was waiting already
            self._drop()
            self._bash_state, self._replaced = None, False
            if bash is not None:
                await self._bury(bash)

    async def settle(self) -> None:
        """Bring `cwd` and `environment` up to date; while a call runs they are those that it began with.

        await box.persistent.settle()
        """
        if self._bash is None or self._bash.execution.over or self._lock.locked():
            return
        async with self._lock:
            if (bash := self._bash) is None:
                return
            try:
                await self._settle(bash)
                self._learn()
            finally:
                if bash.half_told:
                    await self._abandon(bash)

    async def _settle(self, bash: Bash) -> None:
        with contextlib.suppress(SandboxLost), anyio.move_on_after(stretched(ANSWER_SECONDS)):
            await bash.settle()

    def _learn(self) -> None:
        if self._bash is not None:
            self._bash_state = self._bash.state or self._bash_state

    def _drop(self) -> None:
        self._learn()
        self._bash = None
        self._shell_judge.forget()

    def _retire(self) -> bool:
        """Whether there was a shell that takes no more text."""
        if self._bash is None or not (self._bash.closed or self._bash.execution.over):
            return False
        self._replaced |= not self._bash.closed  # which was told when it was
        self.kill()  # a shell that cannot print is of no use
        self._drop()
        return True

    async def _judge(self, command: str) -> Verdict:
        self._retire()
        if self._bash is not None and self._bash.phase is Phase.IDLE:
            self._shell_judge.unsure |= not await self._bash.is_idle()
        self._learn()
        return await self._shell_judge.admit(command, self._bash_state)

    def _begin(self) -> Bash:
        self._retire()
        if self._bash is None:
            session = self._session
            terminal = self._terminal is not None
            env = {**session.env, **(self._terminal or {})}
            self._bash = Bash(session.sandbox.link, env, self._bash_state, self._take, terminal=terminal)
            session._aftermath.new_oom_kills()  # what was killed before is not this one's
            if terminal:
                self._bash.execution.resize(*self._size)
        return self._bash

    async def _take_turn(self, bash: Bash, turn: _Turn, timeout: float | None, grace: float) -> ShellResult | None:
        first, self._first = self._first, ""
        try:
            report = await self._exchange(bash, turn, first, timeout, grace)
            if report is None and bash.refused and not bash.execution.over:
                if turn.entry is not None:
                    turn.entry.end("refused")
                self._first = first + self._first
                return None
            if report is None:
                body = await bash.execution.ended()
                await self._session._aftermath.look()
                return self._ended(bash, turn, body)
            if timeout is not None or turn.interrupted:
                spare = 0.0 if timeout is None or turn.interrupted else timeout - (time.monotonic() - turn.clock)
                bash.disarm(spare)
            return await self._reported(bash, turn, report)
        except SandboxLost as lost:
            return self._result(turn, "sandbox_lost", LOST_STATUS, None, _lost=str(lost))
        except BaseException:
            await self._abandon(bash)
            raise
        finally:
            bash.usage.stop()

    async def _exchange(
        self, bash: Bash, turn: _Turn, first: str, timeout: float | None, grace: float
    ) -> Report | None:
        await bash.tell(first + turn.verdict.canonical, self._bash_state, timeout, grace)
        turn.entry = self._session._ledger.start(turn.verdict, self.cwd)
        bash.usage.begin()
        if timeout is None:
            return await bash.answer()
        with anyio.move_on_after(timeout + grace + stretched(SAFETY_NET)):
            return await bash.answer()
        await self._session.sandbox.link.ping()  # what came while our own loop stood still is heard before this
        with anyio.move_on_after(PATIENCE):
            return await bash.answer()
        self._session.sandbox.link.close("its init missed a deadline")
        return None

    async def _abandon(self, bash: Bash) -> None:
        """Of a call that was cancelled nobody waits for the result: what it printed is not the next one's."""
        self._drop()
        self._replaced = True
        with contextlib.suppress(SandboxLost):
            bash.execution.kill()
        await self._bury(bash)

    async def _bury(self, bash: Bash) -> None:
        """Nothing more is heard of it, and what was is forgotten."""
        bash.execution.on_output = None
        self._captures = self._fresh()
        with contextlib.suppress(SandboxLost), anyio.move_on_after(stretched(LAST_WORDS), shield=True):
            await bash.execution.ended()

    async def _reported(self, bash: Bash, turn: _Turn, report: Report) -> ShellResult:
        used = bash.usage.end(await bash.look())
        await self._session._aftermath.look()
        if report.closed:  # the next call ends it, and would not hear what it has yet to say of its variables
            await self._settle(bash)
        self._learn()
        self._shell_judge.learn(turn.verdict)
        slow = time.monotonic() - turn.clock > FILLS_NO_MEMORY
        oom_kills = self._session._aftermath.new_oom_kills() if report.status or slow else 0
        cause: Cause = "out_of_memory" if oom_kills and report.status == 128 + signal.SIGKILL else "exited"
        if turn.interrupted:
            cause = "interrupted"
        return self._result(turn, cause, report.status, None, shell_ended=report.closed, oom_kills=oom_kills, **used)

    def _ended(self, bash: Bash, turn: _Turn, body: frames.EndedBody) -> ShellResult:
        self._drop()
        cause: Cause = "interrupted" if turn.interrupted else cause_of(body)
        status = 128 + signal.SIGINT if turn.interrupted else body.exit_code
        return self._result(turn, cause, status, body, shell_ended=True, **bash.usage.ended(body))

    def _result(
        self, turn: _Turn, cause: Cause, status: int, body: frames.EndedBody | None, *, shell_ended: bool = False,
        **more: Any,
    ) -> ShellResult:  # fmt: skip
        captures, self._captures = self._captures, self._fresh()
        more |= {"cwd": self.cwd, "shell_ended": shell_ended, "restarted": self._replaced or shell_ended}
        self._replaced = False
        result = turn.conclusion.of(ShellResult, captures, cause, status, time.monotonic() - turn.clock, body, **more)
        if turn.entry is not None:
            turn.entry.concluded(result)
        return result

    # Output.

    def _fresh(self) -> tuple[Capture, Capture]:
        return Capture("stdout", self._session.limits.output), Capture("stderr", self._session.limits.output)

    def _take(self, stream: int, data: bytes) -> None:
        self._order += 1
        capture = self._captures[stream == frames.STDERR]
        capture.add(self._order, data)
        self._tell(capture.stream, data)

    def _tell(self, stream: Stream, data: bytes) -> None:
        if not self._listener.tell(stream, data):
            self.kill()

    def _repeat_pending(self) -> None:
        for piece in sorted((p for c in self._captures for p in (*c.head, *c.tail)), key=lambda p: p.order):
            self._tell(piece.stream, bytes(piece.data))
