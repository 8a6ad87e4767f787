"""Snapshots and forks over HTTP: what they begin with, who may, what they refuse."""

from __future__ import annotations

from pathlib import Path

from tests.surfaces.http.serving import Serving, serving

from belljar.surfaces.http import snapshots  # noqa: F401 - what these tests are about


def _ready(server: Serving, **body: object) -> dict[str, object]:
    made = server.client.post("/v1/sessions", json=body, headers={"Prefer": "wait=60"})
    assert (made.status_code, made.json()["state"]) == (201, "ready"), made.text
    return dict(made.json())


def test_a_session_begins_with_a_snapshot(server: Serving) -> None:
    first = server.session(env={"OWN": "1"}, limits={"pids": 77}, name="original")
    server.run(first, "echo w > file; echo t > /tmp/t; echo h > ~/h")
    made = server.client.post("/v1/snapshots", json={"session": first, "name": "ready"})
    assert made.status_code == 201, made.text
    assert (made.json()["name"], made.json()["image"], made.json()["left_out"]) == (
        "ready",
        "base",
        [],
    )
    assert made.json()["size"] > 0
    assert (
        server.client.post(
            "/v1/snapshots", json={"session": first, "name": "ready"}
        ).json()["code"]
        == "conflict"
    )
    server.client.delete(f"/v1/sessions/{first}")
    twin = _ready(server, snapshot="ready", name="twin")
    assert (twin["snapshot"], twin["from"], twin["name"], twin["env"]) == (
        "ready",
        None,
        "twin",
        {"OWN": "1"},
    )
    assert twin["limits"]["pids"] == 77  # type: ignore[index]
    assert (
        server.run(str(twin["id"]), "cat file /tmp/t ~/h; echo $OWN")["result"][
            "stdout"
        ]
        == "w\nt\nh\n1\n"
    )
    assert [
        each["name"] for each in server.client.get("/v1/snapshots").json()["items"]
    ] == ["ready"]
    assert server.client.delete("/v1/snapshots/ready").status_code == 204
    assert server.client.delete("/v1/snapshots/ready").json()["code"] == "not_found"
    assert (
        server.client.post("/v1/sessions", json={"snapshot": "ready"}).json()["code"]
        == "not_found"
    )
    server.client.delete(f"/v1/sessions/{twin['id']}")


def test_a_fork_has_the_files_and_is_apart(server: Serving) -> None:
    first = server.session(changes="staged", env={"OWN": "1"})
    server.run(first, "echo applied > a; echo staged > b; echo t > /tmp/t")
    server.client.post(f"/v1/sessions/{first}/apply", json={"paths": ["a"]})
    fork = _ready(server, **{"from": first})
    assert (fork["from"], fork["changes"]) == (first, "staged")
    assert (
        server.run(str(fork["id"]), "cat a b /tmp/t; echo $OWN; rm b")["result"][
            "stdout"
        ]
        == "applied\nstaged\nt\n1\n"
    )
    assert server.run(first, "cat b")["result"]["stdout"] == "staged\n"
    for session in (first, fork["id"]):
        server.client.delete(f"/v1/sessions/{session}")


def test_what_cannot_be_forked_is_refused(server: Serving) -> None:
    direct, staged = server.session(), server.session(changes="staged")
    server.run(staged, "sleep 600", wait=0)
    for body, status, code in (
        ({"from": "bj-000000000000"}, 404, "session_not_found"),
        ({"snapshot": "nobody"}, 404, "not_found"),
        ({"from": direct}, 400, "usage"),
        ({"from": staged}, 409, "conflict"),
        ({"from": staged, "snapshot": "x"}, 400, "usage"),
    ):
        answer = server.client.post("/v1/sessions", json=body)
        assert (answer.status_code, answer.json()["code"]) == (status, code), body
    assert (
        server.client.post(
            "/v1/snapshots", json={"session": direct, "name": "../x"}
        ).json()["code"]
        == "usage"
    )
    for session in (direct, staged):
        server.client.delete(f"/v1/sessions/{session}")


def test_another_tenants_snapshot_does_not_exist(server: Serving) -> None:
    server.client.post("/v1/tenants", json={"name": "other"})
    session = server.session()
    server.client.post("/v1/snapshots", json={"session": session, "name": "mine"})
    with server.with_key(server.key("run", tenant="other")["key"]) as other:
        assert other.get("/v1/snapshots").json()["items"] == []
        assert other.delete("/v1/snapshots/mine").json()["code"] == "not_found"
        assert (
            other.post("/v1/sessions", json={"snapshot": "mine"}).json()["code"]
            == "not_found"
        )
    with server.with_key(server.key("run", reach="own")["key"]) as narrow:
        assert narrow.get("/v1/snapshots").json()["items"] == []
        answer = narrow.post("/v1/snapshots", json={"session": session, "name": "x"})
        assert answer.json()["code"] == "session_not_found"
    server.client.delete("/v1/snapshots/mine")
    server.client.delete(f"/v1/sessions/{session}")


def test_snapshots_outlive_the_server(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        session = server.session()
        server.run(session, "echo kept > file")
        server.client.post("/v1/snapshots", json={"session": session, "name": "kept"})
        server.client.delete(f"/v1/sessions/{session}")
        server.kill()
        server.start()
        twin = server.session(snapshot="kept")
        assert server.run(twin, "cat file")["result"]["stdout"] == "kept\n"
