"""The network door of a session with `network=Allow(...)`: a relay in the sandbox, the proxy on the host.

The relay is the first program in the sandbox, so no other can take its port. If it ends, nothing can connect any more.
Programs learn of the proxy from environment variables.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from errno import EADDRINUSE
from typing import TYPE_CHECKING, Any

import anyio
from anyio import from_thread, to_thread

from belljar.errors import BelljarError, ProtectionMissing, UsageError
from belljar.link import frames
from belljar.network.allow import Allow, check_ceiling
from belljar.network.authority import Authority, trust_bundle
from belljar.network.client_settings import (
    BUNDLE,
    JAVA_BUNDLE,
    PORT,
    SETTINGS,
    java_bundle,
)
from belljar.network.door import Door
from belljar.network.mux import Mux, MuxStream, RelayError
from belljar.network.presets import PresetHost, explain
from belljar.network.sockets import Share
from belljar.tasks import beside, see_through
from belljar.turns import Turns

if TYPE_CHECKING:
    from belljar.link.remote_process import RemoteProcess
    from belljar.session.files import Files
    from belljar.session.init_tools import InitTools

READY_SECONDS = 30.0
END_SECONDS = (
    5.0  # the relay is killed at once, so it takes longer only if the sandbox hangs
)
ACCEPTED = 16  # new connections, either way, per turn of the event loop: a flood of them must not hold up the others
BACKLOG = 1024  # of a forwarded port, in the kernel
_GONE = (anyio.BrokenResourceError, anyio.ClosedResourceError, ConnectionError)


class NetworkDoor:
    """Connections out of the sandbox; and into it, for forwarded ports, over the same relay."""

    def __init__(
        self, tools: InitTools, record: Callable[[dict[str, Any]], None]
    ) -> None:
        self._tools = tools
        self._record = record
        self._tasks: set[asyncio.Task[None]] = set()
        self._callers: deque[MuxStream] = deque()
        """Connections from the sandbox that are not served yet."""
        self._admits = False
        self._relay: RemoteProcess | None = None
        self.door: Door | None = None
        self.mux: Mux | None = None

    async def open(
        self,
        allow: Allow | None,
        ask: Callable[[str, int], Awaitable[bool]] | None = None,
    ) -> None:
        """Without `allow` the relay does not listen in the sandbox and only serves forwarded ports."""
        if allow is not None:
            self.door = await to_thread.run_sync(_door, allow, self._record, ask)
        try:
            await self._start_relay(PORT if allow is not None else 0)
        except BaseException:
            await see_through(self.end())
            raise

    async def _start_relay(self, port: int) -> None:
        mux = self.mux = Mux(self._write, self._accept, self.close, self._taken)
        self._relay = self._tools.start(
            ["relay", str(port)], self._received, paced=True
        )
        self._relay.when_ended(mux.lose)
        self._begin(mux.run())
        with anyio.move_on_after(READY_SECONDS):
            await mux.ready.wait()
        if not mux.ready.is_set() or mux.lost:
            raise ProtectionMissing(
                "the network door could not be opened: the relay in the sandbox did not start"
            )

    async def open_presets(
        self, ceiling: tuple[str, ...] | None
    ) -> list[dict[str, str]]:
        """Allow the hosts of the presets; returns them with the reason for each. Called once the relay has its port,
        because it runs clients of the image, which could take the port."""
        assert self.door is not None
        allowed = []
        for preset in self.door.allow.presets:
            reasons = await explained(preset, self._tools)
            hosts = [reason.host for reason in reasons]
            if ceiling is not None:
                check_ceiling(hosts, ceiling)
            self.door.open_for(*hosts)
            allowed += [
                {"preset": preset, "host": reason.host, "why": reason.why}
                for reason in reasons
            ]
        return allowed

    def _received(self, stream: int, data: bytes) -> None:
        if self._relay is None or self.mux is None or self.mux.lost:
            return
        if stream != frames.STDOUT:
            self._relay.consumed(stream, len(data))
            return
        self.mux.feed(data)

    def _taken(self, count: int) -> None:
        if self._relay is not None:
            self._relay.consumed(frames.STDOUT, count)

    def _accept(self, stream: MuxStream) -> None:
        if self.door is None:
            raise RelayError("a connection that nobody listens for")
        self._callers.append(stream)
        if self._admits and len(self._callers) == 1:
            self._begin(self._serve(self.door))

    def admit_callers(self) -> None:
        """From now on connections are served; those that came while the door opened had to wait."""
        self._admits = True
        if self.door is not None and self._callers:
            self._begin(self._serve(self.door))

    async def _serve(self, door: Door) -> None:
        while self._callers:
            for _ in range(min(ACCEPTED, len(self._callers))):
                self._begin(door.serve(self._callers.popleft()))
            await asyncio.sleep(0)

    async def _write(self, data: bytes) -> None:
        if self._relay is None or self._relay.over:
            raise OSError("the relay is gone")
        await self._relay.input(data)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not log it; the visit's record has the failure

    def close(self) -> None:
        if self.door is not None:
            self.door.record_rest()
        if self.mux is not None:
            self.mux.lose()
        for task in list(self._tasks):
            task.cancel()
        relay, self._relay = self._relay, None
        if relay is not None and not relay.over:
            relay.abandon()

    async def end(self) -> None:
        """Close it, and wait until the relay has left its port, so that another can be opened."""
        relay = self._relay
        self.close()
        if relay is not None:
            with contextlib.suppress(BelljarError), anyio.move_on_after(END_SECONDS):
                await relay.ended()

    async def install_certificates(self, files: Files) -> None:
        """Install the host's trusted certificates, and this session's own authority if it ends TLS."""
        bundle = await to_thread.run_sync(trust_bundle)
        if self.door is not None and self.door.authority is not None:
            bundle += self.door.authority.pem
        if bundle:
            await files.write(BUNDLE, bundle)
            await files.write(
                JAVA_BUNDLE, await to_thread.run_sync(java_bundle, bundle)
            )
            for path, text in SETTINGS.items():
                await files.write(path, text)


async def explained(preset: str, tools: InitTools) -> list[PresetHost]:
    """The hosts of a preset, according to the clients on this machine and in the image."""

    def in_image(argv: list[str]) -> str:
        return from_thread.run(tools.ask, argv)

    return await to_thread.run_sync(explain, preset, None, in_image)


def _door(allow: Allow, record: Callable[[dict[str, Any]], None], ask: Any) -> Door:
    from belljar.network import http_proxy, socks  # noqa: F401 - imported here, in a thread, not at the first connection

    authority = Authority() if any(allow.headers.values()) else None
    return Door(allow, record=record, ask=ask, authority=authority)


class Forwarded:
    """A port of the sandbox, reachable on this machine's loopback while the session is open."""

    def __init__(self, door: NetworkDoor, port: int) -> None:
        self.door = door
        self.inside = port
        self._server: asyncio.Server | None = None
        self._share = Share()
        self.port = 0

    async def open(self, at: int = 0) -> None:
        try:
            listener = socket.create_server(("127.0.0.1", at))
        except OSError as error:
            why = (
                "is taken"
                if error.errno == EADDRINUSE
                else f"cannot be opened ({error.strerror})"
            )
            raise UsageError(
                f"port {at} of this machine {why}; choose another, or none for a free one"
            ) from None
        try:
            # Nothing is waited for here: a server that listens is ours, also if we are cancelled.
            self._server = await asyncio.start_server(
                self._serve, sock=listener, backlog=ACCEPTED, start_serving=False
            )
            await self._server.start_serving()
        except BaseException:
            self.close()
            listener.close()
            raise
        listener.listen(
            BACKLOG
        )  # asyncio accepts as many per turn as its `backlog`, so that one is small
        self.port = listener.getsockname()[1]

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if not self._share.is_used_up:
            with self._share:
                await self._carry(reader, writer)
        writer.close()

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        mux = self.door.mux
        with contextlib.suppress(anyio.EndOfStream, *_GONE):
            if mux is not None:
                turns = Turns.here()
                inside = await mux.open(self.inside)
                try:
                    async with beside() as tasks:
                        tasks.start_soon(_up, reader, inside, tasks.cancel_scope)
                        while True:
                            await turns.next()
                            writer.write(await inside.receive(1 << 18))
                            await writer.drain()
                finally:
                    with anyio.CancelScope(shield=True):
                        await inside.aclose()

    def close(self) -> None:
        if self._server is not None:
            self._server.close()


async def _up(
    reader: asyncio.StreamReader, inside: MuxStream, scope: anyio.CancelScope
) -> None:
    try:
        while data := await reader.read(1 << 18):
            await Turns.here().next()
            await inside.send(data)
        await inside.send_eof()
    except _GONE:
        scope.cancel()


def check_port(port: object) -> int:
    if isinstance(port, bool) or not isinstance(port, int) or not 1 <= port <= 65535:
        raise UsageError(f"port: {port!r} is not a number from 1 to 65535")
    return port
