"""Forks host processes that open a session, run commands and close it, and kill themselves at a given step.

    python -m tests.abuse.dying_host WORKSPACE            prints how many steps there are
    python -m tests.abuse.dying_host WORKSPACE STEP…      forks a child for each step; prints their pids

A step is a call of one of Belljar's functions, in any thread; the policy's do not count, since they change nothing.
The child ends with SIGKILL there, so no handler runs. It is forked, since importing everything again takes too long.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType
from typing import Any

import anyio

import belljar
import belljar.engines.docker.engine
import belljar.sandbox.reaper
import belljar.session.persistent_shell

AT_ONCE = 4


class Countdown:
    """Counts calls of Belljar's functions, and kills this process at call number `last`."""

    def __init__(self, last: int) -> None:
        self.count, self._last = 0, last

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        module = frame.f_globals.get("__name__", "") if event == "call" else ""
        if module.startswith("belljar") and not module.startswith("belljar.policy"):
            self.count += 1
            if self.count == self._last:
                os.kill(os.getpid(), signal.SIGKILL)


POLICY = belljar.Policy.load("default")


async def life(workspace: str, token: str) -> None:
    async with belljar.Session(workspace, lease=60, policy=POLICY) as box:
        await box.run(f"echo {token}-a >> tokens")
        await box.start(f"echo {token}-b >> tokens; sleep 600")
        await box.persistent.run(f"echo {token}-c >> tokens")


def live(workspace: str, step: int) -> int:
    countdown = Countdown(step)
    threading.setprofile(countdown)
    sys.setprofile(countdown)
    anyio.run(life, workspace, f"{os.getpid()}")
    sys.setprofile(None)
    return countdown.count


def main() -> None:
    workspace, *steps = sys.argv[1:]
    if not steps:
        print(live(workspace, 0))
        return
    running: set[int] = set()
    for step in steps:
        while len(running) >= AT_ONCE:
            running.discard(os.wait()[0])
        child = os.fork()
        if child == 0:
            os.close(1)
            live(workspace, int(step))
            os._exit(0)
        print(child, flush=True)
        running.add(child)
    while running:
        running.discard(os.wait()[0])


if __name__ == "__main__":
    main()
