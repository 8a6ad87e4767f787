"""A bash on a terminal whose commands may outlast the call that began them: what SWE-ReX and OpenHands work with.

terminal = Terminal(box)
await terminal.open()
terminal.begin("python3")                          judged, like every command; PolicyDenied comes from `wait`
seen = await terminal.wait([">>> "], timeout=5)    until it prints this, ends, or the time is over
await terminal.type(b"quit()\\n")                   input of the running program, which is not judged
seen = await terminal.wait()
seen.result.exit_code
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import belljar
from belljar.adapters import boxes
from belljar.session.persistent_shell import ShellResult

MOST_OUTPUT = 8 << 20
"""Bytes that wait to be taken; of more the middle is left out."""
OVERLAP = 64 << 10
"""Bytes that are looked at again when more has come: an expected text may begin there."""
INTERRUPT, SUSPEND = b"\x03", b"\x1a"
VARIABLES = {"TERM": "dumb", "PAGER": "cat", "GIT_PAGER": "cat"}
_CONTROL = re.compile(r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-_][0-?]*[ -/]*[@-~]")


def plain(data: bytes) -> str:
    """Output without what only a terminal understands."""
    return _CONTROL.sub("", data.decode(errors="backslashreplace")).replace(
        "\r\n", "\n"
    )


@dataclass(frozen=True)
class Seen:
    """What came until a wait was over."""

    output: str
    result: ShellResult | None = None
    """Of the command, if it has ended."""
    matched: str | None = None
    """The expected text that came, if one did."""
    is_idle: bool = False
    """Nothing came for as long as `idle` says; if it is neither of these, the time was over."""


class Terminal:
    def __init__(self, box: Any) -> None:
        self._box = box
        self._shell = box.shells.named(f"adapter-{secrets.token_hex(4)}")
        self._running: asyncio.Task[ShellResult] | None = None
        self._new = bytearray()
        self._left_out = 0
        self._came = 0
        """How many bytes there were, ever."""
        self._news = asyncio.Event()

    async def open(self) -> None:
        self._shell.use_terminal(VARIABLES)
        await self._shell.run("stty -echo")

    @property
    def is_busy(self) -> bool:
        """Whether a command runs, or has ended and nobody has heard of it yet."""
        return self._running is not None

    def begin(self, command: str) -> None:
        if self._running is not None:
            raise belljar.BelljarError("a command is running")
        self._running = asyncio.create_task(
            self._shell.run(command, on_output=self._take)
        )
        self._running.add_done_callback(lambda _: self._news.set())

    async def type(self, keys: bytes) -> None:
        await self._shell.write(keys)

    async def wait(
        self,
        expect: Sequence[str] = (),
        *,
        timeout: float | None = None,
        idle: float | None = None,
    ) -> Seen:
        """Until the command ends, prints what one of `expect` matches, or prints nothing for `idle` seconds."""
        assert self._running is not None
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout if timeout is not None else None
        last = loop.time()
        looked_at = self._came - len(self._new)
        while True:
            if found := self._found(expect, self._came - looked_at):
                return found
            looked_at = self._came
            if self._running.done():
                return await self._ended()
            quiet = last + idle if idle is not None else None
            limits = [limit for limit in (end, quiet) if limit is not None]
            self._news.clear()
            try:
                async with asyncio.timeout_at(min(limits, default=None)):
                    await self._news.wait()
                last = loop.time()
            except TimeoutError:
                return Seen(
                    self._taken(), is_idle=quiet is not None and quiet == min(limits)
                )

    async def interrupt(self) -> None:
        """Kill what runs, with SIGINT first. If the shell does not survive it, the next command has a new one."""
        if self._running is not None:
            self._shell.interrupt()
            await asyncio.wait([self._running])

    async def kill_suspended(self) -> None:
        """The job that Ctrl+Z has stopped. What bash says of it comes with the next command's output."""
        with contextlib.suppress(belljar.PolicyDenied):
            await self._shell.run("kill -9 %% && { fg || jobs; }", on_output=self._take)

    async def close(self) -> None:
        self._shell.kill()
        if self._running is not None:
            await asyncio.wait([self._running])
        await self._shell.restart()

    async def _ended(self) -> Seen:
        running, self._running = self._running, None
        assert running is not None
        output = self._taken()
        result = running.result()
        boxes.there(result)
        return Seen(output, result=result)

    def _take(self, output: belljar.Output) -> None:
        self._new += output.data
        self._came += len(output.data)
        if len(self._new) > 2 * MOST_OUTPUT:
            self._shorten()
        self._news.set()

    def _shorten(self) -> None:
        half = MOST_OUTPUT // 2
        self._left_out += max(len(self._new) - 2 * half, 0)
        del self._new[half:-half]

    def _taken(self) -> str:
        if len(self._new) > MOST_OUTPUT:
            self._shorten()
        left_out, self._left_out = self._left_out, 0
        data, self._new = bytes(self._new), bytearray()
        if not left_out:
            return plain(data)
        head, tail = data[: MOST_OUTPUT // 2], data[MOST_OUTPUT // 2 :]
        note = f"\n[{left_out} bytes are left out here]\n"
        return f"{plain(head)}{note}{plain(tail)}"

    def _found(self, expect: Sequence[str], new: int) -> Seen | None:
        """The first of them in so many new bytes."""
        start = max(0, len(self._new) - new - OVERLAP)
        matches = [
            (match, text)
            for text in expect
            if (match := re.compile(text.encode()).search(self._new, start))
        ]
        if not matches:
            return None
        match, text = min(matches, key=lambda pair: pair[0].start())
        rest = self._new[match.end() :]
        del self._new[match.start() :]
        before, self._new = self._taken(), rest
        return Seen(before, matched=text)
