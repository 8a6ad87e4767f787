"""A failing output callback harms only its own command."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager

import anyio
import pytest
from tests.session.test_session import box as box

from belljar import Output, Session


@pytest.mark.parametrize("error", [OSError("no"), ValueError("no"), KeyError("no")])
async def test_an_on_output_that_raises_ends_its_command_and_nothing_else(
    box: Session, error: Exception
) -> None:
    def fail(_: Output) -> None:
        raise error

    results: list[str] = []

    async def beside() -> None:
        results.append((await box.run("sleep 0.3; echo beside")).stdout)

    async def watch(stream: AbstractAsyncContextManager[AsyncIterator[object]]) -> None:
        async with stream as events:
            async for _ in events:
                pass

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(beside)
        for run in (box.run, box.persistent.run):
            with anyio.fail_after(120), pytest.raises(type(error), match="no"):
                await run("echo one; sleep 60", on_output=fail)
        with anyio.fail_after(120), pytest.raises(type(error), match="no"):
            await watch(box.stream("echo one; sleep 60", on_output=fail))
    assert results == ["beside\n"]
    assert (await box.run("pgrep -c sleep")).stdout == "0\n"
