"""Plain HTTP to an engine with Docker's API, over a unix socket, TCP or TLS. Blocking.

docker-py takes longer to import than a sandbox takes to start, and loses bytes that arrive with the headers of a
hijacked stream. So every request that a sandbox needs is made here; docker-py is only for rare ones (`images.py`).

A broken connection is retried for a while: every request here may be repeated. An answer or a timeout is final.
"""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from belljar.engines.docker.hosts import Endpoint, podman_start
from belljar.errors import EngineError, EngineUnavailable
from belljar.patience import about_to_wait, stretched

if TYPE_CHECKING:
    import ssl

QUICK_SECONDS = 15.0  # for queries
SLOW_SECONDS = (
    60.0  # to create, start or remove: slow while the engine imports an image
)
RETRY_SECONDS = 2.0
ANSWER_MAX = 64 << 20
MESSAGE_MAX = 400
_UNQUOTED = b"-._~/:@0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


class Answered(EngineError):
    """The engine answered with an error."""

    def __init__(self, doing: str, status: int, message: str) -> None:
        super().__init__(
            f"{doing}: {message or f'the engine answered with status {status}'}"
        )
        self.status, self.message = status, message


class Unreachable(EngineUnavailable):
    """The connection could not be made, or broke."""


class Client:
    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._tls = _tls(endpoint) if endpoint.certificates else None

    def ask(
        self,
        doing: str,
        method: str,
        path: str,
        body: Any = None,
        *,
        expected: tuple[int, ...] = (200, 201, 204, 304),
        seconds: float = QUICK_SECONDS,
    ) -> Any:
        """Returns the answer's JSON. `doing` starts the error message; `body` is a document, or the bytes of a tar."""
        _, content = self.request(
            doing, method, path, body, expected=expected, seconds=seconds
        )
        try:
            return json.loads(content) if content.strip() else {}
        except ValueError as error:
            raise EngineError(f"{doing}: the engine's answer is not JSON") from error

    def request(
        self,
        doing: str,
        method: str,
        path: str,
        body: Any = None,
        *,
        expected: tuple[int, ...],
        seconds: float = QUICK_SECONDS,
    ) -> tuple[bytes, bytes]:
        """Returns the head and the content of the answer."""

        def once() -> tuple[bytes, bytes]:
            return self._once(doing, method, path, body, expected, stretched(seconds))

        try:
            return once()
        except (
            Unreachable
        ):  # a daemon that restarts; seldom, so tenacity is imported here
            from tenacity import (
                Retrying,
                retry_if_exception_type,
                stop_after_delay,
                wait_random_exponential,
            )

            again = Retrying(
                retry=retry_if_exception_type(Unreachable),
                stop=stop_after_delay(stretched(RETRY_SECONDS)),
                wait=wait_random_exponential(0.02, max=0.3),
                reraise=True,
            )
            return again(once)

    def stream(self, doing: str, path: str, body: Any) -> tuple[socket.socket, bytes]:
        """Returns a connection that the engine turned into a raw stream, and the bytes of it that came already."""
        try:
            with ExitStack() as on_failure:
                connection = on_failure.enter_context(
                    self._connect(time.monotonic() + stretched(QUICK_SECONDS))
                )
                connection.sendall(
                    _request(
                        "POST",
                        path,
                        body,
                        "HTTP/1.1",
                        "Connection: Upgrade\r\nUpgrade: tcp\r\n",
                    )
                )
                answer = b""
                while b"\r\n\r\n" not in answer:
                    part = connection.recv(4096)
                    if not part or len(answer) > ANSWER_MAX:
                        raise ConnectionResetError("it closed the connection")
                    answer += part
                head, _, rest = answer.partition(b"\r\n\r\n")
                if (status := _status(head)) not in (101, 200):
                    raise Answered(doing, status, _message(rest))
                on_failure.pop_all()
                return connection, rest
        except (OSError, ValueError) as error:
            raise Unreachable(f"{doing}: {_reason(error, self.endpoint)}") from error

    def _once(
        self,
        doing: str,
        method: str,
        path: str,
        body: Any,
        expected: tuple[int, ...],
        seconds: float,
    ) -> tuple[bytes, bytes]:
        deadline = time.monotonic() + seconds
        try:
            with self._connect(deadline) as connection:
                connection.sendall(_request(method, path, body, "HTTP/1.0"))
                about_to_wait()
                head, content = _split(
                    _receive(connection, deadline), whole=method != "HEAD"
                )
                status = _status(head)
        except TimeoutError:
            raise EngineUnavailable(
                f"{doing}: the engine at {self.endpoint.host} did not answer in time"
            ) from None
        except (PermissionError, FileNotFoundError, socket.gaierror) as error:
            raise EngineUnavailable(
                f"{doing}: {_reason(error, self.endpoint)}"
            ) from error
        except OSError as error:
            raise Unreachable(f"{doing}: {_reason(error, self.endpoint)}") from error
        except (ValueError, IndexError) as error:
            raise EngineError(
                f"{doing}: the server at {self.endpoint.host} is not a container engine"
            ) from error
        if status not in expected:
            raise Answered(doing, status, _message(content))
        return head, content

    def _connect(self, deadline: float) -> socket.socket:
        seconds = max(0.001, deadline - time.monotonic())
        if path := self.endpoint.path:
            with ExitStack() as on_failure:
                connection = on_failure.enter_context(
                    socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                )
                connection.settimeout(seconds)
                connection.connect(path)
                on_failure.pop_all()
                return connection
        name, port = _address(self.endpoint.host)
        plain = socket.create_connection((name, port), seconds)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return (
            self._tls.wrap_socket(plain, server_hostname=name) if self._tls else plain
        )


