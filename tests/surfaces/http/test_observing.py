"""What happens and what happened: events, the trail, numbers (observing.py, events.py, audit.py, metrics.py)."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.surfaces.http.serving import KEY, Serving, events

from belljar.audit import reader
from belljar.surfaces.http import audit, links, metrics, observing  # noqa: F401 - what these tests are about
from belljar.surfaces.http.events import Change, Events


def _all(change: Change) -> bool:
    return True


def _follow(server: Serving, topics: str, **headers: str) -> Iterator[dict[str, Any]]:
    with (
        server.with_key(KEY) as client,
        client.stream("GET", f"/v1/events?topics={topics}", headers=headers) as answer,
    ):
        assert answer.status_code == 200, answer.read()
        yield from events(answer.iter_lines())


async def test_a_burst_is_merged_and_the_last_state_comes() -> None:
    told = Events()
    follower = told.follow(_all)
    for number in range(100):
        told.put("sessions", {"id": "a", "n": number}, "t", "/")
    (change,) = await follower.changes(1)
    assert change.item["n"] == 99
    last = told.now
    told.put("sessions", {"id": "b"}, "t", "/")
    told.remove("sessions", "a", "t", "/")
    missed = told.missed(last, _all)
    assert missed is not None
    assert [each.kind for each in missed] == ["put", "remove"]
    assert told.missed("other-1", _all) is None
    assert await asyncio.wait_for(follower.changes(1), 2)
    assert await follower.changes(0.01) == []


def test_events_begin_with_a_snapshot_and_go_on(server: Serving, session: str) -> None:
    follower = _follow(server, "sessions,commands,approvals")
    first = [next(follower) for _ in range(3)]
    assert {event["event"] for event in first} == {"sessions", "commands", "approvals"}
    assert all(event["data"]["kind"] == "snapshot" for event in first)
    by_topic = {event["event"]: event["data"]["items"] for event in first}
    assert session in [item["id"] for item in by_topic["sessions"]]
    command = server.run(session, "echo x", wait=10)
    for event in follower:
        if event["event"] == "commands" and event["data"]["item"]["state"] == "ended":
            break
    item = event["data"]["item"]
    assert item["id"] == command["id"]
    assert "stdout" not in item["result"]
    again = _follow(server, "sessions,commands", **{"Last-Event-ID": event["id"]})
    server.run(session, "true")
    assert next(again)["data"]["kind"] in ("put", "snapshot")


def test_events_can_bring_output(server: Serving, session: str) -> None:
    found = server.run(session, "echo one; sleep 1; echo two", wait=0)
    follower = _follow(server, f"output:{session}/{found['id']}")
    text = ""
    for event in follower:
        if event["event"] == "output":
            pieces = event["data"].get("items", [event["data"]])
            text += "".join(piece["text"] for piece in pieces)
            assert all(piece["command"] == found["id"] for piece in pieces)
        if text.endswith("two\n"):
            break
    assert text == "one\ntwo\n"


def test_events_bring_the_records_of_the_trail(server: Serving, session: str) -> None:
    follower = _follow(server, "audit")
    first = next(follower)
    assert (first["event"], first["data"]["kind"]) == ("audit", "snapshot")
    assert len(first["data"]["items"]) <= 20
    found = server.run(session, "echo audited")
    told = []
    for event in follower:
        if event["event"] == "audit":
            told.append(event["data"]["item"])
            if told[-1]["kind"] == "end" and told[-1]["run"] == found["id"]:
                break
    assert [record["seq"] for record in told] == list(
        range(told[0]["seq"], told[-1]["seq"] + 1)
    )
    stored = server.client.get(
        "/v1/audit", params={"after": told[0]["seq"] - 1, "limit": 200}
    ).json()["items"]
    assert told == stored[: len(told)]


def test_a_wrong_topic_is_refused(server: Serving) -> None:
    for topics in ("nothing", "output:x", "", "output:bj-000000000000/c"):
        assert server.client.get(f"/v1/events?topics={topics}").status_code in (
            400,
            404,
        )


def test_the_trail_names_who_did_it_and_verifies(
    server: Serving, session: str, tmp_path: Path
) -> None:
    made = server.key("run", reach="tenant")
    with server.with_key(made["key"]) as client:
        body, headers = {"command": "echo trail"}, {"X-Request-Id": "req-1"}
        command = client.post(
            f"/v1/sessions/{session}/commands", json=body, headers=headers
        ).json()
        assert client.get("/v1/audit").status_code == 200
    records = []
    cursor = None
    while True:
        params = {
            "session": session,
            "limit": 3,
            **({"cursor": cursor} if cursor else {}),
        }
        page = server.client.get("/v1/audit", params=params).json()
        records += page["items"]
        cursor = page["next"]
        if cursor is None:
            break
    mine = [record for record in records if record.get("run") == command["id"]]
    assert [record["kind"] for record in mine] == ["start", "end"]
    for record in mine:
        assert (record["tenant"], record["key"], record["name"]) == (
            "default",
            made["id"],
            "k",
        )
        assert record["request_id"] == "req-1"
    assert [record["seq"] for record in records] == sorted(
        record["seq"] for record in records
    )
    assert server.client.get("/v1/audit/verify").json()["ok"]
    lines = server.client.get(
        "/v1/audit", headers={"Accept": "application/x-ndjson"}
    ).content
    (tmp_path / "audit.jsonl").write_bytes(lines)
    found = list(reader.lines_of(tmp_path / "audit.jsonl"))
    assert all(line.record is not None for line in found)
    for before, after in itertools.pairwise(found):
        assert before.record
        assert after.record
        assert after.record["prev"] == before.record["hash"]
    kinds = {line.record["kind"] for line in found if line.record}
    assert {"key_created", "session_open", "verdict", "start", "end"} <= kinds
    assert made["key"].encode() not in lines


def test_the_trail_is_not_for_keys_with_their_own_reach(server: Serving) -> None:
    with server.with_key(server.key("run", reach="own")["key"]) as client:
        assert client.get("/v1/audit").json()["code"] == "forbidden"
        assert client.get("/v1/events?topics=audit").json()["code"] == "forbidden"


def test_a_command_can_be_checked_without_running(server: Serving) -> None:
    denied = server.client.post("/v1/check", json={"command": "rm -rf /"}).json()
    assert (denied["decision"], denied["risk"]) == ("deny", "blocked")
    assert any("delete" in effect for effect in denied["effects"])
    assert (
        server.client.post("/v1/check", json={"command": "ls", "policy": "x"}).json()[
            "code"
        ]
        == "policy_invalid"
    )
    assert (
        server.client.post(
            "/v1/check", json={"command": "ls", "policy": "/etc/passwd"}
        ).status_code
        == 400
    )


def test_numbers_and_health(server: Serving, session: str) -> None:
    server.run(session, "true")
    text = server.client.get("/metrics").text
    for name in (
        'belljar_sessions{state="ready"}', 'belljar_commands_total{cause="exited"}', "belljar_command_seconds_bucket",
        "belljar_approvals_waiting", "belljar_http_requests_total{", "process_resident_memory_bytes", "belljar_streams",
        "belljar_session_ready_seconds", "belljar_denied_total", "belljar_pool_hits_total",
    ):  # fmt: skip
        assert name in text
    assert session not in text
    with server.with_key(server.key("admin")["key"]) as client:
        assert client.get("/metrics").json()["scope"] == "operator"
    assert server.client.get("/readyz").json() == {"status": "ready"}
    names = [image["name"] for image in server.client.get("/v1/images").json()["items"]]
    assert "base" in names
    assert json.dumps(server.client.get("/v1/policies").json()).count('"name"') >= 5


@pytest.mark.parametrize("since_ping", [0.25, 0.7, 0.95, 60.0])
def test_a_ping_is_in_time_whenever_something_happens(since_ping: float) -> None:
    for follows_output in (False, True):
        waits = observing._patience(since_ping, follows_output=follows_output)
        assert waits >= 0
        assert min(since_ping, 0.95) + waits <= observing.PING_SECONDS


def test_a_client_cannot_make_labels(server: Serving) -> None:
    for key in (None, KEY):
        with server.with_key(key) as client:
            client.request("MADEUP", "/v1/sessions")
    told = server.client.get("/metrics").text
    assert "MADEUP" not in told
    assert 'method="other"' in told
