"""How long Belljar waits for an engine, an init or a disk. One setting stretches these deadlines.

Deadlines are wall-clock time, so they may be too short on a slow or busy machine. `BELLJAR_PATIENCE=3` makes them
three times as long. Time limits that a caller sets (`timeout=`) are not stretched, nor is the time after which a
silent init is given up (`link/link.py`).

A thread calls `about_to_wait` before it waits for a program or a daemon. `on_wait` registers a function that is called
then: `belljar run` uses it to import modules while the engine works.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import isfinite

from belljar import environment
from belljar.errors import UsageError

VARIABLE = "BELLJAR_PATIENCE"
_thread = threading.local()


def patience() -> float:
    text = environment.value(VARIABLE, "1")
    try:
        factor = float(text)
    except ValueError:
        factor = 0.0
    if not isfinite(factor) or not 0.001 <= factor <= 1000:
        raise UsageError(
            f"{VARIABLE} is {text!r}; it must be a number between 0.001 and 1000, such as 3"
        )
    return factor


def stretched(seconds: float) -> float:
    """Seconds, multiplied by BELLJAR_PATIENCE."""
    return seconds * patience()


@contextmanager
def on_wait(callback: Callable[[], None]) -> Iterator[None]:
    """Within this block `callback` is called whenever this thread is about to wait."""
    _thread.callback = callback
    try:
        yield
    finally:
        del _thread.callback


def about_to_wait() -> None:
    callback = getattr(_thread, "callback", None)
    if callback is not None:
        callback()
