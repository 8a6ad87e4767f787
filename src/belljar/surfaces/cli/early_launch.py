"""A launch in a thread, while the main thread imports the rest: what `belljar run` begins with."""

from __future__ import annotations

import os
from contextlib import ExitStack, suppress
from threading import Event, Thread, Timer

from belljar import host
from belljar.images import catalog
from belljar.options import SandboxOptions
from belljar.patience import on_wait
from belljar.sandbox import rundir
from belljar.sandbox.launch import Launch, launch, reap_remains
from belljar.surfaces.cli import afterwards, console

PREPARATION_SECONDS = (
    0.5  # a launch asks the engine after 20 ms, unless an image must be built first
)
SHORT_SECONDS = 1.0
STOP_SECONDS = 1.0  # a launch that builds no image has ended by then


def _none(options: SandboxOptions, host: host.Host) -> Launch | None:
    return None


waiting = _none
"""What has a sandbox of this kind that waits to be used, in a worker of the local server."""


def is_served() -> bool:
    """Whether this is such a worker."""
    return waiting is not _none


class EarlyLaunch:
    """Start it, and `take` what it launched, or `discard` it."""

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
        self._launched = waiting(self.options, self._host)
        if self._launched is not None:
            self._over.set()
            return
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
                if (
                    self.options.changes == "direct"
                    and self._host.connect().capabilities.binds
                ):
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
        if self._thread is not None or self._launched is not None:
            while not self._over.wait(STOP_SECONDS):
                catalog.stop_building()  # building an image may take minutes, and nobody needs it now
            if self._launched is not None:
                self._launched.discard()
