"""The link against an init that lies, stalls or breaks off. A real init does not make these faults on request."""

import contextlib
import errno
import os
import socket
import struct
from itertools import pairwise

import anyio
import anyio.lowlevel
import pytest
from tests.link.conftest import (
    DIRECT,
    ENDED,
    WELCOME,
    Pair,
    block_the_loop,
    pass_pipe,
    spawned,
    started_command,
)

from belljar import turns
from belljar.errors import (
    BelljarError,
    SandboxLost,
    ShellNotFound,
)
from belljar.link import frames, link
from belljar.link.frames import Flag, From
from belljar.link.link import FRAMES_PER_WAKE, RECEIVE, Link
from belljar.link.transport import SocketTransport


async def test_output_beyond_its_credit_closes_the_connection(pair: Pair) -> None:
    process = spawned(pair, paced=True)
    pair.say(From.STARTED, process.id, frames.u32(1))
    part = b"x" * (128 << 10)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_flood, pair, process.id, part)
        with (
            anyio.fail_after(60),
            pytest.raises(SandboxLost, match="beyond its credit"),
        ):
            await process.ended()


async def _flood(pair: Pair, id: int, part: bytes, stream: int = 1) -> None:
    try:
        while pair.link.lost is None:
            raw = (
                frames.HEADER.pack(len(part) + 8, From.OUTPUT, stream, 0, id)
                + bytes(8)
                + part
            )
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
async def test_an_impossible_frame_closes_the_link_and_fails_every_waiting_call(
    pair: Pair, kind: int, payload: bytes
) -> None:
    process = spawned(pair)
    pair.say(kind, process.id, payload)
    with pytest.raises(SandboxLost, match="broke the protocol"):
        await process.ended()
    with pytest.raises(SandboxLost):
        spawned(pair)


@pytest.mark.parametrize(
    "kind",
    [
        From.STARTED,
        From.OUTPUT,
        From.ENDED,
        From.SPAWN_ERROR,
        From.INPUT_ACK,
        From.PIPE,
    ],
)
async def test_a_frame_for_an_unknown_command_closes_the_connection(
    pair: Pair, kind: From
) -> None:
    process = spawned(pair)
    pair.say(
        kind,
        process.id + 2,
        ENDED if kind == From.ENDED else bytes(9 if kind == From.OUTPUT else 8)[:72],
    )
    with pytest.raises(SandboxLost, match="broke the protocol"):
        await process.ended()


async def test_only_a_greeting_is_accepted_first() -> None:
    ours, theirs = socket.socketpair()
    greeted = Link(SocketTransport(ours))
    theirs.sendall(frames.HEADER.pack(8, From.PONG, 0, 0, 0) + bytes(8))
    with pytest.raises(SandboxLost, match="unexpected"):
        await greeted.hello()
    theirs.close()


async def test_another_protocol_is_one_clear_error() -> None:
    ours, theirs = socket.socketpair()
    greeted = Link(SocketTransport(ours))
    theirs.sendall(
        frames.HEADER.pack(24, From.WELCOME, 0, 0, 0)
        + struct.pack("<IIQII", 77, 1, 1, 0, 0)
    )
    with pytest.raises(SandboxLost, match="speaks protocol 77, this Belljar protocol"):
        await greeted.hello()
    theirs.close()


@pytest.mark.parametrize(
    ("flags", "stream"),
    [
        (Flag.SHELL, frames.CONTROL),
        (Flag.SHELL | Flag.PTY, frames.STDERR),
        (Flag.SHELL | Flag.BACKGROUND, 1),
    ],
)
async def test_output_on_an_unrequested_stream_closes_the_connection(
    pair: Pair, flags: int, stream: int
) -> None:
    process = pair.link.spawn([b"true"], flags=flags)
    pair.say(From.STARTED, process.id, frames.u32(1))
    pair.say(From.OUTPUT, process.id, bytes(8) + b"x", stream)
    with pytest.raises(SandboxLost, match="broke the protocol"):
        await pair.link.ping()


async def test_control_output_has_credit_like_any_other(pair: Pair) -> None:
    process = pair.link.spawn([b"true"], flags=Flag.CONTROL, paced=True)
    pair.say(From.STARTED, process.id, frames.u32(1))
    await process.started()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_flood, pair, process.id, b"x" * (128 << 10), frames.CONTROL)
        with (
            anyio.fail_after(60),
            pytest.raises(SandboxLost, match="beyond its credit"),
        ):
            await process.ended()


