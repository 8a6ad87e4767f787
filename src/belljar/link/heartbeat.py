"""A thread that tells an init behind a bridge that the host is alive, even while the host's event loop is blocked.

On this machine the init's socket closes when the host dies. Behind a bridge nothing closes, so the init drops a
connection that is silent for 25 s; then its lease starts to run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

EVERY = 5.0  # seconds; the init waits five times as long


class Heartbeat:
    def __init__(self, beat: Callable[[], None]) -> None:
        self._beat, self._stopped = beat, threading.Event()
        threading.Thread(target=self._run, name="belljar-heartbeat", daemon=True).start()

    def _run(self) -> None:
        while not self._stopped.wait(EVERY):
            self._beat()

    def stop(self) -> None:
        self._stopped.set()
