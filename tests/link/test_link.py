"""The link against an init that lies, stalls or breaks off: faults that a real init does not make on request."""

import contextlib
import os
import socket
import struct
import time
from collections.abc import AsyncIterator
from pathlib import Path

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
from belljar.link import frames, heartbeat, link
from belljar.link.frames import Flag, From, To
from belljar.link.link import Link
from belljar.link.remote_command import INPUT_WINDOW, Execution
from belljar.link.transport import SocketTransport

WELCOME = struct.pack("<IIQII", frames.VERSION, 1, 99, 0, 7)
ENDED = struct.pack("<4I6Q2I", 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)


def stand_still(seconds: float) -> None:
    """Nothing else of the loop runs meanwhile."""
    time.sleep(seconds)


class Pair:
    def __init__(self) -> None:
        ours, self.init = socket.socketpair()
        self.init.setblocking(False)
        self.alive = True
        self.link = Link(SocketTransport(ours), self._still_alive)
        self.link._questions.ask(From.WELCOME)
        self.say(From.WELCOME, 0, WELCOME)

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
    pair.say(From.STARTED, execution.id, frames.u32(1))
    part = b"x" * (128 << 10)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_flood, pair, execution.id, part)
        with pytest.raises(SandboxLost, match="beyond its credit"):
            await execution.ended()


async def _flood(pair: Pair, id: int, part: bytes, stream: int = 1) -> None:
    try:
        while pair.link.lost is None:
            raw = frames.HEADER.pack(len(part) + 8, From.OUTPUT, stream, 0, id) + bytes(8) + part
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
        (From.WELCOME, WELCOME),
        (From.ENDED, b"short"),
        (From.INPUT_ACK, frames.u64(99)),
        (From.INPUT_ACK, frames.u64(0)),
        (From.OUTPUT, bytes(9)),
        (From.PONG, bytes(8)),
        (From.ERROR, frames.u32(2)),
        (From.STATE_REPLY, bytes(24)),
        (From.PIPE, bytes(8)),
    ],
)
async def test_a_frame_that_cannot_be_ends_the_link_and_everyone_learns(pair: Pair, kind: int, payload: bytes) -> None:
    execution = spawned(pair)
    pair.say(kind, execution.id, payload)
    with pytest.raises(SandboxLost, match="broke the protocol"):
        await execution.ended()
    with pytest.raises(SandboxLost):
        spawned(pair)


@pytest.mark.parametrize("kind", [From.STARTED, From.OUTPUT, From.ENDED, From.SPAWN_ERROR, From.INPUT_ACK, From.PIPE])
async def test_a_frame_for_a_command_that_never_was_costs_the_connection(pair: Pair, kind: From) -> None:
    execution = spawned(pair)
    pair.say(kind, execution.id + 2, ENDED if kind == From.ENDED else bytes(9 if kind == From.OUTPUT else 8)[:72])
    with pytest.raises(SandboxLost, match="broke the protocol"):
        await execution.ended()


async def test_nothing_is_heard_before_the_greeting() -> None:
    ours, theirs = socket.socketpair()
    greeted = Link(SocketTransport(ours))
    theirs.sendall(frames.HEADER.pack(8, From.PONG, 0, 0, 0) + bytes(8))
    with pytest.raises(SandboxLost, match="nobody asked for"):
        await greeted.hello()
    theirs.close()


async def test_another_protocol_is_one_clear_error() -> None:
    ours, theirs = socket.socketpair()
    greeted = Link(SocketTransport(ours))
    theirs.sendall(frames.HEADER.pack(24, From.WELCOME, 0, 0, 0) + struct.pack("<IIQII", 77, 1, 1, 0, 0))
    with pytest.raises(SandboxLost, match="speaks protocol 77, this Belljar protocol"):
        await greeted.hello()
    theirs.close()


@pytest.mark.parametrize("twice", [From.STARTED, From.ENDED])
async def test_a_command_starts_once_and_ends_once(pair: Pair, twice: From) -> None:
    execution = await running(pair, Flag.SHELL)
    if twice == From.ENDED:
        pair.say(From.ENDED, execution.id, ENDED)
    pair.say(twice, execution.id, ENDED if twice == From.ENDED else frames.u32(1))
    with pytest.raises(SandboxLost):
        await pair.link.ping()


@pytest.mark.parametrize(
    ("flags", "stream"),
    [(Flag.SHELL, frames.CONTROL), (Flag.SHELL | Flag.PTY, frames.STDERR), (Flag.SHELL | Flag.BACKGROUND, 1)],
)
async def test_output_on_a_stream_that_was_not_asked_for_costs_the_connection(
    pair: Pair, flags: int, stream: int
) -> None:
    execution = pair.link.spawn([b"true"], flags=flags)
    pair.say(From.STARTED, execution.id, frames.u32(1))
    pair.say(From.OUTPUT, execution.id, bytes(8) + b"x", stream)
    with pytest.raises(SandboxLost):
        await pair.link.ping()


