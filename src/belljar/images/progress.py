"""Reports the progress of a build, and repeats the report while a stage goes on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[float | None, str], None]
REPEAT_SECONDS = 5.0


def quiet(fraction: float | None, text: str) -> None:
    """Shows nothing."""


@contextmanager
def repeating(
    progress: Progress, seconds: float = REPEAT_SECONDS
) -> Iterator[Progress]:
    """Repeats the last report with the time it has taken, so that a long stage does not look like a hang."""
    last: list[tuple[float | None, str, float]] = []
    over = threading.Event()

    def report(fraction: float | None, text: str) -> None:
        last[:] = [(fraction, text, time.monotonic())]
        progress(fraction, text)

    def repeat() -> None:
        while not over.wait(seconds):
            for fraction, text, since in last[:]:
                progress(fraction, f"{text} ({time.monotonic() - since:.0f} s)")

    thread = threading.Thread(target=repeat, name="belljar-progress", daemon=True)
    thread.start()
    try:
        yield report
    finally:
        over.set()
        thread.join()
