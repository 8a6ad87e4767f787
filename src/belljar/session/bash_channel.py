"""One bash process that runs text after text, on a private channel: what a persistent shell is made of.

Theory of operation. The bash runs persistent_loop.bash. It has a private channel: descriptor 9 to read requests from, 8
to report on; both are closed for what it runs. A request is a text and, behind it, a nonce that the loop reads only
when the text has run. The report repeats the nonce, so nothing that a command prints, and no report of an earlier call,
is taken for a status. A report is heard only after all output that was written before it (see remote_command.py).

    host → 9    which (16 digits)           the exported variables it was judged with: the nonce they were reported with
                length (8 digits) text      0: the text ends with NUL; bash counts characters, so only ASCII is counted
                nonce (16 digits)
    host ← 8    s nonce status flags NUL                the call is over
                e nonce exported variables NUL          follows if they changed, while the host already goes on
                r nonce NUL                             refused, nothing ran: the variables are no longer those

A report doesn't wait for the variables: they are compared after it, by way of a file in memory that has no name (bash
writes what it prints line by line, and each line would wake the init and the host). A host that is faster than that has
judged its next text with the old ones; then bash reports the new ones and refuses it, until it comes again.

What can be trusted. Text that bash runs in its own process (`source`, `eval`) could do as the loop does, and a program
that it started could take the channel through /proc. So the directory is never taken from the report: the init reads it
from the kernel, and says whether bash really waits for its next text (`look`). The variables are the shell's word, and
a new bash is given just those. Whatever else comes on the channel ends the shell.

The loop lives in the same shell as what it runs, so it trusts little: it is parsed before any alias exists; a function
can shadow a builtin, even `builtin` itself, but not a keyword, and in POSIX mode not `unset`; its own steps are part of
the `while` condition, where `set -e` does not apply, and in a function, where traps don't, with their own traces
(`set -x`) thrown away; the status of the last text is brought back in the condition of an `if`, with a branch for each
outcome, for the same reason; there are two loops, so that a stray `break` leaves one; it is one line, so that bash's
messages count the command's lines.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shlex
import time
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from belljar.errors import SandboxLost, ShellNotFound
from belljar.layout import WORKSPACE
from belljar.link import frames
from belljar.link.frames import Flag
from belljar.patterns import lazy_pattern
from belljar.records import record
from belljar.session.shell_usage import ShellUsage

if TYPE_CHECKING:
    from asyncio import TimerHandle

    from belljar.link.link import Link

IDLE_SECONDS = 0.05  # after which a shell counts as idle
OWN = ("PWD", "SHLVL", "_")  # what every bash sets for itself
LATE_SECONDS = 2.0  # how long the last output on a terminal is waited for
LONGEST_MARK = 32
LONGEST_REPORT = 3 << 20  # more than a program can be given of variables
MOST_VARIABLES = 4096  # bash compares each exported variable with each other, for every program that it starts
TOO_MANY = b"belljar: the shell was ended: it had exported more than %d variables\n" % MOST_VARIABLES
STOPPED = b"belljar: the shell was ended: a signal had stopped it, and nothing let it go on\n"
STRANGERS = 16  # messages on the channel that are none of the loop's: then it is no longer the loop that speaks
SETTLE_SECONDS = 2.0  # how long a shell that reported may take to wait for its next text
ANY, NONE = b"-" * 16, b"?" * 16  # in place of a nonce: whatever the variables are; refuse and report them


def _sections() -> dict[str, str]:
    """The parts of the loop's file, each as one line."""
    text = Path(__file__).with_name("persistent_loop.bash").read_text()
    found = {}
    for section in text.split("# [")[1:]:
        name, _, lines = section.partition("]")
        found[name] = " ".join(line.strip() for line in lines.splitlines() if not line.startswith("#"))
    return found


_PARTS = _sections()
LOOP = "__bj_t=;" + _PARTS["step"] + _PARTS["loop"]
_ARGV = (b"bash", b"--noprofile", b"--norc", b"-c", LOOP.encode(), b"bash")

# On a terminal. An interrupt there throws away the line of text that an interactive bash is in, so the loop is a line,
# and there are many; when they are used up the shell ends and the next call starts another. Keys that nothing read are
# thrown away when a command is over. The mark on the terminal, which no terminal shows, is the end of its output.
# `set -o vi` would have an interactive bash read from the keyboard in the middle of a text, and crash; not in a file
# that it sources, so a text with that is one.
_LINES = (
    "builtin set +H +o history; builtin history -c; __bj_t=1;" + _PARTS["step"] + f"\n{_PARTS['terminal line']}" * 400
)
_TERMINAL_ARGV = (
    *_ARGV[:4], b'exec 7<&0; PS1= PS2= exec bash --noprofile --norc --noediting -i <<<"$1"', b"bash", _LINES.encode(),
)  # fmt: skip
_MARK = lazy_pattern(rb"\x1b\]777;([0-9a-f]{16})\x07")


class Phase(Enum):
    STARTING = "starting"
    """It has not reported yet."""
    IDLE = "idle"
    RUNNING = "running"
    REFUSED = "refused"
    """The last text did not run: it was judged with other variables than there are."""


