"""How long Belljar waits for others: an engine, an init, a disk. One setting stretches every such deadline.

Deadlines are wall-clock time, so they must fit a slow or busy machine too. `BELLJAR_PATIENCE=3` makes all of them three
times as long. Time limits that a caller sets (`timeout=`) are not stretched.

Waiting is time for something else: whoever has nothing to do but wait for a program or a daemon says so with
`about_to_wait`, and whoever has other work for such a time listens with `heard_waiting`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import isfinite

from belljar.errors import UsageError

VARIABLE = "BELLJAR_PATIENCE"
_listening = threading.local()


def patience() -> float:
    given = os.environ.get(VARIABLE) or "1"
    try:
        factor = float(given)
    except ValueError:
        factor = 0.0
    if not isfinite(factor) or not 0.001 <= factor <= 1000:
        raise UsageError(f"{VARIABLE} is {given!r}; it must be a number between 0.001 and 1000, such as 3")
    return factor


def stretched(seconds: float) -> float:
    """A deadline of this many seconds, as this machine needs it."""
    return seconds * patience()


@contextmanager
def heard_waiting(listener: Callable[[], None]) -> Iterator[None]:
    """Meanwhile `listener` is called whenever this thread is about to wait."""
    _listening.listener = listener
    try:
        yield
    finally:
        del _listening.listener


def about_to_wait() -> None:
    listener = getattr(_listening, "listener", None)
    if listener is not None:
        listener()
