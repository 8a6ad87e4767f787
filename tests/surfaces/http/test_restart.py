"""kill -9 of the server: nothing is lost, nothing runs twice, readers go on at their byte."""

from __future__ import annotations

import os
import random
import subprocess
import threading
import time
import uuid
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.surfaces.http.serving import KEY, Serving, events, serving

from belljar.audit import reader

LINES = 4000
TICKING = (
    f"for i in $(seq {LINES}); do echo line $i äöü; echo err $i >&2; sleep 0.001; done"
)
EXPECTED = [f"line {i} äöü" for i in range(1, LINES + 1)]


def _running(ids: list[str]) -> set[str]:
    """Which of these sessions have a sandbox."""
    listed = ["docker", "ps", "--format", "{{.Names}}", "--filter", "name=belljar-bj-"]
    names = subprocess.run(
        listed, capture_output=True, text=True, check=False
    ).stdout.split()
    return {id for id in ids if f"belljar-{id}" in names}


class Reader:
    """Follows a stream over every interruption."""

    def __init__(self, server: Serving, path: str) -> None:
        self._server, self._path = server, path
        self.pieces: list[tuple[int, bytes, str]] = []
        self.ended: dict[str, Any] | None = None
        self._thread = threading.Thread(target=self._follow)
        self._thread.start()

    def _follow(self) -> None:
        last: str | None = None
        deadline = time.monotonic() + 120
        while self.ended is None and time.monotonic() < deadline:
            headers = {
                "Accept": "text/event-stream",
                **({"Last-Event-ID": last} if last else {}),
            }
            try:
                with (
                    self._server.with_key(KEY) as client,
                    client.stream(
                        "GET", self._path, headers=headers, timeout=30
                    ) as answer,
                ):
                    for event in events(answer.iter_lines()):
                        last = event.get("id", last)
                        self._take(event)
            except httpx.TransportError:
                time.sleep(0.05)

    def _take(self, event: dict[str, Any]) -> None:
        data = event["data"]
        if event["event"] == "output":
            self.pieces.append((data["offset"], data["text"].encode(), data["stream"]))
        elif event["event"] == "ended":
            self.ended = data["command"]

    def join(self) -> dict[str, Any]:
        self._thread.join(150)
        assert self.ended is not None
        return self.ended

    def check(self) -> None:
        position = 0
        for offset, data, _ in self.pieces:
            assert offset == position
            position += len(data)

    def text(self, stream: str) -> str:
        return b"".join(
            data for _, data, name in self.pieces if name == stream
        ).decode()


@pytest.mark.engine
def test_nothing_is_lost_when_the_server_is_killed_again_and_again(
    tmp_path: Path,
) -> None:
    with serving(tmp_path) as server:
        session = server.session(workspace="w")
        found = server.run(session, TICKING, wait=0)
        once = server.run(session, "echo once >> /workspace/once; sleep 6", wait=0)
        asked = server.run(session, 'rm -rf "$NOWHERE"; echo allowed', wait=0)
        approval = server.client.get(f"/v1/approvals/{asked['approval']}").json()
        shell = server.run(session, "cd /tmp; X=kept", shell="s")
        assert shell["exit_code"] == 0
        key = {"Idempotency-Key": str(uuid.uuid4())}
        again = {"command": "echo idempotent >> /workspace/idempotent"}
        path = f"/v1/sessions/{session}/commands"
        first = server.client.post(path, json=again, headers=key).json()
        follower = Reader(server, f"{path}/{found['id']}")
        for _ in range(5):
            time.sleep(random.uniform(0.1, 1.2))
            server.kill()
            server.start()
        assert server.client.get(f"/v1/sessions/{session}").json()["state"] == "ready"
        assert (
            server.client.post(path, json=again, headers=key).json()["id"]
            == first["id"]
        )
        ended = follower.join()
        follower.check()
        assert follower.text("stdout").splitlines() == EXPECTED
        assert follower.text("stderr").splitlines() == [
            f"err {i}" for i in range(1, LINES + 1)
        ]
        assert ended["result"]["stdout"].splitlines() == EXPECTED
        assert ended["result"]["cause"] == "exited"
        waiting = server.client.get(f"/v1/approvals/{asked['approval']}").json()
        assert waiting == approval
        body = {"decision": "allow", "token": approval["token"]}
        assert (
            server.client.post(f"/v1/approvals/{approval['id']}", json=body).status_code
            == 200
        )
        allowed = server.client.get(
            f"{path}/{asked['id']}", headers={"Prefer": "wait=30"}
        ).json()
        assert allowed["result"]["stdout"] == "allowed\n"
        server.client.get(f"{path}/{once['id']}", headers={"Prefer": "wait=30"})
        assert (
            server.run(session, "cat once idempotent")["result"]["stdout"]
            == "once\nidempotent\n"
        )
        assert (
            server.run(session, "pwd; echo $X", shell="s")["result"]["stdout"]
            == "/tmp\nkept\n"
        )
        assert server.client.get("/v1/audit/verify").json()["ok"]
        records = list(
            reader.records(tmp_path / "serve" / "tenants" / "default" / "audit")
        )
        starts = [
            record["run"]
            for record in records
            if record["kind"] == "start" and record["session"] == session
        ]
        ends = [
            record["run"]
            for record in records
            if record["kind"] == "end" and record["session"] == session
        ]
        assert len(starts) == len(set(starts))
        assert sorted(starts) == sorted(ends)


