"""One bash process that runs one text after another: the core of the persistent shell.

Theory of operation. The bash runs persistent_loop.bash. It has a private channel: it reads requests from descriptor 9
and reports on descriptor 8; both are closed for the commands it runs. A request is a text followed by a nonce, which
the loop reads only when the text has run. The report repeats the nonce, so neither the output of a command nor the
report of an earlier call can pass for it. The host handles a report only after all output that was written before it
(see remote_process.py).

    host → 9    length (8 digits) text      the exact length; 00000000 if the text is not ASCII: then it ends with NUL,
                nonce (16 digits)           since bash counts characters, not bytes
    host ← 8    s nonce status flags exports NUL        `exports`: the exported variables, if they changed

The loop writes the exported variables to a memfd first and reads them from there: bash writes its output line by line,
and on the channel each line would wake the host.

What can be trusted. Text that bash runs in its own process (`source`, `eval`) can do whatever the loop does, and a
program that it started can open the channel through /proc. So the directory is never taken from the report: the init
reads it from the kernel, and also whether bash really waits for its next text (`look`). The variables are only what
the shell claims, and a new bash gets no others. Any other message on the channel ends the shell.

The loop lives in the same shell as the commands, so it must survive what they do to it:
- It is parsed before any alias exists.
- A function can shadow a builtin, even `builtin` itself, but not a keyword, and in POSIX mode not `unset`.
- Its own steps are part of the `while` condition, where `set -e` does not apply, and in a function, where traps don't;
  their trace (`set -x`) is thrown away.
- The status of the last text is restored in the condition of an `if`, with one branch for each outcome, for the same
  reason.
- There are two nested loops, so a stray `break` leaves only one.
- It is one line, so bash's error messages count the lines of the command.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shlex
import time
from collections import deque
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from belljar.errors import BelljarError, SandboxLost, ShellNotFound
from belljar.layout import WORKSPACE
from belljar.link import frames
from belljar.link.frames import Flag
from belljar.patterns import lazy_pattern
from belljar.records import record

if TYPE_CHECKING:
    from asyncio import TimerHandle

    from belljar.link import frames
    from belljar.link.link import Link
    from belljar.link.remote_process import RemoteProcess

IDLE_SECONDS = 0.05  # how long after a call its deadline is taken away, unless another call comes first
OWN = ("PWD", "SHLVL", "_")  # every bash sets these itself
LATE_SECONDS = 2.0  # how long to wait for the last output of a terminal
LONGEST_MARK = 32
LONGEST_REPORT = 3 << 20  # bytes; the kernel passes a program fewer variables than this
MOST_VARIABLES = 4096  # bash compares each exported variable with every other, for every program that it starts
TOO_MANY = (
    b"belljar: the shell was ended: it had exported more than %d variables\n"
    % MOST_VARIABLES
)
STOPPED = (
    b"belljar: the shell was ended: a signal had stopped it, and nothing let it go on\n"
)
MOST_UNEXPECTED = 16  # unexpected messages on the channel; after more, something other than the loop writes to it
SETTLE_SECONDS = (
    2.0  # how long a shell may take from its report until it waits for its next text
)


def _sections() -> dict[str, str]:
    """The sections of persistent_loop.bash, each as one line."""
    text = Path(__file__).with_name("persistent_loop.bash").read_text()
    sections = {}
    for section in text.split("# [")[1:]:
        name, _, lines = section.partition("]")
        sections[name] = " ".join(
            line.strip() for line in lines.splitlines() if not line.startswith("#")
        )
    return sections


_PARTS = _sections()
LOOP = "__bj_t=;" + _PARTS["step"] + _PARTS["loop"]
_ARGV = (b"bash", b"--noprofile", b"--norc", b"-c", LOOP.encode(), b"bash")

# On a terminal, Ctrl+C makes an interactive bash drop the line it is running. So each line holds the whole loop, and
# there are many of them; when all are used up the shell ends and the next call starts another. Keys that no program
# read are discarded when a command ends. An escape sequence that terminals do not show marks the end of its output.
# `set -o vi` in the middle of a text would make an interactive bash read from the keyboard and crash. In a sourced file
# it does not, so such a text is sourced.
_LINES = (
    "builtin set +H +o history; builtin history -c; __bj_t=1;"
    + _PARTS["step"]
    + f"\n{_PARTS['terminal line']}" * 400
)
_TERMINAL_ARGV = (
    *_ARGV[:4],
    b'exec 7<&0; PS1= PS2= exec bash --noprofile --norc --noediting -i <<<"$1"',
    b"bash",
    _LINES.encode(),
)
_MARK = lazy_pattern(rb"\x1b\]777;([0-9a-f]{16})\x07")


@record
class Report:
    status: int
    closed: bool
    """The command closed the shell's own output."""


