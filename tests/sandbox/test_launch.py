"""Launching a verified sandbox, and removing it without a trace."""

import gc
import os
from pathlib import Path

import pytest

from belljar import Host, Session
from belljar.errors import ProtectionMissing, UsageError
from belljar.sandbox import verification


async def test_nothing_stays_mounted_on_the_host(root_workspace: Path) -> None:
    async with Session(root_workspace) as box:
        assert str(box.sandbox.run_dir) not in Path("/proc/self/mounts").read_text()
        await box.run("touch here")
    assert (root_workspace / "here").exists(), (
        "the workspace itself is never cleaned up"
    )


async def test_a_closed_session_leaves_no_descriptor(workspace: Path) -> None:
    async with Session(workspace) as box:
        await box.run("true")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        async with Session(workspace) as box:
            await box.run("seq 300000")
    assert len(os.listdir("/proc/self/fd")) <= before + 1


async def test_a_sandbox_that_lacks_a_protection_leaves_nothing(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lacking(*_: object) -> None:
        raise ProtectionMissing("not in force, so nothing was run: a test")

    host = Host(run=tmp_path / "run", state=tmp_path / "state")
    async with Session(workspace, host=host):
        pass
    gc.collect()
    before = sorted(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(verification, "verify", lacking)
    for _ in range(3):
        with pytest.raises(ProtectionMissing, match="a test"):
            await Session(workspace, host=host).open()
    assert not [path for path in (tmp_path / "run").rglob("*") if "bj-" in path.name]
    assert len(os.listdir("/proc/self/fd")) <= len(before)
    host.close()


async def test_commands_have_the_time_zone_that_the_session_was_given(
    workspace: Path,
) -> None:
    async with Session(workspace, timezone="Europe/Berlin") as box:
        assert (await box.run("date -d @0 +%Z")).stdout == "CET\n"
        assert (await box.persistent.run("date -d @0 +%H")).stdout == "01\n"


@pytest.mark.parametrize("zone", ["../x", "/etc/shadow", ":x", "a b", "a" * 65, 1])
def test_a_time_zone_is_a_name(workspace: Path, zone: object) -> None:
    with pytest.raises(UsageError, match="timezone: "):
        Session(workspace, timezone=zone)  # type: ignore[arg-type]
