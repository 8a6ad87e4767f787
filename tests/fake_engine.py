"""A fake engine that fails, lies or is old, as the real one cannot be made to."""

from __future__ import annotations

import json
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable
from typing import Any

REAL = "/var/run/docker.sock"


class FakeEngine:
    """Listens like an engine. `answer(request)` returns the bytes to send, or None for silence."""

    def __init__(
        self, answer: Callable[[bytes], bytes | None], byte_by_byte: bool = False
    ) -> None:
        self.directory = tempfile.mkdtemp(prefix="belljar-fake-")
        self.path = f"{self.directory}/docker.sock"
        self.requests: list[bytes] = []
        self._answer, self._byte_by_byte = answer, byte_by_byte
        self._closing = threading.Event()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.path)
        self._listener.listen(64)
        self._threads = [threading.Thread(target=self._serve, daemon=True)]
        self._threads[0].start()

    def _serve(self) -> None:
        while not self._closing.is_set():
            try:
                caller, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(
                target=self._answer_one, args=[caller], daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def _answer_one(self, caller: socket.socket) -> None:
        with caller:
            caller.settimeout(30)
            try:
                request = _request(caller)
                self.requests.append(request)
                answer = self._answer(request)
                if answer is None:
                    self._closing.wait(30)
                    return
                for at in range(
                    0, len(answer), 1 if self._byte_by_byte else len(answer) or 1
                ):
                    caller.sendall(
                        answer[at : at + 1] if self._byte_by_byte else answer
                    )
                    if self._byte_by_byte and self._closing.wait(0.3):
                        return
            except OSError:
                pass

    def close(self) -> None:
        self._closing.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(5)
        shutil.rmtree(self.directory)

    def count(self, what: bytes) -> int:
        return sum(what in request.partition(b"\r\n")[0] for request in self.requests)


def _request(caller: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        part = caller.recv(1 << 16)
        if not part:
            raise OSError("hung up")
        data += part
    head, _, body = data.partition(b"\r\n\r\n")
    fields = dict(
        line.lower().split(b": ", 1)
        for line in head.split(b"\r\n")[1:]
        if b": " in line
    )
    while len(body) < int(fields.get(b"content-length", b"0")):
        body += caller.recv(1 << 16)
    return head + b"\r\n\r\n" + body


def reply(status: int, body: Any) -> bytes:
    content = json.dumps(body).encode()
    return b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (
        status, len(content), content,
    )  # fmt: skip


def real_answer(request: bytes) -> bytes:
    """Pass the request to the real engine and return its answer."""
    head, _, body = request.partition(b"\r\n\r\n")
    lines = [
        line
        for line in head.split(b"\r\n")
        if not line.lower().startswith(b"connection")
    ]
    with socket.socket(socket.AF_UNIX) as engine:
        engine.connect(REAL)
        engine.sendall(
            b"\r\n".join([*lines, b"Connection: close"]) + b"\r\n\r\n" + body
        )
        return b"".join(iter(lambda: engine.recv(1 << 16), b""))


def broken_at(
    at: bytes, how: Callable[[bytes], bytes | None]
) -> Callable[[bytes], bytes | None]:
    """Answer requests with `at` in their first line by `how`, and all others as the real engine."""
    return lambda request: (
        how(request) if at in request.partition(b"\r\n")[0] else real_answer(request)
    )


def json_of(answer: bytes) -> Any:
    """The JSON body of an answer, chunked or not."""
    head, _, content = answer.partition(b"\r\n\r\n")
    if b"chunked" in head.lower():
        whole = b""
        while content:
            size, _, rest = content.partition(b"\r\n")
            whole, content = whole + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
        content = whole
    return json.loads(content)
