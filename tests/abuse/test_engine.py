"""An engine that is slow, lies or breaks off: a typed error within 5 seconds, nothing left, nothing done twice."""

from __future__ import annotations

import json
import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread
from tests.abuse.conftest import Footprint, nothing_left

import belljar
from belljar import host
from belljar.engines.docker.engine import DockerEngine
from belljar.errors import BelljarError, EngineError

HANG = 60.0  # seconds: beyond what a busy machine needs
REAL = "/var/run/docker.sock"


# A fake engine: it can break in every way, and the real one cannot be made to.


class Fake:
    """Listens like an engine; `answer(request) -> bytes | None` says what comes back, None is silence."""

    def __init__(self, answer: Callable[[bytes], bytes | None], drip: bool = False) -> None:
        self.directory = tempfile.mkdtemp(prefix="belljar-fake-")
        self.path = f"{self.directory}/docker.sock"
        self.requests: list[bytes] = []
        self._answer, self._drip = answer, drip
        self._over = threading.Event()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.path)
        self._listener.listen(64)
        self._threads = [threading.Thread(target=self._serve, daemon=True)]
        self._threads[0].start()

    def _serve(self) -> None:
        while not self._over.is_set():
            try:
                caller, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._meet, args=[caller], daemon=True)
            self._threads.append(thread)
            thread.start()

    def _meet(self, caller: socket.socket) -> None:
        with caller:
            caller.settimeout(30)
            try:
                request = _request(caller)
                self.requests.append(request)
                answer = self._answer(request)
                if answer is None:
                    self._over.wait(30)
                    return
                for at in range(0, len(answer), 1 if self._drip else len(answer) or 1):
                    caller.sendall(answer[at : at + 1] if self._drip else answer)
                    if self._drip and self._over.wait(0.3):
                        return
            except OSError:
                pass

    def close(self) -> None:
        self._over.set()
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
    fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:] if b": " in line)
    while len(body) < int(fields.get(b"content-length", b"0")):
        body += caller.recv(1 << 16)
    return head + b"\r\n\r\n" + body


def reply(status: int, body: Any) -> bytes:
    content = json.dumps(body).encode()
    return b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (
        status, len(content), content,
    )  # fmt: skip


def passed_on(request: bytes) -> bytes:
    """What the real engine says."""
    head, _, body = request.partition(b"\r\n\r\n")
    lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"connection")]
    with socket.socket(socket.AF_UNIX) as engine:
        engine.connect(REAL)
        engine.sendall(b"\r\n".join([*lines, b"Connection: close"]) + b"\r\n\r\n" + body)
        return b"".join(iter(lambda: engine.recv(1 << 16), b""))


def breaking(at: bytes, how: Callable[[bytes], bytes | None]) -> Callable[[bytes], bytes | None]:
    """Honest until a request has `at` in its first line."""
    return lambda request: how(request) if at in request.partition(b"\r\n")[0] else passed_on(request)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, base_image: str) -> Iterator[Callable[..., Fake]]:
    made: list[Fake] = []

    def make(answer: Callable[[bytes], bytes | None], **options: Any) -> Fake:
        made.append(Fake(answer, **options))
        monkeypatch.setenv("DOCKER_HOST", f"unix://{made[-1].path}")
        host.default().forget()
        return made[-1]

    yield make
    for each in made:
        each.close()
    monkeypatch.undo()
    host.default().forget()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deadlines of a few seconds, so that a test need not wait for them."""
    monkeypatch.setenv("BELLJAR_PATIENCE", "0.05")


WAYS: dict[str, Callable[[bytes], bytes | None]] = {
    "silence": lambda request: None,
    "hangs up": lambda request: b"",
    "garbage": lambda request: os.urandom(4096),
    "breaks off in its headers": lambda request: b"HTTP/1.1 200 OK\r\nContent-",
    "breaks off in its body": lambda request: reply(200, {"Id": "x" * 100})[:-50],
    "a body that is no JSON": lambda request: b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n<ht>\n",
    "a lie of another shape": lambda request: reply(200, []),
    "a lie of another type": lambda request: reply(200, {"Id": 5, "State": 7, "ApiVersion": 1.41, "Os": {}}),
    "an error of its own": lambda request: reply(500, {"message": "broken"}),
    "a conflict": lambda request: reply(409, {"message": "conflict"}),
    "not found": lambda request: reply(404, {"message": "no such thing"}),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("at", ["", "/containers/create", "/start"])
async def test_a_broken_engine_is_a_clear_error_in_time(
    fake: Callable[..., Fake], workspace: Path, engine: DockerEngine, at: str, way: str, impatient: None
) -> None:
    before = await to_thread.run_sync(Footprint.now, engine)
    fake(breaking(at.encode(), WAYS[way]))
    with anyio.fail_after(HANG), pytest.raises(BelljarError) as failed:
        await belljar.run("true", workspace)
    assert isinstance(failed.value, EngineError)
    assert "\n" not in str(failed.value)
    await nothing_left(engine, before)


async def test_an_engine_that_drips_is_no_better_than_a_silent_one(
    fake: Callable[..., Fake], workspace: Path, impatient: None
) -> None:
    fake(lambda request: reply(200, {"ApiVersion": "1.41" + " " * 1000}), drip=True)
    with anyio.fail_after(HANG), pytest.raises(EngineError, match="in time"):
        await belljar.run("true", workspace)


async def test_no_engine_at_all_is_a_clear_error(monkeypatch: pytest.MonkeyPatch, workspace: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///run/no-such-engine.sock")
    host.default().forget()
    try:
        with anyio.fail_after(HANG), pytest.raises(EngineError, match="DOCKER_HOST"):
            await belljar.run("true", workspace)
    finally:
        host.default().forget()


# Retries.


async def test_a_creation_whose_answer_was_lost_is_not_made_twice(fake: Callable[..., Fake], workspace: Path) -> None:
    def lose(request: bytes) -> bytes:
        answer = passed_on(request)
        return b"" if engine.count(b"/containers/create") == 1 else answer

    engine = fake(breaking(b"/containers/create", lose))
    result = await belljar.run("echo once >> made; cat made", workspace, timeout=60)
    assert result.stdout == "once\n"
    assert engine.count(b"/containers/create") == 2
    creations = [request for request in engine.requests if b"/containers/create" in request]
    names = {request.split(b"name=")[1].split(b" ")[0] for request in creations}
    assert len(names) == 1, "by the same name, so that the engine itself refuses a second"


async def test_a_short_outage_is_waited_out(fake: Callable[..., Fake], workspace: Path) -> None:
    def at_third(request: bytes) -> bytes:
        return passed_on(request) if engine.count(b"/start") >= 3 else b""

    engine = fake(breaking(b"/start", at_third))
    assert (await belljar.run("echo up", workspace, timeout=60)).stdout == "up\n"


async def test_retries_are_few_and_end(fake: Callable[..., Fake], workspace: Path) -> None:
    engine = fake(breaking(b"/start", lambda request: b""))
    with anyio.fail_after(HANG), pytest.raises(EngineError):
        await belljar.run("true", workspace)
    assert 2 <= engine.count(b"/start") <= 60


async def test_what_the_engine_refuses_is_not_asked_for_again(fake: Callable[..., Fake], workspace: Path) -> None:
    engine = fake(breaking(b"/start", WAYS["an error of its own"]))
    with pytest.raises(EngineError, match="broken"):
        await belljar.run("true", workspace)
    assert engine.count(b"/start") <= 2
