"""A program in a Pod, over one WebSocket of the API server: the link's byte stream.

A message's first byte is its channel: 0 stdin, 1 stdout, 2 stderr, 3 the program's end, and with v5 255, which closes a
channel. This reads and writes the connection itself, without a thread or a task: the event loop watches
its descriptor as that of any other link. wsproto takes the frames apart.

What comes from the other side is bounded and checked; anything but these channels ends the stream.
"""

from __future__ import annotations

import json
import socket
import ssl
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Ping,
    RejectConnection,
    RejectData,
    Request,
    TextMessage,
)
from wsproto.utilities import ProtocolError

from belljar.errors import EngineError, EngineUnavailable
from belljar.patience import about_to_wait, stretched

if TYPE_CHECKING:
    from belljar.engines.kubernetes.api import Api

STDIN, STDOUT, STDERR, ENDED, CLOSED = 0, 1, 2, 3, 255
PROTOCOLS = ["v5.channel.k8s.io", "v4.channel.k8s.io"]
CONNECT_SECONDS = 15.0
CHUNK = 128 << 10
"""In one message: what a proxy on the way buffers."""
RECEIVE = 256 << 10
MESSAGE_MAX = 4096
"""Of stderr and of the end, which are for people."""


class ExecStream:
    """A `Transport`: what is sent is the program's stdin, what is received its stdout."""

    bridged = True
    silence = 25.0
    """Seconds after which a stream that answers nothing is lost, whatever the API server says: it notices a dead node
    only after 40 s."""

    def __init__(
        self, connected: socket.socket, websocket: WSConnection, protocol: str
    ) -> None:
        connected.setblocking(False)
        self.pipes: deque[int] = (
            deque()
        )  # always empty: descriptors cannot cross a network
        self.protocol = protocol
        self.last_words = b""
        """What the program said on stderr, and how it ended."""
        self._socket, self._websocket = connected, websocket
        self._received: list[bytes] = []
        self._channel: int | None = None
        """Of the message that is arriving."""
        self._is_over = False
        self._unsent = b""
        """A message of which a part was accepted; it carries the first `_carries` bytes of the next `send`."""
        self._carries = 0
        self._pongs = b""
        """Answers to pings, which go out between two messages."""
        for event in websocket.events():  # what came with the answer to the upgrade
            self._take(event)

    def fileno(self) -> int:
        return self._socket.fileno()

    def recv(self, size: int, /) -> bytes:
        """Empty: the stream is over."""
        if not self._received and not self._is_over:
            self._receive(size)
        content, self._received = b"".join(self._received), []
        if not content and not self._is_over:
            raise BlockingIOError  # only a header, a ping or the bridge's stderr, so far
        return content

    def _receive(self, size: int) -> None:
        try:
            data = self._socket.recv(max(size, RECEIVE))
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None
        except ssl.SSLEOFError:
            data = b""
        self._is_over = not data
        try:
            self._websocket.receive_data(data or None)
            for event in self._websocket.events():
                self._take(event)
        except ProtocolError as error:
            raise ConnectionResetError(
                f"the API server broke the protocol: {error}"
            ) from error

    def send(self, data: bytes, /) -> int:
        """A message is sent whole. As long as it is not, the caller is told that nothing was, and comes again with the
        same bytes."""
        if not self._unsent:
            self._send_pongs()
            chunk = bytes(data[:CHUNK])
            self._unsent = self._websocket.send(BytesMessage(bytes([STDIN]) + chunk))
            self._carries = len(chunk)
        self._unsent = self._unsent[self._put(self._unsent) :]
        if self._unsent:
            raise BlockingIOError
        return self._carries

    def close(self) -> None:
        self._socket.close()

    def _send_pongs(self) -> None:
        while self._pongs:
            self._pongs = self._pongs[self._put(self._pongs) :]

    def _put(self, data: bytes) -> int:
        try:
            return self._socket.send(data)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None

    def _take(self, event: Event) -> None:
        if isinstance(event, Ping):
            self._pongs += self._websocket.send(event.response())
            if not self._unsent:
                with suppress(BlockingIOError):
                    self._send_pongs()
        elif isinstance(event, CloseConnection):
            self._is_over = True
        elif isinstance(event, BytesMessage | TextMessage):
            data = (
                event.data.encode()
                if isinstance(event, TextMessage)
                else bytes(event.data)
            )
            self._take_message(data, whole=event.message_finished)

    def _take_message(self, data: bytes, *, whole: bool) -> None:
        if self._channel is None and data:
            self._channel, data = data[0], data[1:]
        if self._channel == STDOUT:
            if data:
                self._received.append(data)
        elif self._channel in (STDERR, ENDED):
            self.last_words = (self.last_words + data)[:MESSAGE_MAX]
            self._is_over = self._is_over or self._channel == ENDED
        elif self._channel not in (None, CLOSED):
            raise ConnectionResetError(
                f"the API server sent something on channel {self._channel}"
            )
        if whole:
            self._channel = None


