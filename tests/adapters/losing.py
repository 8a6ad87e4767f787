"""A sandbox that goes away while a command runs in it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


async def lost_while(box: Any, running: Coroutine[Any, Any, Any]) -> Any:
    """What comes of a call that runs `sleep` when its sandbox is destroyed."""
    task = asyncio.ensure_future(running)
    await box.run("until pgrep -x sleep; do :; done")
    await box.sandbox.destroy()
    return await task
