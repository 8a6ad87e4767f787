"""The sandbox that the parts of a session share."""

from pathlib import Path

import pytest

from belljar import Limits, Session
from belljar.errors import UsageError
from belljar.options import SandboxOptions
from belljar.session.inside import Inside


def test_without_a_sandbox_every_part_says_that_the_session_is_not_open() -> None:
    inside = Inside(SandboxOptions())
    for part in ("sandbox", "link", "aftermath"):
        with pytest.raises(UsageError, match="not open, or was closed"):
            getattr(inside, part)
    assert not inside.is_open


@pytest.mark.engine
@pytest.mark.root
async def test_after_a_checkpoint_nothing_is_counted_twice(workspace: Path) -> None:
    hog = ["python3", "-c", "x = bytearray(500 << 20)"]
    async with Session(
        workspace, changes="staged", limits=Limits(memory="64m", tmp="1m", home="1m")
    ) as box:
        assert (await box.run(hog)).oom_kills >= 1
        await box.checkpoint()
        after = await box.persistent.run("false")
        assert (after.oom_kills, after.hints) == (0, ())
        (workspace / ".git" / "hooks").mkdir(parents=True)
        assert (await box.run("true")).runs_later == ()
