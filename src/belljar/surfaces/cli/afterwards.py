"""Cleanup that a child process does after the command line has exited.

An ended sandbox leaves an empty control group and a few directories. The kernel takes about 15 ms to remove them, and
the user need not wait for that. If the child is killed, the next start or `belljar prune` cleans up, as after a kill -9
of Belljar.
"""

from __future__ import annotations

import os
import signal
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

from belljar.errors import BelljarError

if TYPE_CHECKING:
    from belljar.session.session import Session

MOST_SECONDS = 60
"""A thread of the parent may have held a lock at the fork, and the child would wait for it forever. This ends it."""
_work: list[Callable[[], object]] = []


def _nobody(status: int, box: Session) -> None:
    pass


answer = _nobody
"""Tells the status of a command line that leaves only its session to be ended. In a worker of the
local server, this lets the client go."""


def later(work: Callable[[], object]) -> None:
    """Register work. The last is done first."""
    _work.append(work)


def finish() -> None:
    """Do it now."""
    while _work:
        with suppress(BelljarError, OSError):
            _work.pop()()


def leave(status: int) -> NoReturn:
    """Exit, and leave the work to a child. As PID 1 of a container we do it ourselves: the child would be killed."""
    if _work and (os.getpid() == 1 or _in_child()):
        finish()
    os._exit(status)


def _in_child() -> bool:
    """Fork; True in the child. Also True if there is no fork: then this process does the work."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # about forking with threads: see MOST_SECONDS
            if os.fork():
                return False
    except OSError:
        return True
    os.setsid()  # no signal of the terminal reaches it
    for number in (signal.SIGTERM, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)
    signal.alarm(MOST_SECONDS)
    null = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(null, stream)
    os.closerange(
        3, os.sysconf("SC_OPEN_MAX")
    )  # others may wait for our pipes to close or for our locks
    return True