def connect(api: Api, pod: str, container: str, argv: Sequence[str]) -> ExecStream:
    """Run a program in a Pod. Blocking."""
    query = urlencode(
        [
            *(("command", word) for word in argv),
            ("container", container),
            ("stdin", "true"),
            ("stdout", "true"),
            ("stderr", "true"),
            ("tty", "false"),
        ]
    )
    path = f"/api/v1/namespaces/{quote(api.namespace)}/pods/{quote(pod)}/exec?{query}"
    doing = "connecting to the sandbox"
    try:
        with ExitStack() as on_failure:
            connected = on_failure.enter_context(_connected(api))
            about_to_wait()
            websocket, protocol = _upgraded(connected, api, path, doing)
            stream = ExecStream(connected, websocket, protocol)
            on_failure.pop_all()
            return stream
    except TimeoutError:
        raise EngineUnavailable(
            f"{doing}: the API server at {api.server} did not answer in time"
        ) from None
    except (OSError, ProtocolError) as error:
        raise EngineUnavailable(
            f"{doing}: {getattr(error, 'strerror', None) or error}"
        ) from error


def _connected(api: Api) -> socket.socket:
    host, port = api.address
    plain = socket.create_connection((host, port), stretched(CONNECT_SECONDS))
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # The kernel tells of a peer that is gone, also while we wait for nothing.
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
    if not api.server.startswith("https:"):
        return plain
    return api.tls.wrap_socket(plain, server_hostname=host)


def _upgraded(
    connected: socket.socket, api: Api, path: str, doing: str
) -> tuple[WSConnection, str]:
    websocket = WSConnection(ConnectionType.CLIENT)
    headers = [(name.encode(), value.encode()) for name, value in api.headers().items()]
    host, port = api.address
    connected.sendall(
        websocket.send(
            Request(
                f"{host}:{port}", path, subprotocols=PROTOCOLS, extra_headers=headers
            )
        )
    )
    said, status = b"", 0
    while True:
        data = connected.recv(RECEIVE)
        websocket.receive_data(data or None)
        for event in websocket.events():
            if isinstance(event, AcceptConnection):
                if event.subprotocol not in PROTOCOLS:
                    raise EngineError(
                        f"{doing}: the API server speaks none of {', '.join(PROTOCOLS)}"
                    )
                return websocket, event.subprotocol
            if isinstance(event, RejectConnection):
                status = event.status_code
                if not event.has_body:
                    raise EngineError(
                        f"{doing}: the API server answered with status {status}"
                    )
            if isinstance(event, RejectData):
                said = (said + event.data)[: 64 << 10]
                if event.body_finished:
                    raise EngineError(
                        f"{doing}: {_message(said) or f'status {status}'}"
                    )
        if not data:
            raise ConnectionResetError("the API server closed the connection")


def _message(body: bytes) -> str:
    try:
        return str(json.loads(body)["message"])[:400]
    except (ValueError, KeyError, TypeError):
        return body.decode("utf-8", "replace")[:200]
