"""A command's stdin: what it is given, what is written to it, and where it ends."""

from __future__ import annotations

import pytest
from tests.session.test_session import box as box

import belljar
from belljar import Session
from belljar.errors import UsageError


@pytest.mark.parametrize("empty", [b"", ""])
async def test_an_empty_input_has_an_end(box: Session, empty: bytes | str) -> None:
    assert (await box.run(["cat"], stdin=empty)).exit_code == 0
    made = await box.yielding("cat", yield_after=60, stdin=empty)
    assert isinstance(made, belljar.Result)
    async with box.stream("cat; echo over", stdin=empty) as events:
        assert [event.data async for event in events if isinstance(event, belljar.Output)] == [b"over\n"]


async def test_an_open_input_takes_more_until_it_is_closed(box: Session) -> None:
    async with box.stream("cat", stdin=b"first ", stdin_open=True) as events:
        await events.write(b"second")
        events.close_input()
        assert b"".join([event.data async for event in events if isinstance(event, belljar.Output)]) == b"first second"
    with pytest.raises(UsageError, match="stdin_open"):
        await box.run("cat", stdin_open=True)  # nobody could close it
