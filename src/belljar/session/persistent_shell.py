"""The persistent shell: one bash per session whose directory, variables, functions, options and jobs hold.

A bash that ended (exit, exec, kill, a timeout, Ctrl+C) is replaced by the next call, with the directory and the
exported variables of the last report; the result says so.
"""

from __future__ import annotations

import contextlib
import shlex
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import anyio

from belljar.awaiting import all_pending
from belljar.errors import SandboxLost, UsageError
from belljar.layout import WORKSPACE
from belljar.link import frames
from belljar.link.remote_command import PATIENCE
from belljar.patience import stretched
from belljar.policy.marks import UNKNOWN
from belljar.policy.shellstate import ShellState
from belljar.policy.verdict import DECISIONS
from belljar.records import record
from belljar.session import options as checks
from belljar.session.bash_channel import Bash, BashState, Phase, Report
from belljar.session.capture import Listener
from belljar.session.conclusion import Conclusion, cause_of
from belljar.session.judging import judged
from belljar.session.result import LOST_STATUS, Capture, Cause, Output, Result, Stream
from belljar.session.shell_usage import ShellUsage

if TYPE_CHECKING:
    from belljar.policy import Policy, Verdict
    from belljar.session.ledger import Entry
    from belljar.session.session import Session

GRACE = 2.0
INTERRUPT_SECONDS = 2.0  # how long a command may think about Ctrl+C before it is ended
SAFETY_NET = 15.0  # the init enforces the deadline; past this much more, the host no longer believes it
REMEMBERED = 64  # verdicts
ANSWER_SECONDS = 2.0  # how long an idle shell may take to report its variables
LAST_WORDS = 3.0  # how long a cancelled shell's death is waited for
FILLS_NO_MEMORY = 0.005  # seconds; nothing runs out of memory in less, so a quick success is not looked into
IN_THE_SHELL = frozenset({"source", ".", "eval", "trap"})
"""What runs text in the shell's own process."""


@record
class ShellResult(Result):
    """One call's result. Its memory is that of the largest process seen in it: one that lived for less than a few
    hundredths of a second may not have been."""

    restarted: bool = False
    """The shell had to be replaced: directory and exported variables hold, functions, options and jobs are gone."""
    cwd: str = WORKSPACE


@dataclass
class _Turn:
    """One call, while it runs."""

    conclusion: Conclusion
    verdict: Verdict
    restarted: bool
    entry: Entry | None = None
    clock: float = field(default_factory=time.monotonic)
    interrupted: bool = False


