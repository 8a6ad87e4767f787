"""Sandboxes that are ready before anybody asks (warm.py)."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import anyio
import pytest
from tests.surfaces.http.serving import Serving, serving

from belljar.options import SandboxOptions
from belljar.surfaces.http import warm
from belljar.surfaces.http.sessions import LiveSession

pytestmark = pytest.mark.engine


def _hits(server: Serving) -> float:
    lines = server.client.get("/metrics").text.splitlines()
    return next(
        float(line.split()[1])
        for line in lines
        if line.startswith("belljar_pool_hits_total ")
    )


def _ready(server: Serving) -> float:
    lines = server.client.get("/metrics").text.splitlines()
    return next(
        float(line.split()[1])
        for line in lines
        if line.startswith("belljar_pool_ready ")
    )


def _directories() -> set[str]:
    return {path.name for path in Path(os.environ["BELLJAR_RUN"]).glob("bj-*")}


def _is_ready(known: set[str], ids: list[str]) -> None:
    """A sandbox that no session has."""
    deadline = time.monotonic() + 60
    while not _directories() - known - set(ids):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(0.5)  # it is verified


def test_the_next_session_like_it_is_ready_and_nobody_elses(tmp_path: Path) -> None:
    known = _directories()
    with serving(tmp_path, "--warm", "2") as server:
        first = server.session(env={"X": "1"})
        server.run(first, "echo theirs > mine; export Y=2", shell="s")
        _is_ready(known, [first])
        other = server.session(env={"X": "2"})
        assert _hits(server) == 0
        second = server.session(env={"X": "1"}, metadata={"a": "b"}, name="second")
        assert _hits(server) == 1
        assert (
            server.run(second, "ls; echo $X$Y", shell="s")["result"]["stdout"] == "1\n"
        )
        told = server.client.get(f"/v1/sessions/{second}").json()
        assert (told["name"], told["metadata"], told["state"]) == (
            "second",
            {"a": "b"},
            "ready",
        )
        asked = server.run(second, 'rm -rf "$NOWHERE"; echo on', wait=0)
        deadline = time.monotonic() + 30
        while not (
            waiting := server.client.get(f"/v1/approvals?session={second}").json()[
                "items"
            ]
        ):
            assert time.monotonic() < deadline
        body = {"decision": "allow", "token": waiting[0]["token"]}
        assert (
            server.client.post(
                f"/v1/approvals/{waiting[0]['id']}", json=body
            ).status_code
            == 200
        )
        path = f"/v1/sessions/{second}/commands/{asked['id']}"
        assert (
            server.client.get(path, headers={"Prefer": "wait=30"}).json()["result"][
                "stdout"
            ]
            == "on\n"
        )
        for id in (first, other, second):
            server.client.delete(f"/v1/sessions/{id}")
        assert server.stop() == 0
        assert _directories() - known == set()


def test_after_a_kill_nothing_of_it_is_left(tmp_path: Path) -> None:
    known = _directories()
    with serving(tmp_path, "--warm", "2") as server:
        session = server.session()
        _is_ready(known, [session])
        server.kill()
        server.start()
        assert _directories() - known == {session}
        assert server.run(session, "echo on")["result"]["stdout"] == "on\n"


def test_as_many_as_wanted_are_made_and_made_again(tmp_path: Path) -> None:
    with serving(tmp_path, "--warm", "3") as server:
        server.session()
        deadline = time.monotonic() + 60
        while _ready(server) < 3:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        for hits in (1, 2, 3):
            server.session()
            assert _hits(server) == hits
        while _ready(server) < 3:
            assert time.monotonic() < deadline
            time.sleep(0.05)


class Box:
    """A sandbox that is made when `go` is set."""

    def __init__(self) -> None:
        self.begun, self.go, self.stopped = anyio.Event(), anyio.Event(), False

    async def stop(self) -> None:
        self.stopped = True


async def test_what_is_being_made_for_a_tenant_ends_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tenant ends while a sandbox starts: no real one starts slowly enough to say when."""
    box = Box()

    class Ahead(LiveSession):
        def __init__(self, server: Any, row: Any) -> None:
            self.box, self.data = None, row["session"]

        async def made(self) -> Any:
            box.begun.set()
            await box.go.wait()
            return box

        @property
        def workspace(self) -> Path:
            return tmp_path / "none"

    monkeypatch.setattr(warm, "LiveSession", Ahead)
    data = dict.fromkeys(("workspace", "from", "snapshot")) | {"tenant": "t"}
    like = Ahead(None, {"session": data})
    monkeypatch.setattr(Ahead, "wanted", lambda self: SandboxOptions(tmp_path))
    monkeypatch.setattr(Ahead, "state", "ready")
    ready = warm.Warm(MagicMock(), 1)
    ready.want(like)
    await box.begun.wait()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ready.forget, "t")
        await anyio.wait_all_tasks_blocked()
        box.go.set()
    assert box.stopped
    await ready.close()
    assert ready._ready == []
