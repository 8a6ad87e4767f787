"""A persistent shell: one bash that keeps its directory, variables, functions, options and jobs. A session has one, and
more by name.

When the bash has ended (exit, exec, kill, a timeout, Ctrl+C, a cancelled call), the next call starts a new one with the
directory and the exported variables of the last report, and its result says so. Everything else is forgotten: the
output of a cancelled call, and the functions that the next command would otherwise be judged with.
"""

from __future__ import annotations

import contextlib
import shlex
import signal
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import anyio

from belljar.errors import SandboxLost, UsageError
from belljar.layout import WORKSPACE
from belljar.link import frames
from belljar.link.remote_process import PATIENCE
from belljar.patience import stretched
from belljar.records import record
from belljar.session.bash_channel import Bash, BashState, Report
from belljar.session.options import check_values
from belljar.session.output import (
    NOBODY,
    Captures,
    Listener,
    Output,
    Stream,
    captures,
    in_order,
)
from belljar.session.result import LOST_STATUS, Cause, Result, cause_of
from belljar.session.running_command import GRACE, LAST_WORDS, SAFETY_NET
from belljar.session.shell_judging import ShellJudge

if TYPE_CHECKING:
    from belljar.policy import Verdict
    from belljar.session.commands import Commands
    from belljar.session.ledger import CommandRecord

INTERRUPT_SECONDS = 2.0  # a command that has not ended so long after Ctrl+C is killed
REPORT_SECONDS = 2.0  # how long a new shell may take to report its state
FILLS_NO_MEMORY = 0.005  # seconds; nothing runs out of memory in less, so a quick success is not checked for it


@record
class ShellResult(Result):
    """The result of one call. `peak_memory` is sampled: a process that lived only a few hundredths of a second may be
    missing from it."""

    restarted: bool = False
    """The shell was replaced: its directory and exported variables were kept; functions, options and jobs are gone."""
    shell_ended: bool = False
    """This call ended the shell; the next one starts a new one."""
    cwd: str = WORKSPACE


@dataclass
class _Turn:
    """A call that is running."""

    verdict: Verdict
    record: CommandRecord
    begun: float = field(default_factory=time.monotonic)
    interrupted: bool = False


SavedState = dict[str, str]
Save = Callable[[SavedState], Awaitable[None]]