@record
class Report:
    status: int
    closed: bool
    """The command closed the shell's own output."""


@record
class BashState:
    """What texts are judged with, and what a new bash is given of the last one."""

    cwd: str = WORKSPACE
    exports: str = ""
    nonce: bytes = b""
    """With which the exports were reported."""

    @cached_property
    def variables(self) -> dict[str, str]:
        return exported(self.exports)

    def restore(self) -> str:
        """Text that brings it back: made from what was read, so that nothing but variables comes back."""
        lines = [f"builtin cd -- {shlex.quote(self.cwd)}"]
        lines += [
            f"builtin export {name}={shlex.quote(value)}" for name, value in self.variables.items() if name not in OWN
        ]
        return "{ " + "\n".join([*lines, "__bj_p="]) + "\n} >/dev/null 2>&1"


class Bash:
    """One bash process and its private channel."""

    def __init__(
        self, link: Link, env: Mapping[str, str], state: BashState | None, on_output: Callable[[int, bytes], None],
        *, terminal: bool = False,
    ) -> None:  # fmt: skip
        self.phase = Phase.STARTING
        self.report: Report | None = None
        self.state: BashState | None = None
        self._cwd = state.cwd if state else WORKSPACE
        self._exports, self._nonce_of_exports = "", b""
        self._control = bytearray()
        self._strangers = 0
        self._rests = False
        """It was seen waiting for its next text."""
        self._armed = False
        self._idle: TimerHandle | None = None
        self._expected: list[tuple[bytes, bytes]] = []
        """The nonces of the reports that are to come, each with the variables that its text was for."""
        self.half_told = False
        """A request was cut off while it was written: what follows would be taken for its rest."""
        self._nonce = b""
        """Of the last report."""
        self._news = asyncio.Event()
        self._on_output = on_output
        environment = {name.encode(): value.encode("utf-8", "surrogateescape") for name, value in env.items()}
        self._terminal, self._tail, self._mark = terminal, b"", b""
        argv, flags = (_TERMINAL_ARGV, Flag.PTY | Flag.STDIN) if terminal else (_ARGV, Flag.DIRECT)
        self.execution = link.spawn(argv, flags=flags | Flag.CONTROL | Flag.DEFAULT_ENV, env=environment)
        self.execution.on_output = self._take
        self.usage = ShellUsage(self)
        self.execution.when_ended(lambda: self._news.set())
        self._unsent = self._expect() + (self._request(state.restore(), ANY) if state else b"")

    def _expect(self, which: bytes = ANY) -> bytes:
        nonce = os.urandom(8).hex().encode()
        self._expected.append((nonce, which))
        return nonce

    def _request(self, text: str, which: bytes) -> bytes:
        raw = text.encode("utf-8", "surrogateescape")
        counted = b"%08d%b" % (len(raw), raw) if raw.isascii() and raw else b"00000000%b\0" % raw
        return which + counted + self._expect(which)

    async def _send(self, data: bytes, ahead: bytes = b"") -> None:
        self.half_told = True
        await self.execution.input(data, frames.CONTROL, ahead=ahead)
        self.half_told = False

    async def tell(self, text: str, judged: BashState | None, timeout: float | None, grace: float) -> None:
        """Have `text` run, if the variables are still those that it was judged with."""
        self.report = None
        if self._idle is not None:
            self._idle.cancel()
        again = self.phase is Phase.REFUSED
        known = None if self.state is None else judged  # a new bash has what it was given
        seen = known.nonce if known is not None else b""  # nothing where there was no memory to compare them
        which = ANY if again else seen or ANY
        self.phase, self._rests = Phase.RUNNING, False
        data, self._unsent = self._unsent + self._request(text, which), b""
        ahead = self.execution.deadline_frame(timeout, grace) if timeout or self._armed else b""
        self._armed = timeout is not None
        await self._send(data, ahead)

    async def answer(self) -> Report | None:
        """How the text came out; None when it was refused, or the shell ended instead of answering."""
        await self._until(lambda: self.phase is not Phase.RUNNING)
        if self._terminal and self.report is not None:
            with anyio.move_on_after(LATE_SECONDS):
                await self._until(lambda: self._mark == self._nonce)
        return self.report

    def disarm(self, spare: float) -> None:
        """No deadline for an idle shell. If there is time, wait for the next call, which sets its own: each word to the
        init is a wake-up."""
        if spare > 20 * IDLE_SECONDS:
            self._idle = self.execution.link.loop.call_later(IDLE_SECONDS, self.disarm, 0.0)
        elif not self.execution.over:
            self._armed = False
            with contextlib.suppress(SandboxLost):  # then there is no deadline either
                self.execution.deadline(None, 0)

    @property
    def closed(self) -> bool:
        return self.report is not None and self.report.closed

    async def settle(self) -> None:
        """Have the variables reported, if they changed: `state` is right afterwards. Where nobody waits to the end, the
        answer comes ahead of the next text's."""
        data, self._unsent = self._unsent + self._request(":", NONE), b""
        await self._send(data)
        await self._until(lambda: not self._expected)
        self.phase = Phase.IDLE

    @property
    def refused(self) -> bool:
        return self.phase is Phase.REFUSED

    async def look(self) -> frames.CommandState | None:
        """What the kernel says of the shell; its directory is taken from there, and from nowhere else."""
        try:
            seen = await self.execution.state()
        except ShellNotFound:
            return None  # it has ended
        self._rests = seen.waits
        if seen.cwd is not None:
            self._cwd = seen.cwd
            self._note_state()
        return seen

    async def is_idle(self) -> bool:
        """It waits for its next text, the kernel says; False: it does something else, whatever it reported."""
        until = time.monotonic() + SETTLE_SECONDS
        while not self._rests and (seen := await self.look()) is not None and not seen.waits:
            if time.monotonic() > until:
                return False
            await anyio.sleep(0.001)
        return True

    def _note_state(self) -> None:
        """The same object as long as nothing changes."""
        now = BashState(self._cwd, self._exports, self._nonce_of_exports)
        if self.state != now:
            self.state = now

    async def _until(self, done: Callable[[], bool]) -> None:
        while not done() and not self.execution.over:
            self._news = asyncio.Event()
            await self._news.wait()

    def _take(self, stream: int, data: bytes) -> None:
        if stream != frames.CONTROL:
            if self._terminal:
                self._look_for_mark(data)
            return self._on_output(stream, data)
        self._control += data
        if 0 in data:
            *messages, rest = bytes(self._control).split(b"\0", STRANGERS + 2)
            self._control = bytearray(rest)
            self._strangers += 0 if 0 not in rest else STRANGERS + 1
            for message in messages:
                self._hear(message)
        if len(self._control) > LONGEST_REPORT or self._strangers > STRANGERS:
            self._ignore_channel()
        return None

    def end_stopped(self) -> None:
        self._on_output(frames.STDERR, STOPPED)
        self.execution.kill()

    def _ignore_channel(self) -> None:
        """It is not the loop that speaks: nothing more is heard of this shell but its end."""
        self._control.clear()
        self.execution.on_output = None
        self.execution.kill()

    def _look_for_mark(self, data: bytes) -> None:
        """A terminal's output may come after the report that followed it."""
        seen = self._tail + data
        for mark in _MARK.findall(seen):
            self._mark = mark
            self._news.set()
        self._tail = seen[-LONGEST_MARK:]

    def _hear(self, message: bytes) -> None:
        head, _, rest = message.partition(b" ")
        expected, which = self._expected[0] if self._expected else (None, ANY)
        if expected and head == b"s" + expected and (found := _REPORT.fullmatch(rest)):
            self._reported(Report(int(found[1]) & 0xFF, b"x" in found[2]))
        elif self._nonce and head == b"e" + self._nonce:
            if rest.count(b"\n") > MOST_VARIABLES:
                self._on_output(frames.STDERR, TOO_MANY)
                return self._ignore_channel()
            self._exports, self._nonce_of_exports = rest.decode("utf-8", "surrogateescape"), self._nonce
            if self.state is not None:
                self._note_state()
        elif expected and head == b"r" + expected:
            self._expected.pop(0)
            if which == ANY:
                return self._ignore_channel()  # no loop of ours does
            if which != NONE:
                self.phase = Phase.REFUSED
        else:
            self._strangers += 1
        self._news.set()
        return None

    def _reported(self, report: Report) -> None:
        self._nonce, _ = self._expected.pop(0)
        self._strangers = 0
        if not self._expected:
            self._note_state()
            self.report, self.phase = report, Phase.IDLE


