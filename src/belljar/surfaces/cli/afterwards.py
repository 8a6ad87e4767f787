"""Work that nobody waits for: a child does it when the status and the output are out.

A sandbox that has ended leaves an empty control group and a few directories, and the kernel takes some 15 ms to let go
of them. Whoever ran a short command would wait for that as long as for the command. If the child is killed, the next
one that looks (`belljar prune`, any start) clears them away, as after a kill -9 of us.
"""

from __future__ import annotations

import os
import signal
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

from belljar.errors import BelljarError

MOST_SECONDS = 60
"""A child of a process with threads may wait for a lock that one of them held: it does not wait for ever."""
_work: list[Callable[[], object]] = []


def later(work: Callable[[], object]) -> None:
    """What is asked for last is done first."""
    _work.append(work)


def finish() -> None:
    """Do it now."""
    while _work:
        with suppress(BelljarError, OSError):
            _work.pop()()


def leave(status: int) -> NoReturn:
    """End this process, and have a child do what is left; the first process of a container takes all others along."""
    if _work and (os.getpid() == 1 or _is_child()):
        finish()
    os._exit(status)


def _is_child() -> bool:
    """Where none can be had, we are our own: then somebody waits after all."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # other threads: none of theirs is needed, and none holds a lock that is
            if os.fork():
                return False
    except OSError:
        return True
    os.setsid()  # no terminal's signal reaches it
    for number in (signal.SIGTERM, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)
    signal.alarm(MOST_SECONDS)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nowhere, stream)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # whoever reads from us, or waits for a lock of ours, is not kept
    return True