class PersistentShell:
    def __init__(
        self,
        commands: Commands,
        saved: SavedState | None = None,
        save: Save | None = None,
    ) -> None:
        """`saved`: the state of a shell that another process had, to go on with; `save` is called with each new one."""
        self._commands = commands
        self._inside = commands.inside
        self._inside.lasting.add(self)
        self._bash: Bash | None = None
        self._bash_state = BashState(**saved) if saved else None
        self._save = save
        self._saved = saved
        self._shell_judge = ShellJudge(commands.judge, self._inside)
        self._replaced = saved is not None
        """The shell ended between calls or with a cancelled one: the next result says so."""
        self._lock = anyio.Lock(fast_acquire=True)
        self._turn: _Turn | None = None
        self._listener = NOBODY
        self._order = 0
        self._output = self._new_output()
        self._terminal: Mapping[str, str] | None = None
        self._size = (24, 80)
        self._env: Mapping[str, str] = {}
        self._mount = 0
        """What the running bash knows of the session's variables, and in which of its mounts it stands."""

    @property
    def cwd(self) -> str:
        """The shell's directory after the last call."""
        return self._bash_state.cwd if self._bash_state else WORKSPACE

    @property
    def environment(self) -> dict[str, str] | None:
        """The exported variables; None before the first report."""
        return (
            self._bash_state.variables
            if self._bash_state and self._bash_state.exports
            else None
        )

    @property
    def ended(self) -> bool:
        """Whether no shell runs; the next call starts one."""
        return self._bash is None or self._bash.process.over

    async def run(
        self,
        command: str,
        *,
        timeout: float | None = None,
        grace: float = GRACE,
        on_output: Callable[[Output], None] | None = None,
    ) -> ShellResult:
        """Run a command in the shell. Calls take turns. Output of jobs since the last call comes first in the result.

        await box.persistent.run("cd src"); await box.persistent.run("make")
        """
        if not isinstance(command, str):
            raise UsageError(
                "the persistent shell runs text; a list of arguments is for Session.run"
            )
        check_values({"timeout": timeout, "grace": grace, "on_output": on_output})
        self._inside.link.check_loop()
        timeout = self._inside.within(timeout)
        async with self._lock:
            verdict = await self._judge(command)
            self._listener = listener = Listener(on_output)
            try:
                if on_output is not None:
                    self._repeat_pending()
                await self._inside.ready()
                while self._retire():  # the shell ended while its command was judged: judge again, for a new one
                    verdict = await self._judge(command)
                    await self._inside.ready()
                result = await self._call(verdict, timeout, grace)
                await self._save_state()
                if listener.failure is not None:
                    self._replaced = (
                        result.restarted
                    )  # the caller does not see this result
                    raise listener.failure
                return result
            finally:
                self._listener = NOBODY

    async def _call(
        self, verdict: Verdict, timeout: float | None, grace: float
    ) -> ShellResult:
        record = self._commands.new_record(verdict)
        bash = self._begin()
        self._turn = turn = _Turn(verdict, record)
        self._inside.calls += 1
        try:
            report = await self._exchange(bash, turn, timeout, grace)
            if report is None:
                return await self._ended(bash, turn)
            if turn.interrupted:
                bash.disarm(0.0)
            elif timeout is not None:
                bash.disarm(timeout - (time.monotonic() - turn.begun))
            return await self._reported(bash, turn, report)
        except SandboxLost as lost:
            return self._result(
                turn, "sandbox_lost", LOST_STATUS, None, _lost=str(lost)
            )
        except BaseException:
            await self._abandon(bash)
            raise
        finally:
            bash.usage.stop()
            self._turn = None
            self._inside.calls -= 1
            record.end(
                "killed", None, time.monotonic() - turn.begun
            )  # unless its end is recorded already

    def interrupt(self) -> None:
        """Send Ctrl+C to the running call, and kill it if that does not end it: `box.persistent.interrupt()`."""
        if (
            self._turn is not None
            and self._bash is not None
            and not self._bash.process.over
        ):
            self._turn.interrupted = True
            self._bash.process.signal(signal.SIGINT)
            self._bash.process.deadline(INTERRUPT_SECONDS, GRACE)

    # On a terminal, for a person.

    def use_terminal(self, env: Mapping[str, str]) -> None:
        """Give the shell a terminal: one stream of output, keys as input, job control. Ctrl+C is a key."""
        self._terminal = env
        self._begin()

    async def write(self, keys: bytes) -> None:
        if self._bash is not None and self._terminal is not None:
            await self._bash.process.input(keys)

    def resize(self, rows: int, cols: int) -> None:
        self._size = rows, cols
        if self._bash is not None and not self._bash.process.over:
            self._bash.process.resize(rows, cols)

    def kill(self) -> None:
        """End the shell and all it runs; the next call starts a new one: `box.persistent.kill()`."""
        if self._bash is not None and not self._bash.process.over:
            self._bash.process.kill()

    async def restart(self) -> None:
        """End the shell and forget its directory and variables: `await box.persistent.restart()`."""
        self.kill()
        async with self._lock:
            bash = self._bash
            self.kill()  # also a shell that was started by a call that waited for the lock before this one
            self._drop()
            self._bash_state = None
            self._replaced = False
            await self._save_state()
            if bash is not None:
                await self._forget_output(bash)

    async def settle(self) -> None:
        """Wait until a new shell has reported `cwd` and `environment`; while a call runs they are those it began with.

        await box.persistent.settle()
        """
        if self._bash is None or self._bash.process.over or self._lock.locked():
            return
        async with self._lock:
            if (bash := self._bash) is None:
                return
            try:
                with (
                    contextlib.suppress(SandboxLost),
                    self._inside.link.within(stretched(REPORT_SECONDS)),
                ):
                    await bash.settle()
                self._learn()
            finally:
                if bash.is_cut_off:
                    await self._abandon(bash)

    def _learn(self) -> None:
        if self._bash is not None:
            self._bash_state = self._bash.state or self._bash_state

    @property
    def state(self) -> SavedState:
        """Its directory and exported variables after the last call."""
        state = self._bash_state or BashState()
        return {"cwd": state.cwd, "exports": state.exports}

    async def _save_state(self) -> None:
        if self._save is not None and self._saved != (now := self.state):
            self._saved = now
            await self._save(now)

    def _drop(self) -> None:
        self._learn()
        self._bash = None
        self._shell_judge.forget()

    def _retire(self) -> bool:
        """Drop a shell that can run nothing more; whether there was one."""
        if self._bash is None or not (self._bash.closed or self._bash.process.over):
            return False
        self._replaced |= (
            not self._bash.closed
        )  # the call that closed it has reported it
        self.kill()  # a shell whose output is closed is useless
        self._drop()
        return True

    async def _judge(self, command: str) -> Verdict:
        self._retire()
        if self._bash is not None and self._bash.state is not None:
            self._shell_judge.unsure |= not await self._bash.is_idle()
        self._learn()
        return await self._shell_judge.admit(command, self._bash_state)

    def _begin(self) -> Bash:
        self._retire()
        if self._bash is None:
            terminal = self._terminal is not None
            self._env = self._inside.env
            self._mount = self._inside.mounts
            env = {**self._env, **(self._terminal or {})}
            self._bash = Bash(
                self._inside.link, env, self._bash_state, self._take, terminal=terminal
            )
            self._inside.aftermath.new_oom_kills()  # earlier kills do not count for this shell
            if terminal:
                self._bash.process.resize(*self._size)
        return self._bash

    async def _exchange(
        self, bash: Bash, turn: _Turn, timeout: float | None, grace: float
    ) -> Report | None:
        await bash.begin(self._news() + turn.verdict.canonical, timeout, grace)
        turn.record.start(self.cwd)
        bash.usage.begin()
        if timeout is None:
            return await bash.answer()
        link = self._inside.link
        with link.within(timeout + grace + stretched(SAFETY_NET)):
            return await bash.answer()
        # Our own event loop may have stood still: whatever had arrived by then is handled before the reply to this.
        await link.ping()
        with link.within(PATIENCE):
            return await bash.answer()
        link.close("its init missed a deadline")
        return None

    def _news(self) -> str:
        """Text that tells a bash that runs already what has changed in the session: variables, and the mount."""
        inside, text = self._inside, ""
        words = [
            f"{name}={shlex.quote(value)}"
            for name, value in inside.env.items()
            if self._env.get(name) != value
        ]
        if words:
            text += f"builtin export {' '.join(words)}\n"
        if self._mount != inside.mounts:
            text += 'builtin cd -- "$PWD"\n'
        self._env = inside.env
        self._mount = inside.mounts
        return text

    async def _abandon(self, bash: Bash) -> None:
        """After a cancelled call: kill the shell, so that nothing of the call reaches the next one."""
        self._drop()
        self._replaced = True
        with contextlib.suppress(SandboxLost):
            bash.process.kill()
        await self._forget_output(bash)

    async def _forget_output(self, bash: Bash) -> None:
        """Forget the output of a killed shell, and wait for its end."""
        bash.process.on_output = None
        self._output = self._new_output()
        with (
            contextlib.suppress(SandboxLost),
            anyio.move_on_after(stretched(LAST_WORDS), shield=True),
        ):
            await bash.process.ended()

    async def _reported(self, bash: Bash, turn: _Turn, report: Report) -> ShellResult:
        used = bash.usage.end(await bash.look())
        await self._inside.aftermath.run_files.refresh()
        self._learn()
        self._shell_judge.learn(turn.verdict)
        slow = time.monotonic() - turn.begun > FILLS_NO_MEMORY
        oom_kills = (
            self._inside.aftermath.new_oom_kills() if report.status or slow else 0
        )
        cause: Cause = (
            "out_of_memory"
            if oom_kills and report.status == 128 + signal.SIGKILL
            else "exited"
        )
        if turn.interrupted:
            cause = "interrupted"
        return self._result(
            turn,
            cause,
            report.status,
            None,
            shell_ended=report.closed,
            oom_kills=oom_kills,
            **used,
        )

    async def _ended(self, bash: Bash, turn: _Turn) -> ShellResult:
        body = await bash.process.ended()
        await self._inside.aftermath.run_files.refresh()
        self._drop()
        cause: Cause = "interrupted" if turn.interrupted else cause_of(body)
        status = 128 + signal.SIGINT if turn.interrupted else body.exit_code
        return self._result(
            turn, cause, status, body, shell_ended=True, **bash.usage.ended(body)
        )

    def _result(
        self,
        turn: _Turn,
        cause: Cause,
        status: int,
        body: frames.EndedBody | None,
        *,
        shell_ended: bool = False,
        **more: Any,
    ) -> ShellResult:
        output, self._output = self._output, self._new_output()
        more |= {
            "cwd": self.cwd,
            "shell_ended": shell_ended,
            "restarted": self._replaced or shell_ended,
        }
        self._replaced = False
        return turn.record.result(
            ShellResult,
            output,
            cause,
            status,
            time.monotonic() - turn.begun,
            body,
            **more,
        )

    # Output.

    def _new_output(self) -> Captures:
        return captures(self._inside.options.limits.output)

    def _take(self, stream: int, data: bytes) -> None:
        self._order += 1
        capture = self._output[stream == frames.STDERR]
        capture.add(self._order, data)
        self._pass_on(capture.stream, data)

    def _pass_on(self, stream: Stream, data: bytes) -> None:
        if not self._listener.call(stream, data):
            self.kill()

    def _repeat_pending(self) -> None:
        """Give a new listener the output that came before its call."""
        for piece in in_order(self._output):
            self._pass_on(piece.stream, piece.data)
