"""Exchanging a mount in a running sandbox."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from tests.session.test_staged import _nothing_stays as _nothing_stays

from belljar import Session
from belljar.errors import ProtectionMissing, SandboxLost
from belljar.staged import swap

pytestmark = [pytest.mark.anyio, pytest.mark.root, pytest.mark.oci]


async def test_a_hundred_checkpoints_can_be_made_and_any_restored(
    root_workspace: Path,
) -> None:
    """On one engine and with an id-mapped workspace only: the layers are the same everywhere."""
    async with Session(root_workspace, changes="staged", engine="oci") as box:
        for number in range(100):
            await box.run(f"echo {number} > n; echo x > f{number}")
            await box.checkpoint(str(number))
        assert (await box.run("cat n; ls f* | wc -l")).stdout == "99\n100\n"
        await box.rollback("42")
        assert (await box.run("cat n; ls f* | wc -l")).stdout == "42\n43\n"
        assert len(await box.changes()) == 44
        assert [point.name for point in box.checkpoints()] == [
            str(number) for number in range(43)
        ]


async def test_a_sandbox_without_its_workspace_does_not_run_on(
    root_workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands would write to the empty directory below, and their changes would be nowhere."""
    real = swap.syscall

    def fails(number: int, *args: object) -> int:
        if number == swap.MOVE_MOUNT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return real(number, *args)

    async with Session(root_workspace, changes="staged", engine="oci") as box:
        await box.run("echo kept > kept")
        monkeypatch.setattr(swap, "syscall", fails)
        with pytest.raises(ProtectionMissing, match="cannot be exchanged"):
            await box.checkpoint("now")
        with pytest.raises(SandboxLost, match="its changes are kept"):
            await box.run("true")
        assert [change.path for change in await box.changes()] == ["kept"]
