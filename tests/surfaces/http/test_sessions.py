"""The life of a session: what is asked for, lease, pause, end, loss (sessions.py, service.py, storage.py)."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest
from tests.surfaces.http.serving import Serving

import belljar
from belljar.surfaces.http import service, sessions, storage  # noqa: F401 - what these tests are about


def _until_ended(
    server: Serving, session: str, seconds: float = 40
) -> dict[str, object]:
    deadline = time.monotonic() + seconds
    while True:
        found = server.client.get(f"/v1/sessions/{session}").json()
        if found["state"] == "ended" or time.monotonic() > deadline:
            return dict(found)
        time.sleep(0.1)


def test_a_session_says_what_is_in_force(server: Serving) -> None:
    body = {
        "name": "mine",
        "limits": {"memory": "512m", "cpus": 0.5},
        "metadata": {"a": "b"},
        "env": {"X": "1"},
    }
    made = server.client.post("/v1/sessions", json=body)
    assert made.status_code == 201
    found = made.json()
    assert found["state"] in ("queued", "starting")
    assert made.headers["location"] == f"/v1/sessions/{found['id']}"
    assert set(found["limits"]) == set(belljar.Limits().as_dict())
    assert (found["limits"]["memory"], found["lease"], found["policy"]) == (
        512 << 20,
        600,
        "default",
    )
    assert server.run(found["id"], "echo $X")["result"]["stdout"] == "1\n"
    listed = server.client.get("/v1/sessions?metadata.a=b&state=ready").json()["items"]
    assert [each["id"] for each in listed] == [found["id"]]
    assert server.client.get("/v1/sessions?metadata.a=c").json()["items"] == []
    ended = server.client.delete(f"/v1/sessions/{found['id']}")
    assert (ended.status_code, ended.json()["state"], ended.json()["reason"]) == (
        200,
        "ended",
        "deleted",
    )
    assert server.client.delete(f"/v1/sessions/{found['id']}").json() == ended.json()


def test_after_the_end_reading_goes_on(server: Serving) -> None:
    session = server.session()
    done = server.run(session, "echo kept")
    running = server.run(session, "echo half; sleep 100", wait=0)
    path = f"/v1/sessions/{session}/commands"
    server.client.get(f"{path}/{running['id']}/output", params={"wait": 30})
    server.client.delete(f"/v1/sessions/{session}")
    answer = server.client.post(path, json={"command": "true"})
    assert (answer.status_code, answer.json()["code"]) == (410, "session_ended")
    assert server.client.get(f"{path}/{done['id']}").json() == done
    assert server.client.get(f"{path}/{done['id']}/output").content == b"kept\n"
    killed = server.client.get(f"{path}/{running['id']}").json()
    assert (killed["result"]["cause"], killed["result"]["stdout"]) == (
        "killed",
        "half\n",
    )


def test_commands_queue_until_the_sandbox_is_ready(server: Serving) -> None:
    session = server.client.post("/v1/sessions", json={}).json()["id"]
    assert server.run(session, "echo early")["result"]["stdout"] == "early\n"
    answer = server.client.post(
        f"/v1/sessions/{session}/commands", json={"command": "rm -rf /"}
    )
    assert answer.json()["code"] == "policy_denied"
    server.client.delete(f"/v1/sessions/{session}")


def test_a_missing_image_is_a_state(server: Serving) -> None:
    made = server.client.post(
        "/v1/sessions", json={"image": "no-such-image"}, headers={"Prefer": "wait=60"}
    )
    assert (made.status_code, made.json()["state"], made.json()["reason"]) == (
        201,
        "ended",
        "failed",
    )
    assert made.json()["error"]["code"] == "image_missing"


def test_a_lease_ends_a_session_and_use_extends_it(server: Serving) -> None:
    session = server.session(lease=2)
    before = server.client.get(f"/v1/sessions/{session}").json()["expires"]
    server.run(session, "sleep 3")
    found = server.client.get(f"/v1/sessions/{session}").json()
    assert found["state"] == "ready"
    assert found["expires"] > before + 2
    assert _until_ended(server, session)["reason"] == "expired"


def test_a_patch_changes_lease_and_metadata(server: Serving, session: str) -> None:
    found = server.client.patch(
        f"/v1/sessions/{session}", json={"lease": 1000, "metadata": {"k": "v"}}
    ).json()
    assert (found["lease"], found["metadata"]) == (1000, {"k": "v"})
    assert 990 < found["expires"] - time.time() <= 1000
    shorter = server.client.patch(f"/v1/sessions/{session}", json={"lease": 700}).json()
    assert shorter["expires"] - time.time() <= 700
    assert (
        server.client.patch(f"/v1/sessions/{session}", json={"lease": None}).json()[
            "field"
        ]
        == "lease"
    )


def test_a_paused_session_stands_still(server: Serving) -> None:
    session = server.session()
    found = server.run(session, "i=0; while :; do i=$((i+1)); echo $i; done", wait=0)
    path = f"/v1/sessions/{session}/commands/{found['id']}"
    server.client.get(f"{path}/output", params={"wait": 30})
    paused = server.client.patch(
        f"/v1/sessions/{session}", json={"paused": True}
    ).json()
    assert (paused["state"], paused["paused"]) == ("paused", True)
    queued = server.run(session, "echo later", wait=0)
    assert queued["state"] == "queued"
    size = _settled(server, path)
    time.sleep(0.5)
    assert server.client.get(path).json()["bytes_produced"] == size
    for answer in (
        server.client.get(f"/v1/sessions/{session}/entries"),
        server.client.post(f"{path}/signal", json={"signal": "INT"}),
        server.client.delete(path),
    ):
        assert (
            answer.status_code,
            answer.json()["code"],
            answer.headers["retry-after"],
        ) == (409, "not_ready", "1")
    assert (
        server.client.patch(f"/v1/sessions/{session}", json={"paused": False}).json()[
            "state"
        ]
        == "ready"
    )
    later = server.client.get(
        f"/v1/sessions/{session}/commands/{queued['id']}", headers={"Prefer": "wait=30"}
    ).json()
    assert later["result"]["stdout"] == "later\n"
    server.client.delete(f"/v1/sessions/{session}")


def _settled(server: Serving, path: str) -> int:
    """How much a command had produced when it was paused: what had left the sandbox may still be on its way."""
    before = -1
    while (now := int(server.client.get(path).json()["bytes_produced"])) != before:
        before = now
        time.sleep(0.3)
    return now


def test_a_paused_session_can_be_ended_and_nothing_is_left(server: Serving) -> None:
    session = server.session()
    found = server.run(session, "sleep 600", wait=0)
    server.client.patch(f"/v1/sessions/{session}", json={"paused": True})
    ended = server.client.delete(f"/v1/sessions/{session}").json()
    assert (ended["state"], ended["reason"], ended["paused"]) == (
        "ended",
        "deleted",
        False,
    )
    command = server.client.get(f"/v1/sessions/{session}/commands/{found['id']}").json()
    assert (command["state"], command["result"]["cause"]) == ("ended", "killed")


def test_a_named_workspace_outlives_its_session(server: Serving) -> None:
    first = server.session(workspace="shared")
    server.run(first, "echo kept > file")
    server.client.delete(f"/v1/sessions/{first}")
    second = server.session(workspace="shared")
    assert server.run(second, "cat file")["result"]["stdout"] == "kept\n"
    server.client.delete(f"/v1/sessions/{second}")
    third = server.session()
    assert server.run(third, "ls")["result"]["stdout"] == ""
    server.client.delete(f"/v1/sessions/{third}")


@pytest.mark.engine
def test_a_lost_sandbox_is_noticed(server: Serving) -> None:
    session = server.session()
    found = server.run(session, "sleep 100", wait=0)
    subprocess.run(
        ["docker", "kill", f"belljar-{session}"], check=True, capture_output=True
    )
    ended = _until_ended(server, session)
    assert (ended["reason"], ended["error"]["code"]) == ("lost", "sandbox_lost")  # type: ignore[index]
    command = server.client.get(f"/v1/sessions/{session}/commands/{found['id']}").json()
    assert (command["result"]["cause"], command["exit_code"]) == ("sandbox_lost", 125)


async def test_a_store_commits_what_waits_together(tmp_path: Path) -> None:
    """Also that belljar.surfaces.http.migrations.env runs belljar.surfaces.http.migrations.versions.step_0001."""
    store = storage.Store.at(None, tmp_path)
    await store.open()
    try:
        await store.insert(storage.facts, id="a", data={"n": 1})
        with pytest.raises(storage.IntegrityError):
            await store.insert(storage.facts, id="a", data={})
        assert await store.update(storage.facts, "a", data={"n": 2})
        row = await store.get(storage.facts, "a")
        assert row is not None
        assert row["data"] == {"n": 2}
    finally:
        await store.close()


def test_metadata_stays_small_when_it_is_changed(server: Serving, session: str) -> None:
    answer = server.client.patch(
        f"/v1/sessions/{session}", json={"metadata": {"a": "x" * 4096}}
    )
    assert (answer.status_code, answer.json()["field"]) == (400, "metadata")
