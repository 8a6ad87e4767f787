"""The events of a command that is watched while it runs."""

from typing import Any

import anyio
import pytest
from tests.link.conftest import Pair, spawned
from tests.link.conftest import pair as pair

from belljar import Result
from belljar.errors import SandboxLost, UsageError
from belljar.link import remote_process
from belljar.session.running_command import RunningCommand
from belljar.session.watched_run import Run


@pytest.mark.parametrize("signo", [-1, 0, 65, 1 << 40, True, "HUP"])
async def test_a_signal_that_does_not_exist_is_not_sent(pair: Pair, signo: Any) -> None:
    process = spawned(pair)
    running = RunningCommand(None, process, None, {}, 1 << 20)  # type: ignore[arg-type]
    run = Run(running, process.started)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="signo"):
        run.signal(signo)


async def test_a_command_that_the_init_never_starts_ends_with_its_timeout(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_process, "PATIENCE", 0.01)
    process = spawned(pair)
    running = RunningCommand(None, process, None, {}, 1 << 20)  # type: ignore[arg-type]
    run = Run(running, process.started)  # type: ignore[arg-type]

    async def conclude() -> Result:
        await process.ended(0.01)
        raise AssertionError

    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run.follow, conclude)
            tasks.start_soon(pair.answer_ping)
            with pytest.raises(SandboxLost, match="missed a deadline"):
                await anext(run)
