"""Launching a verified sandbox, and removing it without a trace."""

import os
from pathlib import Path

from belljar import Session


async def test_nothing_stays_mounted_on_the_host(root_workspace: Path) -> None:
    async with Session(root_workspace) as box:
        assert str(box.sandbox.run_dir) not in Path("/proc/self/mounts").read_text()
        await box.run("touch here")
    assert (root_workspace / "here").exists(), "the workspace itself is never cleaned up"


async def test_a_closed_session_leaves_no_descriptor(workspace: Path) -> None:
    async with Session(workspace) as box:
        await box.run("true")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        async with Session(workspace) as box:
            await box.run("seq 300000")
    assert len(os.listdir("/proc/self/fd")) <= before + 1
