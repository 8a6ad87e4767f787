"""Exchanging a mount in a running sandbox."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.session.test_staged import _nothing_stays as _nothing_stays

from belljar import Session

pytestmark = [pytest.mark.anyio, pytest.mark.root, pytest.mark.oci]


async def test_a_hundred_checkpoints_can_be_made_and_any_restored(root_workspace: Path) -> None:
    """On one engine and with an id-mapped workspace only: the layers are the same everywhere."""
    async with Session(root_workspace, changes="staged", engine="oci") as box:
        for number in range(100):
            await box.run(f"echo {number} > n; echo x > f{number}")
            await box.checkpoint(str(number))
        assert (await box.run("cat n; ls f* | wc -l")).stdout == "99\n100\n"
        await box.rollback("42")
        assert (await box.run("cat n; ls f* | wc -l")).stdout == "42\n43\n"
        assert len(await box.changes()) == 44
        assert [point.name for point in box.checkpoints()] == [str(number) for number in range(43)]
