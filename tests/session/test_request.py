"""A request runs once, in the session that admitted it."""

from pathlib import Path

import pytest

from belljar import Session
from belljar.errors import UsageError


async def test_a_request_runs_only_where_it_was_admitted(workspace: Path) -> None:
    async with Session(workspace) as box, Session(workspace) as other:
        request = await box.admit("echo hi")
        assert (await box.run(request)).stdout == "hi\n"
        for way in (other.run(request), box.run(request, timeout=5)):
            with pytest.raises(UsageError, match="only in the session that admitted it"):
                await way
