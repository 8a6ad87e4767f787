"""Filters for a shell's output."""

from __future__ import annotations

import anyio
import pytest
from tests.tools.test_bash import ended, start

from belljar import Session, ToolRegistry


async def test_bash_output_filters_lines(tools: ToolRegistry, box: Session) -> None:
    id = await start(tools, "for i in 1 2 3 12; do echo line $i; done; printf last1")
    await ended(box, id)
    assert (
        await tools.call("BashOutput", {"bash_id": id, "filter": "1"})
    ).output == "line 1\nline 12\nlast1"
    assert "line 2" in (
        (await tools.call("BashOutput", {"bash_id": id})).output or ""
    ), "a filter eats nothing"


@pytest.mark.parametrize("pattern", ["(", "[z-a]", "(?P<"])
async def test_a_bad_filter_is_reported(
    tools: ToolRegistry, box: Session, pattern: str
) -> None:
    id = await start(tools, "echo x")
    result = await tools.call("BashOutput", {"bash_id": id, "filter": pattern})
    assert not result.success
    assert (result.error or "").startswith("Invalid filter regex: ")


async def test_a_filter_that_backtracks_cannot_hang_the_host(
    tools: ToolRegistry, box: Session
) -> None:
    id = await start(tools, "printf 'a%.0s' $(seq 5000); echo b")
    await ended(box, id)
    with anyio.fail_after(120):
        result = await tools.call(
            "BashOutput", {"bash_id": id, "filter": r"(a|a)*$|(a+)+$"}
        )
    assert result.success or (result.error or "").startswith("Invalid filter regex: ")
