"""What a result reports after its command has ended."""

import threading
from pathlib import Path

import pytest
from anyio import to_thread
from tests.session.test_hints import box as box

from belljar import Session
from belljar.runs_later.notify import Notifier


async def test_the_persistent_shell_names_a_child_that_ran_out_of_memory(
    box: Session,
) -> None:
    result = await box.persistent.run("python3 -c 'b = bytearray(500 << 20)'")
    assert (result.cause, result.exit_code, result.oom_kills) == (
        "out_of_memory",
        137,
        1,
    )
    assert any("memory='2g'" in hint for hint in result.hints)
    assert (await box.persistent.run("false")).hints == ()
    result = await box.persistent.run("python3 -c 'b = bytearray(500 << 20)'; true")
    assert (result.cause, result.oom_kills) == ("exited", 1), (
        "told in its own call, not in the next"
    )
    assert (await box.persistent.run("false")).oom_kills == 0


@pytest.mark.parametrize("changes", ["direct", "staged"])
async def test_the_kernels_watches_end_in_a_thread(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, changes: str
) -> None:
    """That takes the kernel up to 20 ms, in which no other session could do anything."""
    close, where, ended = Notifier.close, [], threading.Semaphore(0)

    def noted(notifier: Notifier) -> None:
        where.append(threading.current_thread())
        close(notifier)
        assert notifier._descriptor == -1
        ended.release()

    monkeypatch.setattr(Notifier, "close", noted)
    async with Session(workspace, changes=changes) as box:  # type: ignore[arg-type]
        await box.run("true")
        if box.is_staged:
            await box.checkpoint()
    for _ in range(1 + box.is_staged):
        assert await to_thread.run_sync(ended.acquire, True, 60.0)
    assert threading.current_thread() not in where