@all_pending("box.persistent")
class PersistentShell:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._bash: Bash | None = None
        self._bash_state: BashState | None = None
        self._known: ShellState | None = None
        """What the policy knows of the shell from the commands it judged."""
        self._unsure = False
        """Text that nobody read ran in the shell itself: it may be elsewhere when the next one runs."""
        self._usage: ShellUsage | None = None
        self._merged: tuple[ShellState | None, BashState | None, ShellState] | None = None
        self._judged: dict[str, tuple[ShellState, Policy, Verdict]] = {}
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
        _ = self._session.aftermath  # open, and in this loop
        async with self._lock:
            verdict = await self._judge(command)
            self._listener = listener = Listener(on_output)
            try:
                self._repeat_pending()
                while (result := await self._call(verdict, timeout, grace)) is None:
                    verdict = await self._judge(command)  # again, with the variables as they are now
                if listener.failure is not None:
                    raise listener.failure
                return result
            finally:
                self._listener = Listener(None)

    async def _call(self, verdict: Verdict, timeout: float | None, grace: float) -> ShellResult | None:
        """None when nothing ran, because the last call changed variables that the verdict did not know of yet."""
        session = self._session
        aftermath = session.aftermath
        before = aftermath.before(session.busy)
        restarted = self._bash is not None and self._bash.execution.over
        bash = self._begin()
        conclusion = Conclusion(
            session.surroundings, time.time(), verdict, runs_later=lambda: aftermath.since(before),
            visits=session.visits_since, listening=session.new_listening,
        )  # fmt: skip
        self._turn = turn = _Turn(conclusion, verdict, restarted)
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
        bash = self._bash
        self.kill()
        async with self._lock:
            if bash is not None:
                with contextlib.suppress(SandboxLost), anyio.move_on_after(LAST_WORDS):
                    await bash.execution.ended()
            self._bash = self._bash_state = self._known = None

    async def settle(self) -> None:
        """Bring `cwd` and `environment` up to date; while a call runs they are those that it began with.

        await box.persistent.settle()
        """
        if self._bash is None or self._bash.execution.over or self._lock.locked():
            return
        async with self._lock:
            with contextlib.suppress(SandboxLost), anyio.move_on_after(stretched(ANSWER_SECONDS)):
                await self._bash.settle()
            self._learn()

    def _learn(self) -> None:
        if self._bash is not None:
            self._bash_state = self._bash.state or self._bash_state

    def _drop(self) -> None:
        self._learn()
        self._bash = None

    async def _judge(self, command: str) -> Verdict:
        """Judged where the shell is, with its variables and with the functions and aliases of earlier calls."""
        if self._bash is not None and self._bash.phase is Phase.IDLE and not self._bash.execution.over:
            self._unsure |= not await self._bash.is_idle()
        self._learn()
        now = self._now()
        recalled = self._known_verdict(command, now)
        if recalled is None and self._unsure and await self._depends_on_place(command, now):
            now = replace(now, cwd=UNKNOWN)
        verdict = await self._session.judge.admit(command, shell_state=now, known=recalled)
        if len(self._judged) >= REMEMBERED:
            self._judged.clear()
        self._judged[command] = now, self._session.policy, verdict
        return verdict

    async def _depends_on_place(self, command: str, now: ShellState) -> bool:
        """Whether it is allowed where the shell seems to be, but not where it would do the most harm."""
        policy = self._session.policy
        here = await judged(policy, command, shell_state=now)
        there = await judged(policy, command, shell_state=replace(now, cwd=WORKSPACE))
        return DECISIONS.index(there.decision) > DECISIONS.index(here.decision)

    def _now(self) -> ShellState:
        """What is known of the shell's state; the same object as long as nothing changes."""
        if self._merged is None or self._merged[0] is not self._known or self._merged[1] is not self._bash_state:
            known = self._known or ShellState.fresh(self.cwd, self._session.env)
            now = replace(known, cwd=self.cwd, env=known.env | (self.environment or {}))
            self._merged = self._known, self._bash_state, now
        return self._merged[2]

    def _known_verdict(self, command: str, now: ShellState) -> Verdict | None:
        """The verdict on the same command in the same state: agents say the same thing again and again."""
        state, policy, verdict = self._judged.get(command, (None, None, None))
        return verdict if (state is now or state == now) and policy is self._session.policy else None

    def _begin(self) -> Bash:
        if self._bash is not None and self._bash.closed:  # a shell that cannot print is of no use
            self.kill()
            self._drop()
        if self._bash is None or self._bash.execution.over:
            self._drop()
            session, self._known, self._unsure = self._session, None, False
            terminal = self._terminal is not None
            env = {**session.env, **(self._terminal or {})}
            self._bash = Bash(session.sandbox.link, env, self._bash_state, self._take, terminal=terminal)
            self._usage = ShellUsage(self._bash)
            if terminal:
                self._bash.execution.resize(*self._size)
        return self._bash

    async def _take_turn(self, bash: Bash, turn: _Turn, timeout: float | None, grace: float) -> ShellResult | None:
        try:
            report = await self._exchange(bash, turn, timeout, grace)
            if report is None and bash.refused and not bash.execution.over:
                if turn.entry is not None:
                    turn.entry.end("refused")
                return None
            if report is None:
                body = await bash.execution.ended()
                await self._session.aftermath.look()
                return self._ended(turn, body)
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
            if self._usage is not None:
                self._usage.stop()

    async def _exchange(self, bash: Bash, turn: _Turn, timeout: float | None, grace: float) -> Report | None:
        first, self._first = self._first, ""
        await bash.tell(first + turn.verdict.canonical, self._bash_state, timeout, grace)
        turn.entry = self._session.ledger.start(turn.verdict, self.cwd)
        if self._usage is not None:
            self._usage.begin()
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
        self._drop()
        with contextlib.suppress(SandboxLost), anyio.move_on_after(stretched(LAST_WORDS), shield=True):
            bash.execution.kill()
            await bash.execution.ended()

    async def _reported(self, bash: Bash, turn: _Turn, report: Report) -> ShellResult:
        used = self._usage.end(await bash.look()) if self._usage is not None else {}
        await self._session.aftermath.look()
        self._learn()
        self._known = turn.verdict.state_after
        self._unsure |= _ran_unread_text(turn.verdict)
        restarted = turn.restarted or report.closed
        slow = time.monotonic() - turn.clock > FILLS_NO_MEMORY
        oom_kills = self._session.aftermath.new_oom_kills() if report.status or slow else 0
        cause: Cause = "out_of_memory" if oom_kills and report.status == 128 + signal.SIGKILL else "exited"
        if turn.interrupted:
            cause = "interrupted"
        return self._result(turn, cause, report.status, None, restarted=restarted, oom_kills=oom_kills, **used)

    def _ended(self, turn: _Turn, body: frames.EndedBody) -> ShellResult:
        self._drop()
        cause: Cause = "interrupted" if turn.interrupted else cause_of(body)
        status = 128 + signal.SIGINT if turn.interrupted else body.exit_code
        used = self._usage.ended(body) if self._usage is not None else {}
        return self._result(turn, cause, status, body, restarted=True, **used)

    def _result(
        self, turn: _Turn, cause: Cause, status: int, body: frames.EndedBody | None, **more: Any
    ) -> ShellResult:
        captures, self._captures = self._captures, self._fresh()
        duration = time.monotonic() - turn.clock
        result = turn.conclusion.of(ShellResult, captures, cause, status, duration, body, cwd=self.cwd, **more)
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


def _ran_unread_text(verdict: Verdict) -> bool:
    return any(effect.kind.startswith("exec.") and effect.program in IN_THE_SHELL for effect in verdict.effects)
