"""A command's streams: pipes that the init passes to the host, and input that goes directly to the command."""

import contextlib
import fcntl
import os
import socket
import struct
import time
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from anyio import to_thread
from tests.link.conftest import DIRECT, ENDED, Pair, pass_pipe, started_command

from belljar.errors import SandboxLost
from belljar.link import frames, transport
from belljar.link.frames import Flag, From, To
from belljar.link.streams import READ, READS_PER_WAKE
from belljar.link.transport import DRAIN


async def test_a_pipe_that_the_init_sets_to_blocking_does_not_block_the_loop(
    pair: Pair,
) -> None:
    """All processes that hold a pipe share its flags, unless the host opens it again."""
    process, (reading, writing) = await started_command(pair, Flag.SHELL), os.pipe()
    heard: list[bytes] = []
    process.on_output = lambda stream, data: heard.append(data)
    pass_pipe(pair, process.id, frames.STDOUT, reading)
    os.set_blocking(reading, True)
    os.write(writing, b"x" * 4096)
    with anyio.fail_after(120):
        while not heard:
            await anyio.lowlevel.checkpoint()
    os.set_blocking(reading, True)
    process._read_pipe(frames.STDOUT)  # the pipe is empty, so this returns at once
    for each in (reading, writing):
        os.close(each)


def lingering() -> tuple[socket.socket, socket.socket]:
    """A socket whose close waits up to a minute for its peer to read."""
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


@pytest.mark.parametrize(
    "how", ["as a pipe", "without a frame", "never read", "more than is looked at"]
)
async def test_closing_passed_descriptors_never_blocks(pair: Pair, how: str) -> None:
    process = await started_command(pair, Flag.SHELL)
    client, server = lingering()
    closed = how in ("never read", "more than is looked at")
    if closed:
        pair.link.loop.remove_reader(pair.link._transport.fileno())
    if how == "without a frame":
        socket.send_fds(pair.init, [b"x"], [client.fileno()] * 20)
    elif how == "more than is looked at":
        for _ in range(DRAIN):
            socket.send_fds(pair.init, [b"x"], [server.fileno()])
        socket.send_fds(pair.init, [b"x"], [client.fileno()])
    else:
        pass_pipe(pair, process.id, frames.STDOUT, client.fileno())
    client.close()  # now only the queue holds it, and taking it out closes it
    begun = time.monotonic()
    if closed:
        pair.link.close()
    with pytest.raises(SandboxLost):
        await process.ended()
    assert time.monotonic() - begun < 30, "far less than the socket lingers"
    server.close()


async def test_passed_sockets_that_linger_are_closed_in_the_host(pair: Pair) -> None:
    process = await started_command(pair, Flag.SHELL)
    both = [lingering() for _ in range(2)]
    names = {f"socket:[{os.fstat(client.fileno()).st_ino}]" for client, _ in both}
    socket.send_fds(pair.init, [b"x"], [client.fileno() for client, _ in both] * 10)
    for client, _ in both:
        client.close()
    with pytest.raises(SandboxLost):
        await process.ended()
    with anyio.fail_after(50):  # each would linger for a minute
        while names & _open_descriptors():
            await to_thread.run_sync(time.sleep, 0.01)
    for _, server in both:
        server.close()


def _open_descriptors() -> set[str]:
    found = set()
    for each in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            found.add(os.readlink(f"/proc/self/fd/{each}"))
    return found


