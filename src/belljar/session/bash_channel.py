"""One bash process that runs text after text, on a private channel: what a persistent shell is made of.

Theory of operation. The bash runs LOOP. It has a private channel: descriptor 9 to read requests from, 8 to report
on; both are closed for what it runs. A request is a text and, behind it, a nonce that the loop reads only when the
text has run. The report repeats the nonce, so nothing that a command prints, and no report of an earlier call, is
taken for a status. A report is heard only after all output that was written before it (see execution.py).

    host → 9    which (16 digits)           the exported variables it was judged with: the nonce they were told with
                length (8 digits) text      0: the text ends with NUL; bash counts characters, so only ASCII is counted
                nonce (16 digits)
    host ← 8    s nonce status flags directory NUL      the call is over
                e nonce exported variables NUL          follows if they changed, while the host already goes on
                r nonce NUL                             refused, nothing ran: the variables are no longer those

A report doesn't wait for the variables: they are compared after it, by way of a file in memory (bash writes what it
prints line by line, and each line would wake the init and the host). A host that is faster than that has judged its
next text with the old ones; then bash refuses it, has told the new ones before, and takes it when it comes again.

LOOP lives in the same shell as what it runs, so it trusts little: it is parsed before any alias exists; a function
can shadow a builtin, even `builtin` itself, but not a keyword, and in POSIX mode not `unset`; its own steps are part
of the `while` condition, where `set -e` does not apply, and in a function, where traps don't, with their own traces
(`set -x`) thrown away; there are two loops, so that a stray `break` leaves one; it is one line, so that bash's
messages count the command's lines.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import anyio

from belljar.errors import SandboxLost
from belljar.layout import WORKSPACE
from belljar.link import frames
from belljar.link.frames import Flag

if TYPE_CHECKING:
    from asyncio import TimerHandle

    from belljar.link.link import Link

IDLE_SECONDS = 0.05  # after which a shell counts as idle
OWN = ("PWD", "SHLVL", "_")  # what every bash sets for itself
LATE_SECONDS = 2.0  # how long the last output on a terminal is waited for
LONGEST_MARK = 32
LONGEST_REPORT = 8 << 20  # Linux gives a process no larger environment
ANY, NONE = b"-" * 16, b"?" * 16  # in place of a nonce: whatever the variables are; refuse and tell them

_STEP = r"""
__bj_step() {
  __bj_s=$? __bj_f=-; @over
  if [[ $- == *x* ]]; then builtin set +x; __bj_x=x; fi;
  [[ -e /dev/fd/1 ]] || __bj_f+=x;
  __bj_n=; builtin read -rN 16 -u 9 __bj_n;
  if [[ -z $__bj_n ]]; then
    POSIXLY_CORRECT=1; unset -f builtin; unset POSIXLY_CORRECT;
    builtin read -rN 16 -u 9 __bj_n;
  fi;
  @told
  builtin printf 's%s %s %s %s\0' "$__bj_n" "$__bj_s" "$__bj_f" "$PWD" >&8 || builtin exit 1;
  if builtin export -p >|"$__bj_m" && builtin mapfile -d '' __bj_v <"$__bj_m" && [[ $__bj_v != "$__bj_e" ]]; then
    __bj_e=$__bj_v __bj_g=$__bj_n; builtin printf 'e%s %s\0' "$__bj_n" "$__bj_e" >&8;
  fi;
  while {
    __bj= __bj_h=; builtin read -rN 24 -u 9 __bj_h;
    if [[ $__bj_h == *00000000 ]]; then IFS= builtin read -rd '' -u 9 __bj;
    else builtin read -rN "${__bj_h:16}" -u 9 __bj; fi;
    [[ $__bj && $__bj_h != "$__bj_g"* && $__bj_h != -* ]];
  } do builtin read -rN 16 -u 9 __bj_n; builtin printf 'r%s\0' "$__bj_n" >&8; done;
  if [[ $__bj_x ]]; then __bj="__bj_x=; builtin set -x; $__bj"; fi;
  @ready
  [[ $__bj ]];
};
builtin readonly -f __bj_step;
builtin shopt -s expand_aliases; __bj_x= __bj_e= __bj_g= __bj_m=/dev/shm/.belljar-$$;
"""
_LOOPS = r"""
while { [[ 1 ]]; } 2>/dev/null; do
  while { __bj_step; } 2>/dev/null; do builtin eval "$__bj" 8>&- 9<&-; done;
  { if [[ -z $__bj ]]; then builtin exit 0; fi; } 2>/dev/null;
