"""Keeps sandboxes waiting on a shared engine, for all its hosts: started, proved, then offered.

How many wait is asked once for all of them. Starts in flight are few, and a failed one is told, and tried again later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread

from belljar.engines.base import Shares
from belljar.errors import BelljarError, Unsupported
from belljar.options import SandboxOptions
from belljar.sandbox.sandbox import Sandbox

if TYPE_CHECKING:
    from belljar.host import Host

LEASE = 3600.0
"""One that nobody takes ends after that, and another is made."""
LOOK_SECONDS = 0.5
RETRY_SECONDS = 5.0
AT_ONCE = 4


async def keep_waiting(
    options: SandboxOptions, size: int, host: Host, tell: Callable[[str], None]
) -> None:
    engine = await to_thread.run_sync(host.connect)
    if not isinstance(engine, Shares):
        raise Unsupported(f"the engine {engine.name} has no sandboxes that hosts share")
    engine.takes = False  # else it would take its own
    kind = await _offered(options, host)
    tell(f"sandboxes of kind {kind} wait")
    while True:
        there = await to_thread.run_sync(engine.count_waiting, kind)
        try:
            async with anyio.create_task_group() as starts:
                for _ in range(min(size - there, AT_ONCE)):
                    starts.start_soon(_offered, options, host)
        except* BelljarError as failed:
            tell(str(failed.exceptions[0]))
            await anyio.sleep(RETRY_SECONDS)
        await anyio.sleep(LOOK_SECONDS)


async def _offered(options: SandboxOptions, host: Host) -> str:
    return await (await Sandbox.launch(options, host)).offer(LEASE)