@contextmanager
def expected_shape(doing: str) -> Iterator[None]:
    """Turns the errors of reading an answer with an unexpected shape into one clear EngineError."""
    try:
        yield
    except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
        raise EngineError(
            f"{doing}: the engine's answer has an unexpected form ({type(error).__name__}: {error})"
        ) from error


def quote(text: str) -> str:
    """For a path or a query. Importing urllib for it would take longer than the request."""
    return "".join(
        chr(byte) if byte in _UNQUOTED else f"%{byte:02X}" for byte in text.encode()
    )


def _request(method: str, path: str, body: Any, version: str, more: str = "") -> bytes:
    data = (
        body
        if isinstance(body, bytes)
        else b""
        if body is None
        else json.dumps(body).encode()
    )
    kind = "application/x-tar" if isinstance(body, bytes) else "application/json"
    fields = (
        f"Host: docker\r\n{more}Content-Type: {kind}\r\nContent-Length: {len(data)}"
    )
    return f"{method} {path} {version}\r\n{fields}\r\n\r\n".encode() + data


def _receive(connection: socket.socket, deadline: float) -> bytes:
    """Read until the other side closes. The deadline is for the whole answer, however slowly it trickles in."""
    answer = bytearray()
    while part := connection.recv(1 << 16):
        answer += part
        if len(answer) > ANSWER_MAX:
            raise EngineError("the engine's answer is too long")
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        connection.settimeout(left)
    return bytes(answer)


def _split(answer: bytes, *, whole: bool) -> tuple[bytes, bytes]:
    head, gap, content = answer.partition(b"\r\n\r\n")
    if answer and not answer.startswith(b"HTTP/1."):
        raise ValueError("no HTTP")
    length = re.search(rb"\r\ncontent-length: *(\d+)", head, re.IGNORECASE)
    if not gap or (whole and length and len(content) < int(length[1])):
        raise ConnectionResetError(
            "it closed the connection in the middle of an answer"
        )
    return head, content


def _status(head: bytes) -> int:
    return int(head.split(b" ", 2)[1])


def _message(content: bytes) -> str:
    """The engine's error message, in one line that a person can read."""
    try:
        document = json.loads(content)
        text = (
            str(document["message"])
            if isinstance(document, dict) and "message" in document
            else ""
        )
    except ValueError:
        text = content.decode(errors="replace")
    text = re.sub(
        r"seccomp=\{.*\}", "seccomp=…", " ".join(text.split())
    )  # engines quote the whole profile
    return (
        text
        if len(text) <= MESSAGE_MAX
        else f"{text[: MESSAGE_MAX - 100]} … {text[-90:]}"
    )


ADVICE = "; is it running? `belljar doctor` finds out"


def _reason(error: Exception, endpoint: Endpoint) -> str:
    if isinstance(error, PermissionError):
        own = f"start one of your own (`{podman_start()}`)"
        group = "add yourself to its group (`sudo usermod -aG docker $USER`, then log in again)"
        return f"you may not use {endpoint.host}; {own if 'podman' in endpoint.host else group}, or use sudo"
    reason = (
        getattr(error, "strerror", None) or str(error) or "it closed the connection"
    ).lower()
    return f"the engine at {endpoint.host} cannot be reached ({reason}){ADVICE}"


def _address(host: str) -> tuple[str, int]:
    match = re.fullmatch(r"(?:tcp|http|https)://(\[[^]]+\]|[^:/]+)(?::(\d+))?/?", host)
    if match is None:
        raise EngineUnavailable(
            f"{host!r} is not the address of an engine; use unix:///path or tcp://name:port"
        )
    return match[1].strip("[]"), int(match[2] or 2375)


def _tls(endpoint: Endpoint) -> ssl.SSLContext:
    import ssl  # slow to import, and needed by few

    directory = Path(endpoint.certificates)
    try:
        context = ssl.create_default_context(cafile=str(directory / "ca.pem"))
        context.load_cert_chain(directory / "cert.pem", directory / "key.pem")
    except OSError as error:
        raise EngineUnavailable(
            f"the certificates in {directory} cannot be used ({error})"
        ) from error
    return context