done
"""


def _one_line(text: str) -> str:
    return " ".join(line.strip() for line in text.splitlines())


def _step(over: str = "", told: str = "", ready: str = "") -> str:
    return _one_line(_STEP.replace("@over", over).replace("@told", told).replace("@ready", ready))


LOOP = _step() + _one_line(_LOOPS)
_ARGV = (b"bash", b"--noprofile", b"--norc", b"-c", LOOP.encode(), b"bash")

# On a terminal. An interrupt there throws away the line of text that an interactive bash is in, so the loop is a line,
# and there are many; when they are used up the shell ends and the next call starts another. Keys that nothing read are
# thrown away when a command is over. The mark on the terminal, which no terminal shows, is the end of its output.
_OVER = "builtin trap '' INT; builtin read -rst 0.001 -N 65536 __bj_n <&7;"
_TOLD = r"""builtin printf '\e]777;%s\a' "$__bj_n" >&7;"""
_LINE = _one_line("""
while { __bj_step; } 2>/dev/null; do builtin eval "$__bj" <&7 7<&- 8>&- 9<&-; done;
{ if [[ -z $__bj ]]; then builtin exit 0; fi; } 2>/dev/null
""")
_LINES = "builtin set +H +o history;" + _step(_OVER, _TOLD, "builtin trap - INT;") + f"\n{_LINE}" * 400
_TERMINAL_ARGV = (
    *_ARGV[:4], b'exec 7<&0; PS1= PS2= exec bash --noprofile --norc --noediting -i <<<"$1"', b"bash", _LINES.encode(),
)  # fmt: skip
_MARK = re.compile(rb"\x1b\]777;([0-9a-f]{16})\x07")


@dataclass(frozen=True)
class Report:
    status: int
    closed: bool
    """The command closed the shell's own output."""
    cwd: str


@dataclass(frozen=True)
class State:
    """What texts are judged with, and what a new bash is given of the last one."""

    cwd: str = WORKSPACE
    exports: str = ""
    nonce: bytes = b""
    """With which the exports were told."""

    @cached_property
    def variables(self) -> dict[str, str]:
        return exported(self.exports)

    def restore(self) -> str:
        """Text that brings it back: made from what was read, so that nothing but variables comes back."""
        lines = [f"builtin cd -- {shlex.quote(self.cwd)}"]
        lines += [
            f"builtin export {name}={shlex.quote(value)}" for name, value in self.variables.items() if name not in OWN
        ]
        return "{ " + "\n".join(lines) + "\n} >/dev/null 2>&1"


