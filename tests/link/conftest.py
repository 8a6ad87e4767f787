"""A link to a socket on which the test plays the init."""

import socket
import struct
import time
from collections.abc import AsyncIterator

import anyio.lowlevel
import pytest

from belljar.link import frames
from belljar.link.frames import Flag, From
from belljar.link.link import Link
from belljar.link.remote_process import RemoteProcess
from belljar.link.transport import SocketTransport


def block_the_loop(seconds: float) -> None:
    """Block the event loop: no other callback runs meanwhile."""
    time.sleep(seconds)


WELCOME = struct.pack("<IIQII", frames.VERSION, 1, 99, 0, 7)


ENDED = struct.pack("<4I6Q2I", 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)


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

    async def answer_ping(self) -> None:
        """Wait for the ping, then answer it."""
        while From.PONG not in self.link._questions:
            await anyio.lowlevel.checkpoint()
        self.say(From.PONG, 0, bytes(8))

    def say(self, kind: int, id: int, payload: bytes = b"", stream: int = 0) -> None:
        self.init.sendall(
            frames.HEADER.pack(len(payload), kind, stream, 0, id) + payload
        )

    def output(self, id: int, data: bytes, offset: int = 0) -> None:
        self.say(From.OUTPUT, id, struct.pack("<Q", offset) + data, frames.STDOUT)


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    made = Pair()
    yield made
    made.link.close()
    made.init.close()


DIRECT = Flag.CONTROL | Flag.DIRECT


def pass_pipe(pair: Pair, id: int, stream: int, *descriptors: int) -> None:
    socket.send_fds(
        pair.init,
        [frames.HEADER.pack(8, From.PIPE, stream, 0, id) + bytes(8)],
        descriptors,
    )


async def started_command(pair: Pair, flags: int) -> RemoteProcess:
    process = pair.link.spawn([b"true"], flags=flags)
    pair.say(From.STARTED, process.id, frames.u32(1))
    await process.started()
    return process


def spawned(pair: Pair, **options: object) -> RemoteProcess:
    return pair.link.spawn([b"true"], flags=Flag.SHELL, **options)  # type: ignore[arg-type]
