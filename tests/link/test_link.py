"""The link against an init that lies, stalls or breaks off: faults that a real init does not make on request."""

import os
import socket
import struct
from collections.abc import AsyncIterator

import anyio
import anyio.lowlevel
import pytest

from belljar.errors import (
    CommandError,
    CommandNotExecutable,
    CommandNotFound,
    SandboxLost,
    ShellNotFound,
    WorkingDirectoryError,
)
from belljar.link import frames, link
from belljar.link.frames import Flag, From
from belljar.link.link import Link
from belljar.link.remote_command import INPUT_WINDOW, Execution
from belljar.link.transport import SocketTransport

ENDED = struct.pack("<4I6Q2I", 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)


class Pair:
    def __init__(self) -> None:
        ours, self.init = socket.socketpair()
        self.init.setblocking(False)
        self.alive = True
        self.link = Link(SocketTransport(ours), self._still_alive)

    async def _still_alive(self) -> bool:
        return self.alive

    def say(self, kind: int, id: int, payload: bytes = b"", stream: int = 0) -> None:
        self.init.sendall(frames.HEADER.pack(len(payload), kind, stream, 0, id) + payload)

    def output(self, id: int, data: bytes, offset: int = 0) -> None:
        self.say(From.OUTPUT, id, struct.pack("<Q", offset) + data, frames.STDOUT)


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    made = Pair()
    yield made
    made.link.close()
    made.init.close()


def spawned(pair: Pair, **options: object) -> Execution:
    return pair.link.spawn([b"true"], flags=Flag.SHELL, **options)  # type: ignore[arg-type]


async def test_a_command_is_told_its_start_output_and_end(pair: Pair) -> None:
    heard: list[bytes] = []
    execution = spawned(pair)
    execution.on_output = lambda stream, data: heard.append(data)
    pair.say(From.STARTED, execution.id, frames.u32(12))
    pair.output(execution.id, b"hi")
    pair.say(From.ENDED, execution.id, ENDED)
    assert await execution.started() == 12
    assert (await execution.ended()).exit_code == 0
    assert heard == [b"hi"]


async def test_output_beyond_its_credit_costs_the_connection(pair: Pair) -> None:
    execution = spawned(pair, paced=True)
    part = b"x" * (128 << 10)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_flood, pair, execution.id, part)
        with pytest.raises(SandboxLost, match="beyond its credit"):
            await execution.ended()


async def _flood(pair: Pair, id: int, part: bytes) -> None:
    try:
        while pair.link.lost is None:
            raw = frames.HEADER.pack(len(part) + 8, From.OUTPUT, 1, 0, id) + bytes(8) + part
            while raw:
                await anyio.wait_writable(pair.init)
                raw = raw[pair.init.send(raw) :]
    except OSError:
        pass


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        (200, b""),
        (From.READ_REPLY, b"garbage"),
        (From.LIST_REPLY, frames.u32(0)),
        (From.HELLO, struct.pack("<IIQI", 9, 1, 1, 0)),
        (From.ENDED, b"short"),
        (From.INPUT_ACK, frames.u64(99)),
    ],
)
async def test_a_frame_that_cannot_be_ends_the_link_and_everyone_learns(pair: Pair, kind: int, payload: bytes) -> None:
    execution = spawned(pair)
    pair.say(kind, execution.id, payload)
    with pytest.raises(SandboxLost, match="broke the protocol"):
        await execution.ended()
    with pytest.raises(SandboxLost):
        spawned(pair)


@pytest.mark.parametrize(("stream", "end"), [(0, 0), (1, 1), (2, 1), (3, 1)])
async def test_an_end_that_does_not_fit_its_stream_costs_the_connection(pair: Pair, stream: int, end: int) -> None:
    execution, ends = spawned(pair), os.pipe()
    frame = frames.HEADER.pack(8, From.PIPE, stream, 0, execution.id) + bytes(8)
    socket.send_fds(pair.init, [frame], [ends[end]])
    with pytest.raises(SandboxLost):
        await execution.ended()
    for each in ends:
        os.close(each)


async def test_input_that_is_still_under_way_is_not_overtaken(pair: Pair) -> None:
    execution, (reading, writing) = spawned(pair), os.pipe()
    await execution.input(b"first", frames.CONTROL)
    socket.send_fds(pair.init, [frames.HEADER.pack(8, From.PIPE, 0, 0, execution.id) + bytes(8)], [writing])
    pair.say(From.STARTED, execution.id, struct.pack("<I", 1))
    await execution.started()
    await execution.input(b"second", frames.CONTROL)
    os.close(writing)
    assert os.read(reading, 10) == b"", "both went through the init"
    os.close(reading)