@pytest.mark.parametrize(("stream", "end"), [(0, 0), (1, 1), (2, 1), (3, 1)])
async def test_a_passed_pipe_end_of_the_wrong_direction_closes_the_connection(
    pair: Pair, stream: int, end: int
) -> None:
    process, ends = await started_command(pair, DIRECT), os.pipe()
    pass_pipe(pair, process.id, stream, ends[end])
    with pytest.raises(SandboxLost, match="broke the protocol"):
        await process.ended()
    for each in ends:
        os.close(each)


@pytest.mark.parametrize(
    ("flags", "stream"),
    [
        (Flag.SHELL, 0),
        (Flag.SHELL, 3),
        (Flag.PTY, 1),
        (Flag.CONTROL, 3),
        (Flag.DIRECT, 3),
    ],
    ids=str,
)
async def test_an_unexpected_pipe_closes_the_connection(
    pair: Pair, flags: int, stream: int
) -> None:
    process, ends = await started_command(pair, flags), os.pipe()
    pass_pipe(pair, process.id, stream, ends[stream == 0])
    with pytest.raises(SandboxLost, match="unexpected"):
        await process.ended()
    for each in ends:
        os.close(each)


async def test_a_descriptor_without_its_frame_closes_the_connection(pair: Pair) -> None:
    process, ends = await started_command(pair, Flag.SHELL), os.pipe()
    socket.send_fds(
        pair.init,
        [frames.HEADER.pack(9, From.OUTPUT, 1, 0, process.id) + bytes(9)],
        [ends[0]],
    )
    with pytest.raises(SandboxLost, match="belongs to no stream"):
        await process.ended()
    for each in ends:
        os.close(each)


