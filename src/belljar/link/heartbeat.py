"""A thread that tells the init behind a bridge that its host lives, also while the host's event loop stands still.

On this machine the kernel tells the init when the host dies: its socket closes. Behind a bridge a dead host only leaves
silence, so the init gives up a connection that is silent for 25 s, and then its lease runs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

EVERY = 5.0  # seconds; an init waits five times as long


class Heartbeat:
    def __init__(self, beat: Callable[[], None]) -> None:
        self._beat, self._stopped = beat, threading.Event()
        threading.Thread(target=self._run, name="belljar-heartbeat", daemon=True).start()

    def _run(self) -> None:
        while not self._stopped.wait(EVERY):
            self._beat()

    def stop(self) -> None:
        self._stopped.set()
