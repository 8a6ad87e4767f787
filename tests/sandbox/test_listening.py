"""A server that starts to listen in a sandbox is reported once."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from belljar import Session
from belljar.sandbox.listening import Listening

SERVER = """python3 -c '
import socket, time, sys
s = [socket.create_server((h, p), family=f) for f, h, p in
     ((socket.AF_INET, "127.0.0.1", 8123), (socket.AF_INET6, "::1", 8124))]
print("up", flush=True); time.sleep(600)'"""


@pytest.fixture
async def box(place: Path, base_image: str) -> AsyncIterator[Session]:
    async with Session(place) as session:
        yield session


async def _told(box: Session) -> tuple[int, ...]:
    """The ports that results report. A check that would cost too much is left to a later command."""
    found: set[int] = set()
    while len(found) < 2:
        found |= set((await box.run("true")).listening)
    return tuple(sorted(found))


async def test_ports_of_a_background_server_are_reported_once(box: Session) -> None:
    shell = await box.start(SERVER)
    await shell.read(wait=60)
    assert await _told(box) == (8123, 8124)
    assert await box.listening() == (8123, 8124)
    assert {(await box.run("true")).listening for _ in range(20)} == {()}
    await shell.kill()
    assert await box.listening() == ()


async def test_ports_of_a_persistent_shell_s_job_are_reported(box: Session) -> None:
    first = await box.persistent.run(
        f"{SERVER} > up & while ! grep -q up up; do sleep 0.02; done"
    )
    found = set(first.listening)  # reported once: by this call or by one of the next
    while not found:
        found |= set((await box.persistent.run("true")).listening)
    assert found <= {8123, 8124}
    assert await box.listening() == (8123, 8124)


async def test_listening_ports_are_in_the_json_of_a_result(box: Session) -> None:
    assert (await box.run("true")).as_dict()["listening"] == []


async def test_without_the_right_to_enter_the_namespace_ports_are_read_from_proc(
    box: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell = await box.start(SERVER)
    await shell.read(wait=60)
    monkeypatch.setattr(Listening, "_make_inside", lambda self: None)
    assert Listening(box.sandbox.launched.pid).ports() == {8123, 8124}


def test_a_sandbox_that_is_gone_has_no_listening_ports() -> None:
    assert Listening(2**22 + 1).ports() == frozenset()