async def test_control_output_has_credit_like_any_other(pair: Pair) -> None:
    execution = pair.link.spawn([b"true"], flags=Flag.CONTROL, paced=True)
    pair.say(From.STARTED, execution.id, frames.u32(1))
    await execution.started()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_flood, pair, execution.id, b"x" * (128 << 10), frames.CONTROL)
        with pytest.raises(SandboxLost, match="beyond its credit"):
            await execution.ended()


DIRECT = Flag.CONTROL | Flag.DIRECT


def passed(pair: Pair, id: int, stream: int, *descriptors: int) -> None:
    socket.send_fds(pair.init, [frames.HEADER.pack(8, From.PIPE, stream, 0, id) + bytes(8)], descriptors)


async def running(pair: Pair, flags: int) -> Execution:
    execution = pair.link.spawn([b"true"], flags=flags)
    pair.say(From.STARTED, execution.id, frames.u32(1))
    await execution.started()
    return execution


@pytest.mark.parametrize(("stream", "end"), [(0, 0), (1, 1), (2, 1), (3, 1)])
async def test_an_end_that_does_not_fit_its_stream_costs_the_connection(pair: Pair, stream: int, end: int) -> None:
    execution, ends = await running(pair, DIRECT), os.pipe()
    passed(pair, execution.id, stream, ends[end])
    with pytest.raises(SandboxLost):
        await execution.ended()
    for each in ends:
        os.close(each)


@pytest.mark.parametrize(
    ("flags", "stream"), [(Flag.SHELL, 0), (Flag.SHELL, 3), (Flag.PTY, 1), (Flag.CONTROL, 3), (Flag.DIRECT, 3)], ids=str
)
async def test_a_pipe_that_nobody_asked_for_costs_the_connection(pair: Pair, flags: int, stream: int) -> None:
    execution, ends = await running(pair, flags), os.pipe()
    passed(pair, execution.id, stream, ends[stream == 0])
    with pytest.raises(SandboxLost, match="nobody asked for"):
        await execution.ended()
    for each in ends:
        os.close(each)


async def test_a_descriptor_without_its_frame_costs_the_connection(pair: Pair) -> None:
    execution, ends = await running(pair, Flag.SHELL), os.pipe()
    socket.send_fds(pair.init, [frames.HEADER.pack(9, From.OUTPUT, 1, 0, execution.id) + bytes(9)], [ends[0]])
    with pytest.raises(SandboxLost, match="belongs to no stream"):
        await execution.ended()
    for each in ends:
        os.close(each)


async def test_a_pipe_that_the_init_makes_block_again_blocks_nobody(pair: Pair) -> None:
    """Its flags are shared with whoever holds it, unless it is opened anew."""
    execution, (reading, writing) = await running(pair, Flag.SHELL), os.pipe()
    heard: list[bytes] = []
    execution.on_output = lambda stream, data: heard.append(data)
    passed(pair, execution.id, frames.STDOUT, reading)
    os.set_blocking(reading, True)
    os.write(writing, b"x" * 4096)
    with anyio.fail_after(120):
        while not heard:
            await anyio.lowlevel.checkpoint()
    os.set_blocking(reading, True)
    execution._read_pipe(frames.STDOUT)  # nothing is there: it comes back at once
    for each in (reading, writing):
        os.close(each)


def lingering() -> tuple[socket.socket, socket.socket]:
    """A socket whose close waits a minute for its peer to read."""
    listener = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(listener.getsockname())
    server, _ = listener.accept()
    listener.close()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 60))
    client.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            client.send(bytes(1 << 20))
    client.setblocking(True)
    return client, server


@pytest.mark.parametrize("how", ["as a pipe", "without a frame", "never read"])
async def test_closing_what_was_passed_never_waits(pair: Pair, how: str) -> None:
    execution = await running(pair, Flag.SHELL)
    client, server = lingering()
    if how == "never read":
        pair.link.loop.remove_reader(pair.link._transport.fileno())
    if how == "without a frame":
        socket.send_fds(pair.init, [b"x"], [client.fileno()] * 20)
    else:
        passed(pair, execution.id, frames.STDOUT, client.fileno())
    client.close()  # the last to hold it is whoever takes it out of the queue
    begun = time.monotonic()
    if how == "never read":
        pair.link.close()
    with pytest.raises(SandboxLost):
        await execution.ended()
    assert time.monotonic() - begun < 30, "far less than the socket lingers"
    server.close()


