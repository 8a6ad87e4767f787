"""One server, and two, on a real PostgreSQL (replicas.py)."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator

import pytest
from tests.surfaces.http.postgres import postgres
from tests.surfaces.http.serving import KEY, Serving, events, serving
from websockets.sync.client import connect

from belljar.surfaces.http import replicas  # noqa: F401 - what these tests are about

ASKED = 'rm -rf "$NOWHERE"; echo allowed'


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    with postgres() as url:
        yield url


@pytest.fixture(scope="module")
def two(
    database: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Serving, Serving]]:
    state = tmp_path_factory.mktemp("serve")
    with serving(state, "--database", database) as first:
        second = Serving(state, "--database", database)
        try:
            yield first, second
        finally:
            if second.process.poll() is None:
                second.stop()


def _until(seconds: float, check: object) -> float:
    began = time.monotonic()
    while not check():  # type: ignore[operator]
        assert time.monotonic() - began < seconds
        time.sleep(0.1)
    return time.monotonic() - began


def test_any_server_answers_for_any_session(two: tuple[Serving, Serving]) -> None:
    first, second = two
    session = first.session(name="mine")
    assert second.client.get(f"/v1/sessions/{session}").json()["name"] == "mine"
    assert second.run(session, "echo from afar")["result"]["stdout"] == "from afar\n"
    assert (
        second.client.post(
            f"/v1/sessions/{session}/commands", json={"command": 1}
        ).json()["field"]
        == "command"
    )
    found = second.run(session, "for i in 1 2 3; do echo $i; sleep 0.2; done", wait=0)
    path = f"/v1/sessions/{session}/commands/{found['id']}"
    with second.client.stream(
        "GET", path, headers={"Accept": "text/event-stream"}
    ) as answer:
        told = [event["data"].get("text", "") for event in events(answer.iter_lines())]
    assert "".join(told) == "1\n2\n3\n"
    assert (
        second.client.put(
            f"/v1/sessions/{session}/files?path=a", content=b"x" * 100_000
        ).json()["size"]
        == 100_000
    )
    assert (
        second.client.get(f"/v1/sessions/{session}/files?path=a").content
        == b"x" * 100_000
    )
    typed = second.run(session, "cat", stdin_open=True, wait=0)
    url = f"{second.url.replace('http', 'ws')}/v1/sessions/{session}/commands/{typed['id']}/attach"
    with connect(
        url, additional_headers={"Authorization": f"Bearer {KEY}"}, proxy=None
    ) as socket:
        socket.send(b"over two servers\n")
        assert socket.recv(30) == b"over two servers\n"
        socket.send(json.dumps({"close_stdin": True}))
    assert session in [
        each["id"] for each in second.client.get("/v1/sessions").json()["items"]
    ]


def test_an_approval_is_decided_at_another_server(two: tuple[Serving, Serving]) -> None:
    first, second = two
    session = first.session()
    asked = first.run(session, ASKED, wait=0)
    (approval,) = second.client.get(
        f"/v1/approvals?state=waiting&session={session}"
    ).json()["items"]
    body = {"decision": "allow", "token": approval["token"]}
    assert (
        second.client.post(f"/v1/approvals/{approval['id']}", json=body).json()["state"]
        == "allowed"
    )
    path = f"/v1/sessions/{session}/commands/{asked['id']}"
    assert (
        first.client.get(path, headers={"Prefer": "wait=30"}).json()["result"]["stdout"]
        == "allowed\n"
    )


def test_keys_count_everywhere_at_once(two: tuple[Serving, Serving]) -> None:
    first, second = two
    made = first.key("run", quota={"sessions": 1})
    time.sleep(1)
    with second.with_key(made["key"]) as client:
        session = client.post(
            "/v1/sessions", json={}, headers={"Prefer": "wait=60"}
        ).json()["id"]
        with first.with_key(made["key"]) as other:
            assert other.post("/v1/sessions", json={}).json()["quota"] == "sessions"
        second.client.delete(f"/v1/sessions/{session}")
        first.client.delete(f"/v1/keys/{made['id']}")
        _until(5, lambda: client.get("/v1/keys/self").status_code == 401)


def test_a_screen_sees_what_happens_at_the_other(two: tuple[Serving, Serving]) -> None:
    first, second = two
    seen = threading.Event()

    def follow() -> None:
        with (
            second.with_key(KEY) as client,
            client.stream("GET", "/v1/events?topics=sessions") as answer,
        ):
            for event in events(answer.iter_lines()):
                if (
                    event["data"].get("kind") == "put"
                    and event["data"]["item"]["name"] == "told"
                ):
                    seen.set()
                    return

    follower = threading.Thread(target=follow)
    follower.start()
    time.sleep(0.5)
    first.session(name="told")
    assert seen.wait(20)
    follower.join(10)


def test_a_killed_servers_sessions_are_taken_over(two: tuple[Serving, Serving]) -> None:
    first, second = two
    session = second.session()
    found = second.run(
        session, "for i in $(seq 200); do echo line $i; sleep 0.05; done", wait=0
    )
    once = second.run(session, "echo once >> once; sleep 3", wait=0)
    asked = second.run(session, ASKED, wait=0)
    second.kill()
    path = f"/v1/sessions/{session}/commands"

    def taken() -> bool:
        return first.client.get(f"{path}/{found['id']}/output").status_code == 200

    assert _until(20, taken) <= 10
    assert first.client.get(f"/v1/sessions/{session}").json()["state"] == "ready"
    ended = first.client.get(
        f"{path}/{found['id']}", headers={"Prefer": "wait=60"}
    ).json()
    assert ended["result"]["stdout"] == "".join(f"line {i}\n" for i in range(1, 201))
    (approval,) = first.client.get(
        f"/v1/approvals?state=waiting&session={session}"
    ).json()["items"]
    body = {"decision": "allow", "token": approval["token"]}
    first.client.post(f"/v1/approvals/{approval['id']}", json=body)
    allowed = first.client.get(
        f"{path}/{asked['id']}", headers={"Prefer": "wait=30"}
    ).json()
    assert allowed["result"]["stdout"] == "allowed\n"
    first.client.get(f"{path}/{once['id']}", headers={"Prefer": "wait=30"})
    assert first.run(session, "cat once")["result"]["stdout"] == "once\n"
    assert first.client.get("/v1/audit/verify").json()["ok"]
