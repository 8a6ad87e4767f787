"""A TCP connection to a server, as a byte stream that reads no more than it is asked for.

asyncio's own streams read ahead, 256 KiB each, which a thousand stalled connections add up. This one leaves what nobody
wants yet to the kernel, and waits for its turn before it reads.
"""

from __future__ import annotations

import asyncio
import resource
import socket
import threading
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import anyio
from anyio.abc import ByteStream, SocketAttribute

from belljar.turns import Turns, wake


async def connected(address: str, port: int) -> TcpStream:
    connecting = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    try:
        connecting.setblocking(False)
        connecting.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(connecting, (address, port))
    except BaseException:
        connecting.close()
        raise
    return TcpStream(connecting)


class TcpStream(ByteStream):
    __slots__ = ("_loop", "_socket", "_turns", "_waiting")

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._loop, self._turns = asyncio.get_running_loop(), Turns.here()
        self._waiting: set[asyncio.Future[None]] = set()

    @property
    def extra_attributes(self) -> Mapping[Any, Callable[[], Any]]:
        return {SocketAttribute.raw_socket: lambda: self._socket}

    async def receive(self, max_bytes: int = 65536) -> bytes:
        while True:
            await self._turns.next()
            try:
                data = self._socket.recv(max_bytes)
            except (BlockingIOError, InterruptedError):
                await self._until_ready(self._loop.add_reader, self._loop.remove_reader)
                continue
            except OSError as error:
                raise self._broken() from error
            if not data:
                raise anyio.EndOfStream
            return data

    async def send(self, item: bytes) -> None:
        view = memoryview(item)
        while view:
            try:
                view = view[self._socket.send(view) :]
            except (BlockingIOError, InterruptedError):
                await self._until_ready(self._loop.add_writer, self._loop.remove_writer)
            except OSError as error:
                raise self._broken() from error

    async def _until_ready(
        self, watch: Callable[..., object], unwatch: Callable[[int], object]
    ) -> None:
        ready: asyncio.Future[None] = self._loop.create_future()
        descriptor = self._socket.fileno()
        watch(descriptor, wake, ready)
        self._waiting.add(ready)
        try:
            await ready
        finally:
            self._waiting.discard(ready)
            if self._socket.fileno() >= 0:
                unwatch(descriptor)

    def _broken(self) -> Exception:
        return (
            anyio.ClosedResourceError()
            if self._socket.fileno() < 0
            else anyio.BrokenResourceError()
        )

    async def send_eof(self) -> None:
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError as error:
            raise self._broken() from error

    async def aclose(self) -> None:
        """Wakes who still waits for this connection."""
        if self._socket.fileno() < 0:
            return
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
        self._socket.close()
        for ready in self._waiting:
            wake(ready)


def max_connections() -> int:
    """How many connections all doors and ports may have together: three quarters of the process's descriptors."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 20 if soft == resource.RLIM_INFINITY else soft * 3 // 4


class Share:
    """One door's or port's connections; `with share:` counts one. None may take more than it leaves to the others.

    Each connection takes a descriptor, and a program in a sandbox (for a forwarded port: anybody on this machine) can
    open any number. The process has only so many, and other sessions, links and the audit trail need some, too.
    """

    __slots__ = ("open",)
    all_open: ClassVar[int] = 0
    _lock: ClassVar[threading.Lock] = (
        threading.Lock()
    )  # sessions may run in several threads

    def __init__(self) -> None:
        self.open = 0

    @property
    def is_used_up(self) -> bool:
        return self.open >= max_connections() - Share.all_open

    def __enter__(self) -> None:
        self._add(1)

    def __exit__(self, *_: object) -> None:
        self._add(-1)

    def _add(self, count: int) -> None:
        with Share._lock:
            self.open += count
            Share.all_open += count
