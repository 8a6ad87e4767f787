"""`belljar run`: one command, its output as it comes, its status as ours.

Most of a quick command's time is the engine's, starting a container, and Python's, importing. The two go on at once:
the launch begins in a thread as soon as the options are read, and everything it does not need is imported meanwhile.
"""

from __future__ import annotations

from argparse import Namespace
from concurrent.futures import Future
from threading import Thread

from belljar import host
from belljar.images import catalog
from belljar.sandbox import rundir
from belljar.sandbox.launch import Launch, Plan, launch
from belljar.surfaces.cli import ci_report, console
from belljar.surfaces.cli.sandbox_options import limits, plan_options
from belljar.surfaces.cli.signals import SignalGate
from belljar.surfaces.cli.streams import Streams


def run(args: Namespace) -> int:
    if args.report:
        ci_report.Report(args)  # a file that cannot be written is said before anything is started
    gate = SignalGate()
    streams = Streams.of(args)
    keepable = streams.pty and streams.terminal is not None  # somebody may detach
    plan = Plan(args.workspace, limits=limits(args), keepable=keepable, **plan_options(args))
    early = None if args.session else EarlyLaunch(plan)
    try:
        if early is not None:
            early.start()
        from belljar.surfaces.cli.progress import watched

        return watched(args, early, gate, streams)
    finally:
        if early is not None:
            early.discard()


class EarlyLaunch:
    """A launch that goes on while the rest is imported."""

    def __init__(self, plan: Plan) -> None:
        self._plan, self.id = plan, rundir.new_session_id()
        self._promise: Future[Launch] | None = None
        self._taken = False

    def start(self) -> None:
        catalog.watcher = console.Bar()
        self._promise = Future()
        Thread(target=self._launch, args=(self._promise,), name="belljar-launch", daemon=True).start()

    def _launch(self, promise: Future[Launch]) -> None:
        try:
            promise.set_result(launch(self._plan, self.id, host.default()))
        except BaseException as error:
            promise.set_exception(error)

    def wait(self) -> None:
        assert self._promise is not None
        self._promise.result()

    def take(self) -> Launch:
        """What was launched; from here on the caller must end it."""
        assert self._promise is not None
        self._taken = True
        return self._promise.result()

    def discard(self) -> None:
        """Undo a launch that was not taken."""
        if self._promise is not None and not self._taken and self._promise.exception() is None:
            self._promise.result().discard()
