"""A command while it runs: streamed, read slowly, interrupted, left."""

import anyio
import anyio.lowlevel
import anyio.to_thread
from tests.session.test_session import box as box

from belljar import Session
from belljar.session.result import Ended, Output, Started


async def test_cancelling_kills_the_command(box: Session) -> None:
    with anyio.move_on_after(0.3) as scope:
        await box.run("echo x > started; sleep 600")
    assert scope.cancelled_caught
    assert (await box.run("pgrep -c sleep; rm started")).stdout == "0\n"


async def test_events_come_while_the_command_runs(box: Session) -> None:
    async with box.stream(
        "echo ready; read -r line; echo got $line; exit 3", stdin_open=True
    ) as run:
        events = [await anext(run), await anext(run)]
        assert isinstance(events[0], Started)
        assert events[1] == Output("stdout", b"ready\n")
        await run.write(b"it\n")
        rest = [event async for event in run]
    assert rest[0] == Output("stdout", b"got it\n")
    assert isinstance(rest[-1], Ended)
    assert rest[-1].result.exit_code == 3


async def test_leaving_a_stream_early_kills_its_command(box: Session) -> None:
    async with box.stream("echo hi; sleep 600") as run:
        async for event in run:
            if isinstance(event, Output):
                break
    assert (await box.run("pgrep -c sleep")).stdout == "0\n"


async def test_interrupt_sends_ctrl_c(box: Session) -> None:
    async with box.stream("echo go; sleep 600") as run:
        async for event in run:
            if isinstance(event, Output):
                run.interrupt()
    assert run.result is not None
    assert run.result.cause == "interrupted"


async def test_a_slow_reader_holds_back_only_its_own_command(box: Session) -> None:
    async with box.stream("yes") as run:
        await anext(run)
        for n in range(20):
            assert (await box.run(f"echo {n}")).stdout == f"{n}\n"