async def test_what_raises_while_it_takes_output_ends_its_command_and_nothing_else(pair: Pair) -> None:
    def on_output(stream: int, data: bytes) -> None:
        raise OSError("disk full")

    failing, other = await running(pair, Flag.SHELL), await running(pair, Flag.SHELL)
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


async def test_many_reads_of_one_shell_wait_at_once(pair: Pair) -> None:
    replies: list[int] = []

    async def ask(number: int) -> None:
        replies.append((await pair.link.read(5, number, 0, 10, 1)).out_total)

    async with anyio.create_task_group() as tasks:
        for number in range(9):
            tasks.start_soon(ask, number)
        await anyio.wait_all_tasks_blocked()
        for tag in reversed(range(9)):
            body = struct.pack("<QQIQQII", 0, tag, 0, 0, 0, 0, 0) + bytes(72)
            pair.say(From.READ_REPLY, 5, body, tag)
    assert sorted(replies) == list(range(9))


async def test_more_than_was_asked_for_is_no_answer(pair: Pair) -> None:
    async with anyio.create_task_group() as tasks:

        async def ask() -> None:
            with pytest.raises(SandboxLost, match="no question"):
                await pair.link.read(5, 0, 0, 10)

        tasks.start_soon(ask)
        await anyio.wait_all_tasks_blocked()
        pair.say(From.READ_REPLY, 5, struct.pack("<QQIQQII", 0, 11, 11, 0, 0, 0, 0) + bytes(72) + bytes(11))


async def test_a_loop_that_stood_still_does_not_take_that_for_silence(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "PULSE", 0.05)
    monkeypatch.setattr(link, "SUSPECT", 0.1)
    monkeypatch.setattr(link, "GIVE_UP", 0.2)
    pair.alive = False
    execution = await running(pair, Flag.SHELL)
    pair.say(From.ENDED, execution.id, ENDED)
    pair.link.loop.remove_reader(pair.link._transport.fileno())  # nothing is read while the loop stands still
    stand_still(1)
    pair.link.loop.call_later(0.02, pair.link.loop.add_reader, pair.link._transport.fileno(), pair.link._readable)
    assert (await execution.ended()).exit_code == 0


async def test_a_deadline_that_passed_while_the_loop_stood_still_is_not_missed(pair: Pair) -> None:
    execution = await running(pair, Flag.SHELL)
    stand_still(0.2)
    pair.say(From.ENDED, execution.id, ENDED)
    assert (await execution.ended_within(0.1)).exit_code == 0


async def test_a_bridged_link_beats_while_its_loop_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "EVERY", 0.02)
    ours, theirs = socket.socketpair()
    transport = SocketTransport(ours)
    transport.bridged = True  # type: ignore[misc]
    bridged = Link(transport)
    stand_still(0.3)
    bridged.close()
    beat = frames.frame(frames.To.HEARTBEAT)
    assert theirs.recv(4096).startswith(beat * 3)
    theirs.close()


async def test_input_that_is_still_under_way_is_not_overtaken(pair: Pair) -> None:
    execution, (reading, writing) = await running(pair, DIRECT), os.pipe()
    await execution.input(b"first", frames.CONTROL)
    passed(pair, execution.id, frames.STDIN, writing)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(pair.link.ping)
        await anyio.wait_all_tasks_blocked()
        pair.say(From.PONG, 0, bytes(8))
    await execution.input(b"second", frames.CONTROL)
    os.close(writing)
    assert os.read(reading, 10) == b"", "both went through the init"
    os.close(reading)


OWN_STDIN = Flag.STDIN | Flag.DIRECT


async def test_input_waits_for_its_pipe_and_goes_past_the_init(pair: Pair, tmp_path: Path) -> None:
    execution, (reading, writing) = await running(pair, OWN_STDIN), os.pipe()
    (tmp_path / "file").write_bytes(b"poured")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(execution.input, b"first ")
        await anyio.wait_all_tasks_blocked()
        passed(pair, execution.id, frames.STDIN, writing)
        os.close(writing)
    with open(tmp_path / "file", "rb") as file:
        await execution.pour(file.fileno())
    execution.close_input()
    assert os.read(reading, 100) == b"first poured"
    assert os.read(reading, 100) == b"", "ours is closed"
    assert pair.init.recv(1 << 16).endswith(frames.frame(To.INPUT, execution.id, b"", frames.STDIN)), (
        "so that the init's is"
    )
    os.close(reading)