async def test_an_init_that_hangs_up_ends_all_that_waits(pair: Pair) -> None:
    execution = spawned(pair)
    pair.init.close()
    with pytest.raises(SandboxLost):
        await execution.ended()
    with pytest.raises(SandboxLost):
        await pair.link.list()


async def test_silence_is_asked_about_and_then_believed(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "PULSE", 0.01)
    monkeypatch.setattr(link, "SUSPECT", 0.05)
    pair.alive = False
    execution = spawned(pair)
    with anyio.fail_after(5), pytest.raises(SandboxLost, match="stopped answering"):
        await execution.ended()


async def test_a_busy_sandbox_that_the_engine_vouches_for_is_given_time(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "PULSE", 0.01)
    monkeypatch.setattr(link, "SUSPECT", 0.02)
    monkeypatch.setattr(link, "GIVE_UP", 0.3)
    execution = spawned(pair)
    with anyio.fail_after(5), pytest.raises(SandboxLost, match="stopped answering"):
        await execution.ended()


async def test_last_words_of_a_command_that_was_given_up_are_ignored(pair: Pair) -> None:
    execution = spawned(pair)
    execution.abandon()
    pair.link.forget(execution)
    pair.output(execution.id, b"late")
    pair.say(From.ENDED, execution.id, ENDED)
    pair.say(From.ERROR, execution.id, frames.u32(2) + b"no such command")
    pair.say(From.PONG, 0, frames.u64(0))
    await anyio.lowlevel.checkpoint()
    assert pair.link.lost is None


async def test_input_waits_for_the_init_to_take_it(pair: Pair) -> None:
    execution = spawned(pair)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(execution.input, b"x" * (INPUT_WINDOW + 10))
        await anyio.wait_all_tasks_blocked()
        assert execution._sent[0] == INPUT_WINDOW
        pair.say(From.INPUT_ACK, execution.id, frames.u64(INPUT_WINDOW))
    assert execution._sent[0] == INPUT_WINDOW + 10


async def test_input_to_a_command_that_ended_is_dropped(pair: Pair) -> None:
    execution = spawned(pair)
    pair.say(From.ENDED, execution.id, ENDED)
    await execution.ended()
    await execution.input(b"too late")
    execution.close_input()


async def test_what_the_socket_does_not_take_waits_its_turn(pair: Pair) -> None:
    execution = spawned(pair)
    big = b"y" * (8 << 20)
    pair.link.send(frames.frame(frames.To.INPUT, execution.id, big[: frames.MAX_TO_INIT]))
    taken = 0
    with anyio.fail_after(10):
        while taken < len(big):
            await anyio.wait_readable(pair.init)
            taken += len(pair.init.recv(1 << 20))


async def test_a_read_of_an_unknown_shell_says_so(pair: Pair) -> None:
    async with anyio.create_task_group() as tasks:

        async def ask() -> None:
            with pytest.raises(ShellNotFound):
                await pair.link.read(5, 0, 0, 10)

        tasks.start_soon(ask)
        await anyio.wait_all_tasks_blocked()
        pair.say(From.ERROR, 5, frames.u32(2) + b"no such command")


@pytest.mark.parametrize(
    ("code", "stage", "kind"),
    [
        (2, frames.Stage.CWD, WorkingDirectoryError),
        (2, frames.Stage.EXEC, CommandNotFound),
        (13, frames.Stage.EXEC, CommandNotExecutable),
        (7, frames.Stage.EXEC, CommandError),
        (12, frames.Stage.RESOURCES, CommandError),
    ],
)
async def test_a_failed_start_has_a_typed_error(pair: Pair, code: int, stage: int, kind: type[CommandError]) -> None:
    execution = spawned(pair)
    pair.say(From.SPAWN_ERROR, execution.id, frames.u32(code, stage) + b"why")
    with pytest.raises(CommandError) as failed:
        await execution.started()
    assert type(failed.value) is kind


async def test_milliseconds_on_the_wire_are_never_zero_by_rounding() -> None:
    assert [frames.milliseconds(value) for value in (None, 0, -1, 0.0001, 1.5, 1e12)] == [0, 0, 0, 1, 1500, 0xFFFFFFFF]
