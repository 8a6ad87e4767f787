"""A sandbox that stops answering."""

from pathlib import Path

import anyio
import anyio.lowlevel
import anyio.to_thread
from tests.session.test_session import box as box

import belljar


async def test_a_paused_container_counts_as_a_lost_sandbox(workspace: Path, docker_client: object) -> None:
    async with belljar.Session(workspace) as box:
        container = docker_client.containers.get(box.sandbox.launched.id)  # type: ignore[attr-defined]
        await anyio.to_thread.run_sync(container.pause)
        with anyio.fail_after(120):
            assert (await box.run("true")).cause == "sandbox_lost"