async def test_the_loop_s_other_callers_get_their_turn_between_tiny_frames(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "SLICE", 0.0)
    process, heard, after_turns = await started_command(pair, Flag.SHELL), 0, [0]

    def hear(stream: int, data: bytes) -> None:
        nonlocal heard
        heard += 1

    process.on_output = hear
    tiny = (
        frames.HEADER.pack(9, From.OUTPUT, frames.STDOUT, 0, process.id)
        + bytes(8)
        + b"x"
    )
    pair.init.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * RECEIVE)
    sent = pair.init.send(tiny * (8 * RECEIVE // len(tiny))) // len(tiny)
    assert sent > 2 * RECEIVE // len(tiny), "else one turn could take it all"
    with anyio.fail_after(60):
        while heard < sent:
            await anyio.lowlevel.checkpoint()
            after_turns.append(heard)
    assert (
        max(after - before for before, after in pairwise(after_turns))
        <= FRAMES_PER_WAKE
    )


async def test_many_reads_of_one_shell_wait_at_once(pair: Pair) -> None:
    replies: list[int] = []

    async def ask(number: int) -> None:
        replies.append((await pair.link.read(5, number, 0, 10, 1)).out_start)

    async with anyio.create_task_group() as tasks:
        for number in range(9):
            tasks.start_soon(ask, number)
        await anyio.wait_all_tasks_blocked()
        for tag in reversed(range(9)):
            body = struct.pack("<QQIQQII", tag, tag, 0, 0, 0, 0, 0) + bytes(72)
            pair.say(From.READ_REPLY, 5, body, tag)
    assert sorted(replies) == list(range(9))


async def test_a_reply_longer_than_was_asked_for_is_refused(pair: Pair) -> None:
    async with anyio.create_task_group() as tasks:

        async def ask() -> None:
            with pytest.raises(SandboxLost, match="without a question"):
                await pair.link.read(5, 0, 0, 10)

        tasks.start_soon(ask)
        await anyio.wait_all_tasks_blocked()
        pair.say(
            From.READ_REPLY,
            5,
            struct.pack("<QQIQQII", 0, 11, 11, 0, 0, 0, 0) + bytes(72) + bytes(11),
        )


async def test_a_blocked_event_loop_is_not_taken_for_a_silent_sandbox(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "PULSE", 0.05)
    monkeypatch.setattr(link, "SUSPECT", 0.1)
    monkeypatch.setattr(SocketTransport, "silence", 0.2)
    pair.alive = False
    process = await started_command(pair, Flag.SHELL)
    pair.say(From.ENDED, process.id, ENDED)
    pair.link.loop.remove_reader(
        pair.link._transport.fileno()
    )  # the loop reads nothing while it is blocked
    block_the_loop(1)
    read = (pair.link._transport.fileno(), pair.link._guarded, pair.link._receive)
    pair.link.loop.call_later(0.02, pair.link.loop.add_reader, *read)
    assert (await process.ended()).exit_code == 0


async def test_a_command_that_ended_while_the_loop_was_blocked_has_not_timed_out(
    pair: Pair,
) -> None:
    process = await started_command(pair, Flag.SHELL)
    block_the_loop(0.2)
    pair.say(From.ENDED, process.id, ENDED)
    assert (await process.ended(0.1)).exit_code == 0


async def test_an_init_that_hangs_up_fails_every_waiting_call(pair: Pair) -> None:
    process = spawned(pair)
    pair.init.close()
    with pytest.raises(SandboxLost):
        await process.ended()
    with pytest.raises(SandboxLost):
        await pair.link.list()


async def test_a_silent_sandbox_that_the_engine_calls_dead_is_lost(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "PULSE", 0.01)
    monkeypatch.setattr(link, "SUSPECT", 0.05)
    pair.alive = False
    process = spawned(pair)
    with anyio.fail_after(120), pytest.raises(SandboxLost, match="stopped answering"):
        await process.ended()


async def test_a_silent_sandbox_that_the_engine_calls_alive_is_lost_after_a_longer_wait(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "PULSE", 0.01)
    monkeypatch.setattr(link, "SUSPECT", 0.02)
    monkeypatch.setattr(SocketTransport, "silence", 0.3)
    process = spawned(pair)
    with anyio.fail_after(120), pytest.raises(SandboxLost, match="stopped answering"):
        await process.ended()


async def test_an_init_that_sends_but_never_answers_is_given_up(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Output and replies to other requests do not count as an answer."""
    monkeypatch.setattr(link, "PULSE", 0.01)
    monkeypatch.setattr(SocketTransport, "silence", 0.3)
    process = await started_command(pair, Flag.SHELL)

    async def talk() -> None:
        while pair.link.lost is None:
            with contextlib.suppress(OSError):
                pair.output(process.id, b"x")
            await anyio.sleep(0.01)

    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(talk)
            with pytest.raises(SandboxLost, match="stopped answering"):
                await process.ended(0.1)


async def test_a_read_of_an_unknown_shell_is_a_clear_error(pair: Pair) -> None:
    async with anyio.create_task_group() as tasks:

        async def ask() -> None:
            with pytest.raises(ShellNotFound):
                await pair.link.read(5, 0, 0, 10)

        tasks.start_soon(ask)
        await anyio.wait_all_tasks_blocked()
        pair.say(From.ERROR, 5, frames.u32(2) + b"no such command")


@pytest.mark.parametrize(
    "code", [errno.EPERM, errno.ENOMEM, errno.EINVAL, 4_000_000_000]
)
async def test_a_refused_question_fails_alone(pair: Pair, code: int) -> None:
    """It once stayed unanswered, until the link was closed a minute later."""
    process = await started_command(pair, Flag.SHELL)
    async with anyio.create_task_group() as tasks:

        async def ask() -> None:
            with pytest.raises(BelljarError, match="refused"):
                await pair.link.state(process.id)

        tasks.start_soon(ask)
        await anyio.wait_all_tasks_blocked()
        pair.say(From.ERROR, process.id, frames.u32(code) + b"no")
    pair.say(From.ENDED, process.id, ENDED)
    assert (await process.ended()).exit_code == 0, "the command, and the link, go on"


async def test_a_bridged_link_sends_heartbeats_while_the_event_loop_is_blocked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(link, "HEARTBEAT", 0.02)
    ours, theirs = socket.socketpair()
    transport = SocketTransport(ours)
    transport.bridged = True  # type: ignore[misc]
    bridged = Link(transport)
    block_the_loop(0.3)
    bridged.close()
    beat = frames.frame(frames.To.HEARTBEAT)
    assert theirs.recv(4096).startswith(beat * 3)
    theirs.close()


async def test_a_heartbeat_that_found_no_room_is_sent_when_there_is_some(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours, theirs = socket.socketpair()
    for end in (ours, theirs):
        end.setblocking(False)
    filled = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            filled += ours.send(bytes(4096))
    monkeypatch.setattr(link, "HEARTBEAT", 0.01)
    transport = SocketTransport(ours)
    transport.bridged = True  # type: ignore[misc]
    bridged = Link(transport)
    while not bridged._outbox:  # noqa: ASYNC110
        await anyio.sleep(0.01)
    monkeypatch.setattr(link, "HEARTBEAT", 3600)
    await anyio.sleep(0.05)  # the last of the quick ones
    while filled:
        filled -= len(theirs.recv(filled))
    received = b""
    with anyio.fail_after(60):
        while len(received) < frames.HEADER.size:
            with contextlib.suppress(BlockingIOError):
                received += theirs.recv(4096)
            await anyio.sleep(0.01)
    assert received.startswith(frames.frame(frames.To.HEARTBEAT))
    bridged.close()
    theirs.close()