class Bash:
    """One bash process and its private channel."""

    def __init__(
        self, link: Link, env: Mapping[str, str], state: State | None, on_output: Callable[[int, bytes], None],
        *, terminal: bool = False,
    ) -> None:  # fmt: skip
        self.report: Report | None = None
        self.state: State | None = None
        self._exports, self._nonce_of_exports = "", b""
        self._told = bytearray()
        self._armed = False
        self._idle: TimerHandle | None = None
        self._expected: list[bytes] = []
        """The nonces of the reports that are to come."""
        self._nonce = b""
        """Of the last report."""
        self._asked, self.refused = ANY, False
        self._news = asyncio.Event()
        self._on_output = on_output
        environment = {name.encode(): value.encode("utf-8", "surrogateescape") for name, value in env.items()}
        self._terminal, self._tail, self._mark = terminal, b"", b""
        argv, flags = (_TERMINAL_ARGV, Flag.PTY | Flag.STDIN) if terminal else (_ARGV, Flag.DIRECT)
        self.execution = link.spawn(argv, flags=flags | Flag.CONTROL | Flag.DEFAULT_ENV, env=environment)
        self.execution.on_output = self._take
        self.execution.when_ended(lambda: self._news.set())
        self._unsent = self._expect() + (self._request(state.restore(), ANY) if state else b"")

    def _expect(self) -> bytes:
        self._expected.append(os.urandom(8).hex().encode())
        return self._expected[-1]

    def _request(self, text: str, which: bytes) -> bytes:
        raw = text.encode("utf-8", "surrogateescape")
        counted = b"%08d%b" % (len(raw), raw) if raw.isascii() and raw else b"00000000%b\0" % raw
        self._asked, self.refused = which, False
        return which + counted + self._expect()

    async def tell(self, text: str, judged: State | None, timeout: float | None, grace: float) -> None:
        """Have `text` run, if the variables are still those that it was judged with."""
        self.report = None
        if self._idle is not None:
            self._idle.cancel()
        known = None if self.state is None else judged  # a new bash has what it was given
        told = known.nonce if known is not None else b""  # nothing where there was no memory to compare them
        which = ANY if self.refused else told or ANY
        data, self._unsent = self._unsent + self._request(text, which), b""
        ahead = self.execution.deadline_frame(timeout, grace) if timeout or self._armed else b""
        self._armed = timeout is not None
        await self.execution.input(data, frames.CONTROL, ahead=ahead)

    async def answer(self) -> Report | None:
        """How the text came out; None when it was refused, or the shell ended instead of answering."""
        await self._until(lambda: self.report is not None or (self.refused and self._asked != ANY))
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
        """Have the variables told, if they changed: `state` is right afterwards."""
        data, self._unsent = self._unsent + self._request(":", NONE), b""
        await self.execution.input(data, frames.CONTROL)
        await self._until(lambda: self.refused)
        self.refused = False

    async def _until(self, done: Callable[[], bool]) -> None:
        while not done() and not self.execution.over:
            self._news = asyncio.Event()
            await self._news.wait()

    def _take(self, stream: int, data: bytes) -> None:
        if stream != frames.CONTROL:
            if self._terminal:
                self._look_for_mark(data)
            return self._on_output(stream, data)
        self._told += data
        while (end := self._told.find(0)) >= 0:
            message = bytes(self._told[:end])
            del self._told[: end + 1]
            with contextlib.suppress(ValueError):  # not one of ours
                self._hear(message)
        if len(self._told) > LONGEST_REPORT:
            self.execution.kill()
        return None

    def _look_for_mark(self, data: bytes) -> None:
        """A terminal's output may come after the report that followed it."""
        seen = self._tail + data
        for mark in _MARK.findall(seen):
            self._mark = mark
            self._news.set()
        self._tail = seen[-LONGEST_MARK:]

    def _hear(self, message: bytes) -> None:
        head, _, rest = message.partition(b" ")
        told = rest.decode("utf-8", "surrogateescape")
        if self._expected and head == b"s" + self._expected[0]:
            status, flags, cwd = told.split(" ", 2)
            report = Report(int(status) & 0xFF, "x" in flags, cwd)
            self._nonce = self._expected.pop(0)
            if not self._expected:
                unmoved = self.state is not None and self.state.cwd == cwd
                state = self.state if unmoved else State(cwd, self._exports, self._nonce_of_exports)
                self.report, self.state = report, state
        elif head == b"e" + self._nonce:
            self._exports, self._nonce_of_exports = told, self._nonce
            self.state = State(self.state.cwd, told, self._nonce) if self.state else None
        elif self._expected and head == b"r" + self._expected[0]:
            self._expected.pop(0)
            self.refused = True
            if self._asked == ANY:  # no bash of ours does
                self.execution.kill()
        self._news.set()


_EXPORT = re.compile(
    r"""^(?:declare -\w*x\w*|export) (\w+)=(?:"((?:[^"\\]|\\.)*)"|\$'((?:[^'\\]|\\.)*)')$""", re.DOTALL | re.MULTILINE
)
_ESCAPE = re.compile(r"\\([0-7]{1,3}|.)", re.DOTALL)
_CONTROLS = dict(zip("abtnvfrE", "\a\b\t\n\v\f\r\x1b", strict=True))


def exported(text: str) -> dict[str, str]:
    """The variables of an `export -p`."""
    found = {}
    for name, plain, quoted in _EXPORT.findall(text):
        found[name] = _ESCAPE.sub(_character, quoted) if quoted else re.sub(r'\\([$`"\\])', r"\1", plain)
    return found


def _character(match: re.Match[str]) -> str:
    code = match[1]
    if code[0] not in "01234567":
        return _CONTROLS.get(code, code)
    byte = int(code, 8) & 0xFF
    return chr(byte if byte < 0x80 else 0xDC00 + byte)  # as `surrogateescape` decodes it