@pytest.mark.engine
def test_a_session_that_was_starting_is_made_and_an_orphan_is_removed(
    tmp_path: Path,
) -> None:
    before = _directories()  # of other tests
    with serving(tmp_path) as server:
        ids = [
            server.client.post("/v1/sessions", json={}).json()["id"] for _ in range(3)
        ]
        queued = server.run(ids[0], "echo ran", wait=0)
        server.kill()
        server.start()
        for id in ids:
            deadline = time.monotonic() + 60
            while server.client.get(f"/v1/sessions/{id}").json()["state"] != "ready":
                assert time.monotonic() < deadline
                time.sleep(0.05)
        path = f"/v1/sessions/{ids[0]}/commands/{queued['id']}"
        ended = server.client.get(path, headers={"Prefer": "wait=30"}).json()
        assert ended["result"]["stdout"] == "ran\n"
        assert _running(ids) == set(ids)
        assert _directories() - before == set(ids)
    assert not _running(ids)


def _directories() -> set[str]:
    return {path.name for path in Path(os.environ["BELLJAR_RUN"]).glob("bj-*")}


def test_a_graceful_stop_leaves_sessions_alone(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        session = server.session()
        found = server.run(session, "sleep 4; echo survived", wait=0)
        opened = threading.Event()

        def follow() -> None:
            with (
                server.with_key(KEY) as client,
                client.stream("GET", "/v1/events") as answer,
            ):
                for _ in answer.iter_lines():
                    opened.set()

        follower = threading.Thread(target=follow)
        follower.start()
        opened.wait(10)
        began = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - began < 10
        follower.join(10)
        server.start()
        path = f"/v1/sessions/{session}/commands/{found['id']}"
        ended = server.client.get(path, headers={"Prefer": "wait=30"}).json()
        assert (ended["result"]["stdout"], ended["result"]["cause"]) == (
            "survived\n",
            "exited",
        )


@pytest.mark.engine
def test_a_paused_session_stays_paused_over_a_restart(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        session = server.session()
        found = server.run(
            session, "read line; echo got $line", wait=0, stdin_open=True
        )
        path = f"/v1/sessions/{session}/commands/{found['id']}"
        while server.client.get(path).json()["state"] != "running":
            time.sleep(0.05)
        server.client.patch(f"/v1/sessions/{session}", json={"paused": True})
        server.kill()
        server.start()
        assert server.client.get(f"/v1/sessions/{session}").json()["state"] == "paused"
        assert (
            server.client.post(f"{path}/stdin", content=b"x\n").json()["code"]
            == "not_ready"
        )
        server.client.patch(f"/v1/sessions/{session}", json={"paused": False})
        assert server.client.post(f"{path}/stdin", content=b"on\n").status_code == 204
        ended = server.client.get(path, headers={"Prefer": "wait=30"}).json()
        assert ended["result"]["stdout"] == "got on\n"
