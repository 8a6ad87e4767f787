"""An engine that is slow, lies or breaks off causes a typed error in time. Nothing is left or done twice."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread
from tests.abuse.conftest import Footprint, nothing_left
from tests.fake_engine import FakeEngine, broken_at, real_answer, reply

import belljar
from belljar import host
from belljar.engines.docker.engine import DockerEngine
from belljar.errors import BelljarError, EngineError

pytestmark = pytest.mark.docker
HANG = 120.0  # seconds: longer than a busy machine needs


@pytest.fixture
def fake(
    monkeypatch: pytest.MonkeyPatch, base_image: str
) -> Iterator[Callable[..., FakeEngine]]:
    made: list[FakeEngine] = []

    def make(answer: Callable[[bytes], bytes | None], **options: Any) -> FakeEngine:
        made.append(FakeEngine(answer, **options))
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
    """Cut deadlines to a few seconds, so that the tests are short."""
    monkeypatch.setenv("BELLJAR_PATIENCE", "0.05")


WAYS: dict[str, Callable[[bytes], bytes | None]] = {
    "silence": lambda request: None,
    "hangs up": lambda request: b"",
    "garbage": lambda request: os.urandom(4096),
    "breaks off in its headers": lambda request: b"HTTP/1.1 200 OK\r\nContent-",
    "breaks off in its body": lambda request: reply(200, {"Id": "x" * 100})[:-50],
    "a body that is no JSON": lambda request: (
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n<ht>\n"
    ),
    "a lie of another shape": lambda request: reply(200, []),
    "a lie of another type": lambda request: reply(
        200, {"Id": 5, "State": 7, "ApiVersion": 1.41, "Os": {}}
    ),
    "an error of its own": lambda request: reply(500, {"message": "broken"}),
    "a conflict": lambda request: reply(409, {"message": "conflict"}),
    "not found": lambda request: reply(404, {"message": "no such thing"}),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("at", ["", "/containers/create", "/start"])
async def test_a_broken_engine_is_a_clear_error_in_time(
    fake: Callable[..., FakeEngine],
    workspace: Path,
    engine: DockerEngine,
    at: str,
    way: str,
    impatient: None,
) -> None:
    before = await to_thread.run_sync(Footprint.now, engine)
    fake(broken_at(at.encode(), WAYS[way]))
    with anyio.fail_after(HANG), pytest.raises(BelljarError) as failed:
        await belljar.run("true", workspace)
    assert isinstance(failed.value, EngineError)
    assert "\n" not in str(failed.value)
    await nothing_left(engine, before)


async def test_an_engine_that_answers_byte_by_byte_is_given_up_in_time(
    fake: Callable[..., FakeEngine], workspace: Path, impatient: None
) -> None:
    fake(
        lambda request: reply(200, {"ApiVersion": "1.41" + " " * 1000}),
        byte_by_byte=True,
    )
    with anyio.fail_after(HANG), pytest.raises(EngineError, match="in time"):
        await belljar.run("true", workspace)


async def test_no_engine_at_all_is_a_clear_error(
    monkeypatch: pytest.MonkeyPatch, workspace: Path
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///run/no-such-engine.sock")
    host.default().forget()
    try:
        with anyio.fail_after(HANG), pytest.raises(EngineError, match="DOCKER_HOST"):
            await belljar.run("true", workspace)
    finally:
        host.default().forget()


# Retries.


async def test_a_container_whose_creation_went_unanswered_is_not_made_twice(
    fake: Callable[..., FakeEngine], workspace: Path
) -> None:
    def lose(request: bytes) -> bytes:
        answer = real_answer(request)
        return b"" if engine.count(b"/containers/create") == 1 else answer

    engine = fake(broken_at(b"/containers/create", lose))
    result = await belljar.run("echo once >> made; cat made", workspace, timeout=60)
    assert result.stdout == "once\n"
    assert engine.count(b"/containers/create") == 2
    creations = [
        request for request in engine.requests if b"/containers/create" in request
    ]
    names = {request.split(b"name=")[1].split(b" ")[0] for request in creations}
    assert len(names) == 1, (
        "by the same name, so that the engine itself refuses a second"
    )


async def test_a_request_is_repeated_until_a_short_outage_is_over(
    fake: Callable[..., FakeEngine], workspace: Path
) -> None:
    def at_third(request: bytes) -> bytes:
        return real_answer(request) if engine.count(b"/start") >= 3 else b""

    engine = fake(broken_at(b"/start", at_third))
    assert (await belljar.run("echo up", workspace, timeout=60)).stdout == "up\n"


async def test_the_number_of_retries_is_bounded(
    fake: Callable[..., FakeEngine], workspace: Path
) -> None:
    engine = fake(broken_at(b"/start", lambda request: b""))
    with anyio.fail_after(HANG), pytest.raises(EngineError):
        await belljar.run("true", workspace)
    assert 2 <= engine.count(b"/start") <= 60


async def test_a_request_that_the_engine_refuses_is_not_repeated(
    fake: Callable[..., FakeEngine], workspace: Path
) -> None:
    engine = fake(broken_at(b"/start", WAYS["an error of its own"]))
    with pytest.raises(EngineError, match="broken"):
        await belljar.run("true", workspace)
    assert engine.count(b"/start") <= 2