async def test_a_file_without_pages_is_poured_too(pair: Pair) -> None:
    execution, (reading, writing) = await running(pair, OWN_STDIN), os.pipe()
    passed(pair, execution.id, frames.STDIN, writing)
    os.close(writing)
    with open("/proc/self/status", "rb") as file:
        await execution.pour(file.fileno())
    assert os.read(reading, 20).startswith(b"Name:")
    os.close(reading)


async def test_input_of_a_command_that_ended_without_a_pipe_is_dropped(pair: Pair) -> None:
    execution = await running(pair, OWN_STDIN)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(execution.input, b"never taken")
        await anyio.wait_all_tasks_blocked()
        pair.say(From.ENDED, execution.id, ENDED)
    assert (await execution.ended()).exit_code == 0


async def test_stdin_is_passed_once(pair: Pair) -> None:
    execution, ends = await running(pair, OWN_STDIN), os.pipe()
    for _ in range(2):
        passed(pair, execution.id, frames.STDIN, ends[1])
    with pytest.raises(SandboxLost, match="does not fit"):
        await execution.ended()
    for each in ends:
        os.close(each)


@pytest.mark.parametrize("mode", ["wb", "ab"], ids=["pages", "copied"])
async def test_output_is_spilled_into_a_file_to_the_end_of_the_command(pair: Pair, tmp_path: Path, mode: str) -> None:
    """Also where somebody else still holds the pipe."""
    execution, (reading, writing) = await running(pair, Flag.SHELL), os.pipe()
    with open(tmp_path / "file", mode) as file:
        execution.spill(file.fileno())
        passed(pair, execution.id, frames.STDOUT, reading)
        os.write(writing, b"x" * 5000)
        pair.say(From.ENDED, execution.id, ENDED)
        await execution.ended()
    assert (tmp_path / "file").read_bytes() == b"x" * 5000
    for each in (reading, writing):
        os.close(each)


async def test_a_file_that_cannot_be_written_ends_the_command_and_nothing_else(pair: Pair) -> None:
    execution, (reading, writing) = await running(pair, Flag.SHELL), os.pipe()
    with open("/dev/full", "wb") as file:
        execution.spill(file.fileno())
        passed(pair, execution.id, frames.STDOUT, reading)
        os.write(writing, b"x")
        pair.say(From.ENDED, execution.id, ENDED)
        with pytest.raises(OSError, match="No space"):
            await execution.ended()
    assert pair.link.lost is None
    for each in (reading, writing):
        os.close(each)


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
    with anyio.fail_after(120), pytest.raises(SandboxLost, match="stopped answering"):
        await execution.ended()


async def test_a_busy_sandbox_that_the_engine_vouches_for_is_given_time(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "PULSE", 0.01)
    monkeypatch.setattr(link, "SUSPECT", 0.02)
    monkeypatch.setattr(link, "GIVE_UP", 0.3)
    execution = spawned(pair)
    with anyio.fail_after(120), pytest.raises(SandboxLost, match="stopped answering"):
        await execution.ended()


async def test_last_words_of_a_command_that_was_given_up_are_ignored(pair: Pair) -> None:
    execution = spawned(pair)
    execution.abandon()
    pair.say(From.STARTED, execution.id, frames.u32(1))
    pair.output(execution.id, b"late")
    pair.say(From.ENDED, execution.id, ENDED)
    await execution.ended()
    pair.say(From.ERROR, execution.id, frames.u32(2) + b"no such command")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(pair.link.ping)
        await anyio.wait_all_tasks_blocked()
        pair.say(From.PONG, 0, bytes(8))
    assert pair.link.lost is None


async def test_a_shell_that_was_given_up_before_it_started_may_still_say_that_it_did(pair: Pair) -> None:
    execution = pair.link.spawn([b"true"], flags=Flag.SHELL | Flag.BACKGROUND)
    execution.abandon()
    pair.link.forget(execution)
    pair.say(From.STARTED, execution.id, frames.u32(1))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(pair.link.ping)
        await anyio.wait_all_tasks_blocked()
        pair.say(From.PONG, 0, bytes(8))
    for _ in range(70):
        pair.say(From.STARTED, execution.id, frames.u32(1))
    with pytest.raises(SandboxLost):
        await pair.link.ping()


async def test_input_waits_for_the_init_to_take_it(pair: Pair) -> None:
    execution = spawned(pair)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(execution.input, b"x" * (INPUT_WINDOW + 10))
        await anyio.wait_all_tasks_blocked()
        assert execution._inputs[0].sent == INPUT_WINDOW
        pair.say(From.INPUT_ACK, execution.id, frames.u64(INPUT_WINDOW))
    assert execution._inputs[0].sent == INPUT_WINDOW + 10


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
    with anyio.fail_after(120):
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