@record
class BashState:
    """The directory and variables that a text is judged with, and that a new bash starts with."""

    cwd: str = WORKSPACE
    exports: str = ""
    """As `export -p` prints them."""

    @cached_property
    def variables(self) -> dict[str, str]:
        return exported(self.exports)

    def restore(self) -> str:
        """Text that restores this state. It is built from parsed values, so it can do nothing but set variables."""
        lines = [f"builtin cd -- {shlex.quote(self.cwd)}"]
        lines += [
            f"builtin export {name}={shlex.quote(value)}"
            for name, value in self.variables.items()
            if name not in OWN
        ]
        return "{ " + "\n".join([*lines, "__bj_p="]) + "\n} >/dev/null 2>&1"


class Bash:
    """One bash process and its private channel."""

    def __init__(
        self,
        link: Link,
        env: Mapping[str, str],
        state: BashState | None,
        on_output: Callable[[int, bytes], None],
        *,
        terminal: bool = False,
    ) -> None:
        self.report: Report | None = None
        """Of the last text; None while it runs."""
        self.state: BashState | None = None
        self._cwd = state.cwd if state else WORKSPACE
        self._exports = ""
        self._control = bytearray()
        self._unexpected = 0
        self._waits = False
        """The kernel said that it waits for its next text."""
        self._has_deadline = False
        self._idle_timer: TimerHandle | None = None
        self._expected: deque[bytes] = deque()
        """The nonces of the reports to come."""
        self.is_cut_off = False
        """A request was only partly written: bash would take the next one for the rest of it."""
        self._last_nonce = b""
        """Of the last report."""
        self._news = asyncio.Event()
        self._on_output = on_output
        environment = {
            name.encode(): value.encode("utf-8", "surrogateescape")
            for name, value in env.items()
        }
        self._terminal = terminal
        self._tail = b""
        self._mark = b""
        argv, flags = (
            (_TERMINAL_ARGV, Flag.PTY | Flag.STDIN)
            if terminal
            else (_ARGV, Flag.DIRECT)
        )
        self.process = link.spawn(
            argv, flags=flags | Flag.CONTROL | Flag.DEFAULT_ENV, env=environment
        )
        self.process.on_output = self._take
        self.usage = ShellUsage(self.process, self._end_stopped)
        self.process.when_ended(lambda: self._news.set())
        self._unsent = self._new_nonce() + (
            self._request(state.restore()) if state else b""
        )

    def _new_nonce(self) -> bytes:
        nonce = os.urandom(8).hex().encode()
        self._expected.append(nonce)
        return nonce

    def _request(self, text: str) -> bytes:
        raw = text.encode("utf-8", "surrogateescape")
        counted = (
            b"%08d%b" % (len(raw), raw)
            if raw.isascii() and raw
            else b"00000000%b\0" % raw
        )
        return counted + self._new_nonce()

    async def _send(self, ahead: bytes = b"") -> None:
        data, self._unsent = self._unsent, b""
        self.is_cut_off = True
        await self.process.input(data, frames.CONTROL, ahead=ahead)
        self.is_cut_off = False

    async def begin(self, text: str, timeout: float | None, grace: float) -> None:
        """Have it run `text`; `answer` waits for the report."""
        self.report = None
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self._waits = False
        self._unsent += self._request(text)
        ahead = (
            self.process.deadline_frame(timeout, grace)
            if timeout or self._has_deadline
            else b""
        )
        self._has_deadline = timeout is not None
        await self._send(ahead)

    async def answer(self) -> Report | None:
        """The report on the text; None when the shell ended instead."""
        await self._until(lambda: not self._expected)
        if self._terminal and self.report is not None:
            with self.process.link.within(LATE_SECONDS):
                await self._until(lambda: self._mark == self._last_nonce)
        return self.report

    def disarm(self, spare: float) -> None:
        """Take the deadline away from an idle shell. If there is time, wait for the next call, which sets its own: each
        frame wakes the init."""
        if spare > 20 * IDLE_SECONDS:
            self._idle_timer = self.process.link.loop.call_later(
                IDLE_SECONDS, self.disarm, 0.0
            )
        elif not self.process.over:
            self._has_deadline = False
            with contextlib.suppress(SandboxLost):  # then there is no deadline either
                self.process.deadline(None, 0)

    @property
    def closed(self) -> bool:
        return self.report is not None and self.report.closed

    async def settle(self) -> None:
        """Wait until a shell that has just started has reported its state."""
        if self._unsent:
            await self._send()
        await self._until(lambda: not self._expected)

    async def look(self) -> frames.CommandState | None:
        """What the kernel says of the shell; None: it has ended. This is the only source of its directory."""
        try:
            kernel = await self.process.link.state(self.process.id)
        except ShellNotFound:
            return None
        self._waits = kernel.waits
        if kernel.cwd is not None:
            self._cwd = kernel.cwd
            self._note_state()
        return kernel

    async def is_idle(self) -> bool:
        """Whether it waits for its next text, according to the kernel and not to its report."""
        until = time.monotonic() + SETTLE_SECONDS
        while (
            not self._waits
            and (kernel := await self.look()) is not None
            and not kernel.waits
        ):
            if time.monotonic() > until:
                return False
            await anyio.sleep(0.001)
        return True

    def _note_state(self) -> None:
        """The object stays the same as long as nothing changes: verdicts are remembered by it."""
        now = BashState(self._cwd, self._exports)
        if self.state != now:
            self.state = now

    async def _until(self, done: Callable[[], bool]) -> None:
        while not done() and not self.process.over:
            self._news = asyncio.Event()
            await self._news.wait()

    def _take(self, stream: int, data: bytes) -> None:
        if stream != frames.CONTROL:
            if self._terminal:
                self._look_for_mark(data)
            return self._on_output(stream, data)
        self._control += data
        if 0 in data:
            *messages, rest = bytes(self._control).split(b"\0", MOST_UNEXPECTED + 2)
            self._control = bytearray(rest)
            self._unexpected += 0 if 0 not in rest else MOST_UNEXPECTED + 1
            for message in messages:
                self._handle(message)
        if len(self._control) > LONGEST_REPORT or self._unexpected > MOST_UNEXPECTED:
            self._end_unheard()
        return None

    def _end_stopped(self) -> None:
        self._on_output(frames.STDERR, STOPPED)
        self.process.kill()

    def _end_unheard(self) -> None:
        """Kill the shell and ignore what it still sends."""
        self._control.clear()
        self.process.on_output = None
        self.process.kill()

    def _look_for_mark(self, data: bytes) -> None:
        """A terminal's output may arrive after the report that followed it."""
        recent = self._tail + data
        for mark in _MARK.findall(recent):
            self._mark = mark
            self._news.set()
        self._tail = recent[-LONGEST_MARK:]

    def _handle(self, message: bytes) -> None:
        head, _, rest = message.partition(b" ")
        fields = _REPORT.fullmatch(rest)
        if not self._expected or head != b"s" + self._expected[0] or fields is None:
            self._unexpected += 1
            return
        self._last_nonce = self._expected.popleft()
        self._unexpected = 0
        status, flags, exports = fields.groups()
        if exports.count(b"\n") > MOST_VARIABLES:
            self._on_output(frames.STDERR, TOO_MANY)
            self._end_unheard()
        elif exports:
            self._exports = exports.decode("utf-8", "surrogateescape")
        if not self._expected:
            self.report = Report(int(status) & 0xFF, b"x" in flags)
            self._note_state()
        self._news.set()


