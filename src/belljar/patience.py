"""How long Belljar waits for others: an engine, an init, a disk. One setting stretches every such deadline.

Deadlines are wall-clock time, so they must fit a slow or busy machine too. `BELLJAR_PATIENCE=3` makes all of them three
times as long. Time limits that a caller sets (`timeout=`) are not stretched.
"""

from __future__ import annotations

import os
from math import isfinite

from belljar.errors import UsageError

VARIABLE = "BELLJAR_PATIENCE"


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