_REPORT = lazy_pattern(rb"(\d{1,3}) (-x?)")
_EXPORT = lazy_pattern(r"""^(?:declare -\w*x\w*|export) (\w+)=(?:"([^"]*+)"|\$'([^']*+)')$""", re.MULTILINE)
_HIDDEN = {"\\\\": "\0b", '\\"': "\0d", "\\'": "\0s"}
"""What could be taken for the end of a value, in signs that no variable has. An expression that steps over escapes one
by one keeps a hundred bytes for each."""
_ESCAPE = lazy_pattern(r"\\([0-7]{1,3}|.)", re.DOTALL)
_CONTROLS = dict(zip("abtnvfrE", "\a\b\t\n\v\f\r\x1b", strict=True))


def exported(text: str) -> dict[str, str]:
    """The variables of an `export -p`."""
    for escape, sign in _HIDDEN.items():
        text = text.replace(escape, sign)
    found = {}
    for name, plain, quoted in _EXPORT.findall(text):
        value = quoted or plain
        for escape, sign in _HIDDEN.items():
            value = value.replace(sign, escape)
        found[name] = _ESCAPE.sub(_character, value) if quoted else re.sub(r'\\([$`"\\])', r"\1", value)
    return found


def _character(match: re.Match[str]) -> str:
    code = match[1]
    if code[0] not in "01234567":
        return _CONTROLS.get(code, code)
    byte = int(code, 8) & 0xFF
    return chr(byte if byte < 0x80 else 0xDC00 + byte)  # as `surrogateescape` decodes it