async def test_closing_receives_only_a_bounded_number_of_waiting_descriptors(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = await started_command(pair, Flag.SHELL)
    pair.link.loop.remove_reader(pair.link._transport.fileno())
    taken: list[int] = []
    close = transport.close_passed
    monkeypatch.setattr(
        transport, "close_passed", lambda them: (taken.append(len(them)), close(them))
    )
    for _ in range(8):
        socket.send_fds(pair.init, [b"x"], [pair.init.fileno()] * 253)
    pair.link.close()
    assert taken == [253], "what is left is closed with the connection"
    with pytest.raises(SandboxLost):
        await process.ended()


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/null", "/proc/self/stat", "/"])
async def test_a_readable_descriptor_that_is_not_a_pipe_closes_the_connection(
    pair: Pair, path: str
) -> None:
    """A device yields endless bytes, at no cost to the sandbox."""
    process, other = await started_command(pair, Flag.SHELL), os.open(path, os.O_RDONLY)
    pass_pipe(pair, process.id, frames.STDOUT, other)
    os.close(other)
    with anyio.fail_after(60), pytest.raises(SandboxLost, match="not a pipe"):
        await process.ended()


async def test_output_frames_beside_a_pipe_close_the_connection(pair: Pair) -> None:
    process, (reading, writing) = await started_command(pair, Flag.SHELL), os.pipe()
    pass_pipe(pair, process.id, frames.STDOUT, reading)
    pair.output(process.id, b"beside it")
    with anyio.fail_after(60), pytest.raises(SandboxLost, match="broke the protocol"):
        await process.ended()
    for each in (reading, writing):
        os.close(each)


async def test_later_input_does_not_overtake_input_still_in_the_init(
    pair: Pair,
) -> None:
    process, (reading, writing) = await started_command(pair, DIRECT), os.pipe()
    await process.input(b"first", frames.CONTROL)
    pass_pipe(pair, process.id, frames.STDIN, writing)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(pair.link.ping)
        await anyio.wait_all_tasks_blocked()
        pair.say(From.PONG, 0, bytes(8))
    await process.input(b"second", frames.CONTROL)
    os.close(writing)
    assert os.read(reading, 10) == b"", "both went through the init"
    os.close(reading)


OWN_STDIN = Flag.STDIN | Flag.DIRECT


async def test_input_waits_for_its_pipe_and_goes_past_the_init(
    pair: Pair, tmp_path: Path
) -> None:
    process, (reading, writing) = await started_command(pair, OWN_STDIN), os.pipe()
    (tmp_path / "file").write_bytes(b"poured")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(process.input, b"first ")
        await anyio.wait_all_tasks_blocked()
        pass_pipe(pair, process.id, frames.STDIN, writing)
        os.close(writing)
    with open(tmp_path / "file", "rb") as file:
        await process.pour(file.fileno())
    process.close_input()
    assert os.read(reading, 100) == b"first poured"
    assert os.read(reading, 100) == b"", "ours is closed"
    assert pair.init.recv(1 << 16).endswith(
        frames.frame(To.INPUT, process.id, b"", frames.STDIN)
    ), "so that the init's is"
    os.close(reading)


async def test_a_proc_file_can_be_given_as_stdin(pair: Pair) -> None:
    process, (reading, writing) = await started_command(pair, OWN_STDIN), os.pipe()
    pass_pipe(pair, process.id, frames.STDIN, writing)
    os.close(writing)
    with open("/proc/self/status", "rb") as file:
        await process.pour(file.fileno())
    assert os.read(reading, 20).startswith(b"Name:")
    os.close(reading)


async def test_input_of_a_command_that_ended_without_a_pipe_is_dropped(
    pair: Pair,
) -> None:
    process = await started_command(pair, OWN_STDIN)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(process.input, b"never taken")
        await anyio.wait_all_tasks_blocked()
        pair.say(From.ENDED, process.id, ENDED)
    assert (await process.ended()).exit_code == 0


async def test_a_second_stdin_pipe_closes_the_connection(pair: Pair) -> None:
    process, ends = await started_command(pair, OWN_STDIN), os.pipe()
    for _ in range(2):
        pass_pipe(pair, process.id, frames.STDIN, ends[1])
    with pytest.raises(SandboxLost, match="a second pipe"):
        await process.ended()
    for each in ends:
        os.close(each)


async def test_a_pipe_that_is_filled_again_and_again_ends_with_its_command(
    pair: Pair,
) -> None:
    """Another process in the sandbox keeps writing to the pipe. Only what was in it when the command ended is read."""
    process, (reading, writing) = await started_command(pair, Flag.SHELL), os.pipe()
    heard: list[bytes] = []

    def take(stream: int, data: bytes) -> None:
        heard.append(data)
        if len(heard) < 1000:
            os.write(writing, b"another's")

    process.on_output = take
    os.write(writing, b"mine")
    pass_pipe(pair, process.id, frames.STDOUT, reading)
    pair.say(From.ENDED, process.id, ENDED)
    await process.ended()
    assert len(heard) < 20, "what was read before the end was heard of"
    for each in (reading, writing):
        os.close(each)


async def test_a_pipe_drained_exactly_at_the_end_of_a_turn_ends_with_its_command(
    pair: Pair,
) -> None:
    """Nothing wakes the loop for this pipe any more."""
    process, (reading, writing) = await started_command(pair, Flag.SHELL), os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 1 << 20)
    heard: list[bytes] = []
    process.on_output = lambda stream, data: heard.append(data)
    pass_pipe(pair, process.id, frames.STDOUT, reading)
    with anyio.fail_after(20):
        while process._outputs[0].pipe is None:
            await anyio.lowlevel.checkpoint()
        os.write(writing, bytes(READ * READS_PER_WAKE))
        process.end(
            frames.parse_ended(ENDED)
        )  # at once, before the loop sees the bytes in the pipe
        await process.ended()
    assert sum(map(len, heard)) == READ * READS_PER_WAKE
    for each in (reading, writing):
        os.close(each)