_REPORT = lazy_pattern(rb"(\d{1,3}) (-x?) (.*)", re.DOTALL)
_EXPORT = lazy_pattern(
    r"""^(?:declare -\w*x\w*|export) (\w+)=(?:"([^"]*+)"|\$'([^']*+)')$""", re.MULTILINE
)
_HIDDEN = {"\\\\": "\0b", '\\"': "\0d", "\\'": "\0s"}
"""Escapes that could be mistaken for the end of a value, and stand-ins that no variable contains. An expression that
steps over escapes one by one would keep a hundred bytes for each."""
_ESCAPE = lazy_pattern(r"\\([0-7]{1,3}|.)", re.DOTALL)
_CONTROLS = dict(zip("abtnvfrE", "\a\b\t\n\v\f\r\x1b", strict=True))


def exported(text: str) -> dict[str, str]:
    """The variables in the output of `export -p`."""
    for escape, stand_in in _HIDDEN.items():
        text = text.replace(escape, stand_in)
    variables = {}
    for name, plain, quoted in _EXPORT.findall(text):
        value = quoted or plain
        for escape, stand_in in _HIDDEN.items():
            value = value.replace(stand_in, escape)
        variables[name] = (
            _ESCAPE.sub(_character, value)
            if quoted
            else re.sub(r'\\([$`"\\])', r"\1", value)
        )
    return variables


