"""`belljar run`: runs one command, shows its output and exits with its status.

A quick command spends most of its time on two things: the engine starts a container, and Python imports modules. They
happen at the same time: the launch starts in a thread as soon as the options are read, and while that waits for the
engine, the main thread imports the rest.
"""

from __future__ import annotations

import os
from argparse import Namespace
from contextlib import ExitStack, suppress
from threading import Event, Thread, Timer

from belljar import host
from belljar.images import catalog
from belljar.options import SandboxOptions
from belljar.patience import on_wait
from belljar.sandbox import rundir
from belljar.sandbox.launch import Launch, launch, reap_remains
from belljar.surfaces.cli import afterwards, ci_report, console
from belljar.surfaces.cli.sandbox_options import options_of
from belljar.surfaces.cli.signals import SignalGate, interrupts_delayed
from belljar.surfaces.cli.streams import Streams

PREPARATION_SECONDS = 0.5  # a launch asks the engine after 20 ms, unless an image must be built first
SHORT_SECONDS = 1.0
STOP_SECONDS = 1.0  # a launch that builds no image has ended by then


def run(args: Namespace) -> int:
    if args.report:
        ci_report.Report(args)  # fails before anything is started if the file cannot be written
    gate = SignalGate()
    streams = Streams.of(args)
    keepable = streams.pty and streams.terminal is not None  # the user may detach
    early = None if args.session else EarlyLaunch(options_of(args, keepable=keepable), args.cwd)
    try:
        with interrupts_delayed():
            if early is not None:
                early.start()
            from belljar.surfaces.cli.foreground import run_and_show

        return run_and_show(args, early, gate, streams)
    finally:
        if early is not None:
            early.discard()


class EarlyLaunch:
    """A launch in a thread, while the main thread imports the rest."""

    def __init__(self, options: SandboxOptions, cwd: str | None = None) -> None:
        self.options, self._cwd = options, cwd
        self.id, self._host = rundir.new_session_id(), host.default()
        self._waits, self._over = Event(), Event()
        self._launched: Launch | None = None
        self._failure: BaseException | None = None
        self._thread: Thread | None = None

    def start(self) -> None:
        """Returns when the engine is at work: until then both threads would compete for the interpreter."""
        self._host.progress = console.Bar()
        if self._host.reaping.acquire(blocking=False):
            self._reap_when_idle()
        self._thread = Thread(target=self._launch, name="belljar-launch", daemon=True)
        self._thread.start()
        self._waits.wait(PREPARATION_SECONDS)

    def _reap_when_idle(self) -> None:
        """Look for the remains of dead processes after a short command, or in the middle of a long one."""
        afterwards.later(lambda: reap_remains(self._host))
        timer = Timer(SHORT_SECONDS, reap_remains, [self._host])
        timer.daemon = True
        timer.start()

    def _launch(self) -> None:
        try:
            with on_wait(self._waits.set):
                self._check_cwd()
                self._launched = launch(self.options, self.id, self._host)
        except BaseException as error:
            self._failure = error
        finally:
            self._over.set()
            self._waits.set()

    def _check_cwd(self) -> None:
        """Refuse a wrong directory before the launch. The session checks it again."""
        if not self._cwd:
            return
        from belljar.workspace.beneath import Folder
        from belljar.workspace.cwd import in_sandbox

        path, root = os.path.realpath(self.options.workspace), None
        with ExitStack() as opened:
            with suppress(OSError):  # if there is no workspace, the launch reports it
                if self.options.changes == "direct" and self._host.connect().capabilities.binds:
                    root = opened.enter_context(Folder.at(path)).descriptor
            in_sandbox(path, self._cwd, root=root)

    def wait(self) -> None:
        self._over.wait()
        if self._failure is not None:
            raise self._failure

    def take(self) -> Launch:
        """The launched sandbox. From now on the caller must end it."""
        self.wait()
        assert self._launched is not None
        launched, self._launched = self._launched, None
        return launched

    def discard(self) -> None:
        if self._thread is not None:
            while not self._over.wait(STOP_SECONDS):
                catalog.stop_building()  # building an image may take minutes, and nobody needs it now
            if self._launched is not None:
                self._launched.discard()
