"""`belljar attach ID`: connects this terminal to a background shell. Ctrl+P Ctrl+Q leaves the shell running."""

from __future__ import annotations

import signal
from argparse import Namespace

import anyio

from belljar.errors import UsageError
from belljar.session.background_shell import Chunk, Shell
from belljar.session.result import Output
from belljar.surfaces.cli import console
from belljar.surfaces.cli.foreground import Sink, note_left_running
from belljar.surfaces.cli.session_commands import attached_to, stop_if_done
from belljar.surfaces.terminal.drawing import Drawing
from belljar.surfaces.terminal.host import HostTerminal
from belljar.surfaces.terminal.keys import Answers, DetachKeys, pass_keys, pass_size

_WAIT_SECONDS = 30.0
_REPLAYED = 64 << 10
"""Bytes of earlier output that are shown. A full-screen program redraws itself anyway."""
_MOST_READS = 64


def attach(args: Namespace) -> int:
    terminal = HostTerminal.here()
    if terminal is None or args.json:
        raise UsageError(
            "attach needs a terminal; `belljar logs -f` follows without one"
        )
    return anyio.run(_attach, args, terminal)


async def _attach(args: Namespace, terminal: HostTerminal) -> int:
    async with attached_to(args.id) as (box, shell):
        console.note(f"attached to {shell.command}; Ctrl+P Ctrl+Q leaves it running")
        rows, columns = terminal.size
        shell.resize(
            rows, max(1, columns - 1)
        )  # a change of size makes a program redraw itself
        status = await Attached(shell, terminal).converse() or shell.exit_code or 0
        await stop_if_done(box, shell)
        return status


class Attached:
    def __init__(self, shell: Shell, terminal: HostTerminal) -> None:
        self._shell, self._terminal = shell, terminal
        self._keys, self._answers = DetachKeys(), Answers()
        self._signal: int | None = None  # the signal that ended us

    async def converse(self) -> int | None:
        """Our exit status if the shell is still running; None if it has ended."""
        drawing = Drawing(lambda: self._terminal.size)
        sink = Sink(quiet=False, drawn=drawing)
        with self._terminal.raw():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._pass_keys, tasks.cancel_scope)
                tasks.start_soon(self._answers.pass_on, self._shell.write)
                tasks.start_soon(pass_size, self._terminal, self._shell.resize)
                tasks.start_soon(self._leave_on_signal, tasks.cancel_scope)
                await self._show(sink, drawing)
                tasks.cancel_scope.cancel()
            await sink.close()
        if self._shell.status != "running":
            return None
        note_left_running(self._shell)
        return 128 + self._signal if self._signal else 0

    async def _pass_keys(self, scope: anyio.CancelScope) -> None:
        await pass_keys(self._shell.write, self._keys)
        scope.cancel()

    async def _leave_on_signal(self, scope: anyio.CancelScope) -> None:
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGHUP) as received:
            async for number in received:
                self._signal = number
                scope.cancel()

    async def _earlier_output(self) -> tuple[Chunk, bytes]:
        """The last chunk, and the end of what the shell has printed so far, from the start of a line."""
        chunk = await self._shell.read(offset=0)
        tail, cut = chunk.stdout_bytes, any(chunk.dropped)
        for _ in range(
            _MOST_READS
        ):  # a shell that prints without end cannot be caught up with
            following = await self._shell.read(offset=chunk.next)
            if not following.stdout_bytes:
                break
            chunk, tail = following, tail + following.stdout_bytes
            cut, tail = cut or len(tail) > _REPLAYED, tail[-_REPLAYED:]
        cut, tail = cut or len(tail) > _REPLAYED, tail[-_REPLAYED:]
        return chunk, tail.partition(b"\n")[2] if cut else tail

    async def _show(self, sink: Sink, drawing: Drawing) -> None:
        chunk, shown = await self._earlier_output()
        while True:
            await sink.write(Output("stdout", shown))
            await sink.write(Output("stderr", chunk.stderr_bytes))
            drawing.reply = (
                self._answers.put
            )  # not before: queries in earlier output must not be answered again
            if chunk.status != "running" and not (
                chunk.stdout_bytes or chunk.stderr_bytes
            ):
                return
            chunk = await self._shell.read(offset=chunk.next, wait=_WAIT_SECONDS)
            shown = chunk.stdout_bytes