def _character(match: re.Match[str]) -> str:
    code = match[1]
    if code[0] not in "01234567":
        return _CONTROLS.get(code, code)
    byte = int(code, 8) & 0xFF
    return chr(
        byte if byte < 0x80 else 0xDC00 + byte
    )  # as `surrogateescape` decodes it


STOPPED_SAMPLES = 8  # in a row; until then something may let the shell go on
FIRST_SAMPLE, LAST_SAMPLE = (
    0.03,
    0.5,
)  # seconds between samples: short at first, for short commands


class ShellUsage:
    """Processor time and memory of each call. The init reports the shell's total processor time and its largest living
    process, so a long call is sampled while it runs. This also shows when a signal stopped the shell."""

    def __init__(self, process: RemoteProcess, end_stopped: Callable[[], None]) -> None:
        """`end_stopped` is called once a signal has stopped the shell for good."""
        self._process = process
        self._end_stopped = end_stopped
        self._cpu_us = 0
        """Of all earlier calls."""
        self._peak = 0
        self._stopped = 0
        """Samples in a row that found the shell stopped."""
        self._timer: asyncio.TimerHandle | None = None
        self._sampling: asyncio.Task[None] | None = None

    def begin(self) -> None:
        self._peak = self._stopped = 0
        self._later(FIRST_SAMPLE)

    def end(self, state: frames.CommandState | None) -> dict[str, float | int]:
        """What this call used; `state`: of the shell after it."""
        self.stop()
        if state is None:
            return {"cpu_time": 0.0, "peak_memory": self._peak}
        used, self._cpu_us = (
            max(0, state.cpu_us - self._cpu_us),
            max(state.cpu_us, self._cpu_us),
        )
        return {"cpu_time": used / 1e6, "peak_memory": max(self._peak, state.peak)}

    def ended(self, body: frames.EndedBody) -> dict[str, float | int]:
        """The same for the call that ended the shell. The init reports what the shell used in its whole life."""
        self.stop()
        used = max(0, body.utime_us + body.stime_us - self._cpu_us)
        return {"cpu_time": used / 1e6, "peak_memory": self._peak or body.maxrss}

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._sampling is not None:
            self._sampling.cancel()
        self._timer = self._sampling = None

    def _later(self, seconds: float) -> None:
        self._timer = self._process.link.loop.call_later(seconds, self._look, seconds)

    def _look(self, seconds: float) -> None:
        self._sampling = self._process.link.loop.create_task(
            self._sample(min(2 * seconds, LAST_SAMPLE))
        )

    async def _sample(self, after: float) -> None:
        with contextlib.suppress(BelljarError):
            state = await self._process.link.state(self._process.id)
            self._peak = max(self._peak, state.peak)
            self._stopped = self._stopped + 1 if state.stopped else 0
            if self._stopped >= STOPPED_SAMPLES:
                self._end_stopped()
            else:
                self._later(after)
