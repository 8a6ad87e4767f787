"""Runs a command from the command line and shows its output until it ends.

On a terminal the command gets one of its own, and every key goes to it (see streams.py). Otherwise stdin is passed on,
and Ctrl+C interrupts the command; a second Ctrl+C kills it. Piped output is passed on byte for byte; on a terminal
it is filtered.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from argparse import Namespace
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio

from belljar.audit import log, masking
from belljar.audit.masking import Known
from belljar.codec import raw_streams
from belljar.errors import BelljarError, Unsupported, UsageError
from belljar.options import SESSION_NAME, must
from belljar.session.result import Output, Result
from belljar.session.session import Session
from belljar.session.watched_run import Run
from belljar.surfaces.cli import afterwards, artifacts, ci_report, console
from belljar.surfaces.cli.open_session import opened
from belljar.surfaces.cli.remarks import remarks
from belljar.surfaces.cli.signals import SignalGate
from belljar.surfaces.cli.streams import Streams
from belljar.surfaces.terminal.keys import Answers, DetachKeys
from belljar.surfaces.terminal.render import Screen
from belljar.syscalls import write_all
from belljar.tasks import made_in_thread

if TYPE_CHECKING:
    from belljar.session.background_shell import Shell
    from belljar.session.commands import Request
    from belljar.surfaces.cli.early_launch import EarlyLaunch
    from belljar.surfaces.terminal.drawing import Drawing

DETACHED_LEASE = 3600.0
"""Seconds that a command continues after the user has detached, if nobody attaches again; as for `session start`."""
GIVE_UP_SECONDS = 3.0  # after a signal that ends us; the last output of a killed command has arrived by then


def run_and_show(
    args: Namespace,
    report: ci_report.Report,
    early: EarlyLaunch | None,
    gate: SignalGate,
    streams: Streams,
) -> int:
    log.configure(verbose=args.verbose)
    staged = early.id if early is not None and args.changes == "staged" else None
    try:
        status, left, staged = anyio.run(_run, args, report, early, gate, streams)
    except Exception as raised:
        if staged:
            _conclude_staged(staged, ask=False)
        error = console.cause_of(raised)
        if isinstance(error, BelljarError):
            report.failed(error)
            _print_document(args, error.as_dict())
        raise error from None
    if staged and not left:
        _conclude_staged(staged, ask=not args.json)
    return status


def _conclude_staged(id: str, *, ask: bool) -> None:
    from belljar.surfaces.cli import staged_offer

    staged_offer.conclude(id, ask=ask)


async def _run(
    args: Namespace,
    report: ci_report.Report,
    early: EarlyLaunch | None,
    gate: SignalGate,
    streams: Streams,
) -> tuple[int, bool, str | None]:
    """The exit status, whether the command was left running, and the id of a session whose changes wait here."""
    status, left, staged = 125, False, None
    async with anyio.create_task_group() as tasks:
        signals = SignalHandler(tasks.cancel_scope)
        tasks.start_soon(signals.listen, gate)
        async with opened(args, early, approve=streams.approver(args)) as box:
            staged = box.id if box.is_staged and not args.session else None
            await artifacts.prepare(box, args)
            if args.devcontainer:
                from belljar.surfaces.cli import devcontainer

                await devcontainer.create(box, args)
            ended = await _watch(box, args, signals, streams)
            if not isinstance(ended, Result):
                box.stay(DETACHED_LEASE, detached="run")
                note_left_running(ended)
                status, left = 0, True
            else:
                copied = await artifacts.copy_out(box, args)
                report.ended(ended, box)
                changed = (
                    {"changes": [change.as_dict() for change in await box.changes()]}
                    if box.is_staged
                    else {}
                )
                if not signals.output_is_stuck:
                    _conclude(args, ended, {"session": box.id, **changed})
                status = ended.exit_code or (0 if copied else 125)
                if signals.status is None and not signals.output_is_stuck:
                    afterwards.answer(status, box)
        tasks.cancel_scope.cancel()
    return status if signals.status is None else signals.status, left, staged


async def _watch(
    box: Session, args: Namespace, signals: SignalHandler, streams: Streams
) -> Result | Shell:
    """Its result; or, if the user has detached, the shell that it has become."""
    answers, detach = Answers(), DetachKeys()
    sink = Sink(
        quiet=args.json, drawn=_drawing(streams, answers) if streams.pty else None
    )
    command, options = args.command, streams.options(args)
    if args.shell:
        command, options = await _in_shell(box, args, options), {}
    async with box.stream(command, **options) as running:
        with streams.lent():
            async with anyio.create_task_group() as tasks:
                signals.pass_to(
                    running,
                    sink,
                    partial(_hang_up, detach, tasks.cancel_scope)
                    if streams.stays
                    else None,
                )
                tasks.start_soon(
                    streams.pass_on, running, answers, detach, tasks.cancel_scope
                )
                await _show(running, sink)
                tasks.cancel_scope.cancel()
            shell = await running.detach() if detach.pressed else None
            if shell is None:
                await _show(running, sink)
            await sink.close()
        if shell is not None:
            return shell
    assert running.result is not None
    return running.result


async def _in_shell(box: Session, args: Namespace, options: Any) -> Request:
    """The command as one of a named shell, whose state is in the sandbox."""
    if not args.session:
        raise UsageError(
            "--shell is for --session: a throwaway sandbox has no later runs"
        )
    if not isinstance(args.command, str):
        raise UsageError(
            "--shell takes one argument of bash text: belljar run --session ID --shell NAME 'cd src'"
        )
    if not isinstance(box, Session):
        raise Unsupported(
            "--shell is for sessions of this machine; BELLJAR_URL= lets it use this machine"
        )
    must(
        bool(SESSION_NAME.fullmatch(args.shell)),
        "--shell",
        args.shell,
        "a name of letters, digits, dots and dashes",
    )
    return await box.named_shell(args.shell).admit(args.command, options)


def _drawing(streams: Streams, answers: Answers) -> Drawing:
    from belljar.surfaces.terminal.drawing import Drawing

    return Drawing(streams.terminal_size, answers.put)


async def _show(running: Run, sink: Sink) -> None:
    async for event in running:
        if isinstance(event, Output):
            await sink.write(event)


def _hang_up(detach: DetachKeys, watching: anyio.CancelScope) -> None:
    detach.pressed = True
    watching.cancel()


def note_left_running(shell: Shell) -> None:
    sys.stdout.write("\n")
    console.note(
        f"left running; `belljar attach {shell.id}` comes back, `belljar kill {shell.id}` ends it"
    )


def _conclude(args: Namespace, result: Result, facts: dict[str, Any]) -> None:
    raw = (
        raw_streams(stdout=result.stdout_bytes, stderr=result.stderr_bytes)
        if args.json
        else {}
    )
    _print_document(
        args,
        {**result.as_dict(), "hints": list(result.hints_for("cli")), **raw, **facts},
    )
    for line in remarks(result, args):
        console.note(line)


def _print_document(args: Namespace, data: dict[str, Any]) -> None:
    if args.json:
        verdict = masking.value(data.get("verdict"))
        console.document(
            Known(args.command, dict(args.env)).hide({**data, "verdict": verdict})
        )


class SignalHandler:
    """Passes Ctrl+C and the signals that end us on to the command."""

    def __init__(self, scope: anyio.CancelScope) -> None:
        self._scope = scope
        self._running: Run | None = None
        self._sink: Sink | None = None
        self._hang_up: Callable[[], None] | None = None
        self._interrupted = False
        self.status: int | None = None

    def pass_to(
        self, running: Run, sink: Sink, hang_up: Callable[[], None] | None
    ) -> None:
        self._running, self._sink, self._hang_up = running, sink, hang_up

    @property
    def output_is_stuck(self) -> bool:
        """Nobody reads our output."""
        return self._sink is not None and self._sink.stuck

    async def listen(self, gate: SignalGate) -> None:
        with anyio.open_signal_receiver(
            signal.SIGINT, signal.SIGTERM, signal.SIGHUP
        ) as received:
            if gate.number is not None:  # it arrived before we listened
                self._pass_on(gate.number)
            async for number in received:
                self._pass_on(number)

    def _pass_on(self, number: int) -> None:
        if self._running is None or self._sink is None:
            self.status = 128 + number
            self._scope.cancel()
        elif number == signal.SIGINT and not self._interrupted:
            self._interrupted = True
            self._running.interrupt()
        elif number == signal.SIGHUP and self._hang_up is not None:
            self.status = 128 + number
            self._hang_up()
        else:
            self.status = 128 + number
            self._running.kill()
            asyncio.get_running_loop().call_later(GIVE_UP_SECONDS, self._sink.give_up)


class Sink:
    """Writes output to stdout and stderr. A write may block (a pager, a full pipe), so it happens in a thread.

    On a terminal, output is escaped; `drawn` filters that of a program with a terminal of its own. After `give_up` the
    thread may still wait for a reader, and nothing more is written.
    """

    def __init__(self, *, quiet: bool, drawn: Drawing | None = None) -> None:
        self._quiet = quiet
        self._fds = {"stdout": 1, "stderr": 2}
        self._screens: dict[str, Drawing | Screen] = {
            name: drawn or Screen() for name, fd in self._fds.items() if os.isatty(fd)
        }
        self._writing = anyio.CancelScope()
        self.stuck = False

    async def write(self, output: Output) -> None:
        if not self._quiet:
            screen = self._screens.get(output.stream)
            await self._put(
                self._fds[output.stream],
                screen.feed(output.data) if screen else output.data,
            )

    async def close(self) -> None:
        for name, screen in self._screens.items():
            if not self._quiet:
                await self._put(self._fds[name], screen.close())

    async def _put(self, fd: int, data: bytes) -> None:
        if data and not self.stuck:
            self.stuck = True
            with anyio.CancelScope() as self._writing:
                await made_in_thread(partial(self._write, fd, data), lambda _: None)

    def _write(self, fd: int, data: bytes) -> None:
        write_all(fd, data)
        self.stuck = False

    def give_up(self) -> None:
        self.stuck = True
        self._writing.cancel()
