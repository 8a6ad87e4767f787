"""One command in the init, as the host sees it."""

import anyio
import anyio.lowlevel
import pytest
from tests.link.conftest import ENDED, Pair, spawned, started_command

from belljar.errors import SandboxLost
from belljar.link import frames
from belljar.link.frames import Flag, From
from belljar.link.streams import INPUT_WINDOW


async def test_start_output_and_end_reach_the_command_s_object(pair: Pair) -> None:
    heard: list[bytes] = []
    process = spawned(pair)
    process.on_output = lambda stream, data: heard.append(data)
    pair.say(From.STARTED, process.id, frames.u32(12))
    pair.output(process.id, b"hi")
    pair.say(From.ENDED, process.id, ENDED)
    assert await process.started() == 12
    assert (await process.ended()).exit_code == 0
    assert heard == [b"hi"]


@pytest.mark.parametrize("twice", [From.STARTED, From.ENDED])
async def test_a_command_starts_once_and_ends_once(pair: Pair, twice: From) -> None:
    process = await started_command(pair, Flag.SHELL)
    if twice == From.ENDED:
        pair.say(From.ENDED, process.id, ENDED)
    pair.say(twice, process.id, ENDED if twice == From.ENDED else frames.u32(1))
    with pytest.raises(SandboxLost, match="broke the protocol"):
        await pair.link.ping()


async def test_an_on_output_that_raises_ends_only_its_own_command(pair: Pair) -> None:
    def on_output(stream: int, data: bytes) -> None:
        raise OSError("disk full")

    failing, other = (
        await started_command(pair, Flag.SHELL),
        await started_command(pair, Flag.SHELL),
    )
    failing.on_output = on_output
    heard: list[bytes] = []
    other.on_output = lambda stream, data: heard.append(data)
    pair.output(failing.id, b"one")
    pair.output(failing.id, b"two", 3)
    pair.output(other.id, b"fine")
    pair.say(From.ENDED, other.id, ENDED)
    pair.say(From.ENDED, failing.id, ENDED)
    assert (await other.ended()).exit_code == 0
    with pytest.raises(OSError, match="disk full"):
        await failing.ended()
    assert heard == [b"fine"]
    assert pair.link.lost is None


async def test_late_frames_of_an_abandoned_command_are_ignored(pair: Pair) -> None:
    process = spawned(pair)
    process.abandon()
    pair.say(From.STARTED, process.id, frames.u32(1))
    pair.output(process.id, b"late")
    pair.say(From.ENDED, process.id, ENDED)
    await process.ended()
    pair.say(From.ERROR, process.id, frames.u32(2) + b"no such command")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(pair.link.ping)
        await anyio.wait_all_tasks_blocked()
        pair.say(From.PONG, 0, bytes(8))
    assert pair.link.lost is None


async def test_a_late_start_frame_of_an_abandoned_shell_is_accepted_once(
    pair: Pair,
) -> None:
    process = pair.link.spawn([b"true"], flags=Flag.SHELL | Flag.BACKGROUND)
    process.abandon()
    pair.link.forget(process)
    pair.say(From.STARTED, process.id, frames.u32(1))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(pair.link.ping)
        await anyio.wait_all_tasks_blocked()
        pair.say(From.PONG, 0, bytes(8))
    for _ in range(70):
        pair.say(From.STARTED, process.id, frames.u32(1))
    with pytest.raises(SandboxLost, match="broke the protocol"):
        await pair.link.ping()


async def test_input_waits_for_the_init_to_take_it(pair: Pair) -> None:
    process = spawned(pair)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(process.input, b"x" * (INPUT_WINDOW + 10))
        await anyio.wait_all_tasks_blocked()
        assert process._inputs[0].sent == INPUT_WINDOW
        pair.say(From.INPUT_ACK, process.id, frames.u64(INPUT_WINDOW))
    assert process._inputs[0].sent == INPUT_WINDOW + 10


async def test_input_to_a_command_that_ended_is_dropped(pair: Pair) -> None:
    process = spawned(pair)
    pair.say(From.ENDED, process.id, ENDED)
    await process.ended()
    await process.input(b"too late")
    process.close_input()


async def test_milliseconds_on_the_wire_are_never_zero_by_rounding() -> None:
    assert [
        frames.milliseconds(value) for value in (None, 0, -1, 0.0001, 1.5, 1e12)
    ] == [0, 0, 0, 1, 1500, 0xFFFFFFFF]
