"""Questions that wait for a person: bound to what was judged, decided once (approvals.py)."""

from __future__ import annotations

import threading
import time
from typing import Any

from tests.surfaces.http.serving import KEY, Serving, events

from belljar.surfaces.http import approvals  # noqa: F401 - what these tests are about

ASKED = 'rm -rf "$NOWHERE"; echo ran'


def _waiting(
    server: Serving, session: str, command: str = ASKED
) -> tuple[dict[str, Any], dict[str, Any]]:
    found = server.run(session, command, wait=0)
    assert found["state"] == "waiting"
    approval = server.client.get(f"/v1/approvals/{found['approval']}").json()
    return found, approval


def _decide(
    server: Serving, approval: dict[str, Any], decision: str, **more: str
) -> Any:
    body = {"decision": decision, "token": approval["token"], **more}
    return server.client.post(f"/v1/approvals/{approval['id']}", json=body)


def _ended(server: Serving, command: dict[str, Any]) -> dict[str, Any]:
    path = f"/v1/sessions/{command['session']}/commands/{command['id']}"
    found: dict[str, Any] = server.client.get(
        path, headers={"Prefer": "wait=30"}
    ).json()
    return found


def test_an_allowed_command_runs(server: Serving, session: str) -> None:
    command, approval = _waiting(server, session)
    assert (approval["state"], approval["risk"], approval["text"]) == (
        "waiting",
        "critical",
        ASKED,
    )
    assert (
        approval
        in server.client.get(f"/v1/approvals?state=waiting&session={session}").json()[
            "items"
        ]
    )
    decided = _decide(server, approval, "allow")
    assert decided.json()["state"] == "allowed"
    assert decided.json()["decided"]["by"] == server.told_key
    assert _ended(server, command)["result"]["stdout"] == "ran\n"
    again = _decide(server, approval, "deny")
    assert (again.status_code, again.json()["code"]) == (409, "approval_decided")
    assert again.json()["approval"]["state"] == "allowed"
    assert server.run(session, ASKED, wait=0)["state"] == "waiting"  # once is once


def test_a_denied_command_ends_with_the_reason(server: Serving, session: str) -> None:
    found: list[Any] = []

    def post() -> None:
        with server.with_key(KEY) as client:
            body = {"command": f"{ASKED} # 2"}
            found.append(client.post(f"/v1/sessions/{session}/commands", json=body))

    poster = threading.Thread(target=post)
    poster.start()
    deadline = time.monotonic() + 30
    while not (
        waiting := server.client.get(
            f"/v1/approvals?state=waiting&session={session}"
        ).json()["items"][:1]
    ) or (not waiting[0]["text"].endswith("2")):
        assert time.monotonic() < deadline
    assert _decide(server, waiting[0], "deny", reason="not today").status_code == 200
    poster.join(30)
    answer = found[0]
    assert (answer.status_code, answer.json()["code"]) == (403, "policy_denied")
    assert (answer.json()["declined"], answer.json()["detail"]) == (True, "not today")
    assert answer.json()["command"]["state"] == "ended"
    assert answer.json()["command"]["error"]["detail"] == "not today"


def test_those_that_wait_are_listed_unless_others_are_asked_for(
    server: Serving, session: str
) -> None:
    command, approval = _waiting(server, session)

    def listed(query: str) -> list[str]:
        items = server.client.get(f"/v1/approvals?limit=200{query}").json()["items"]
        return [item["id"] for item in items]

    assert approval["id"] in listed("")
    _decide(server, approval, "deny")
    _ended(server, command)
    assert approval["id"] not in listed("")
    assert approval["id"] in listed("&state=denied")
    assert approval["id"] in listed("&state=")


def test_another_token_is_refused(server: Serving, session: str) -> None:
    command, approval = _waiting(server, session)
    wrong = _decide(server, {**approval, "token": "x"}, "allow")
    assert (wrong.status_code, wrong.json()["code"]) == (409, "approval_changed")
    assert (
        server.client.get(f"/v1/approvals/{approval['id']}").json()["state"]
        == "waiting"
    )
    _decide(server, approval, "deny")
    assert _ended(server, command)["error"]["code"] == "policy_denied"


def test_of_many_deciders_one_wins(server: Serving, session: str) -> None:
    command, approval = _waiting(server, session)
    answers: list[int] = []

    def decide() -> None:
        with server.with_key(KEY) as client:
            body = {"decision": "allow", "token": approval["token"]}
            answers.append(
                client.post(f"/v1/approvals/{approval['id']}", json=body).status_code
            )

    threads = [threading.Thread(target=decide) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [200] + [409] * 7
    assert _ended(server, command)["result"]["stdout"] == "ran\n"


def test_what_expires_is_denied(server: Serving) -> None:
    session = server.session(approval_seconds=1)
    command, approval = _waiting(server, session)
    ended = _ended(server, command)
    assert (ended["error"]["code"], ended["result"]) == ("policy_denied", None)
    assert (
        server.client.get(f"/v1/approvals/{approval['id']}").json()["state"]
        == "expired"
    )
    assert _decide(server, approval, "allow").json()["code"] == "approval_decided"
    none = server.session(approval_seconds=0)
    answer = server.client.post(
        f"/v1/sessions/{none}/commands", json={"command": ASKED}
    )
    assert answer.json()["code"] == "policy_denied"
    for each in (session, none):
        server.client.delete(f"/v1/sessions/{each}")


def test_an_approval_for_the_session_covers_the_next(server: Serving) -> None:
    session = server.session()
    command, approval = _waiting(server, session)
    _decide(server, approval, "allow", scope="session")
    assert _ended(server, command)["exit_code"] == 0
    assert server.run(session, ASKED)["result"]["stdout"] == "ran\n"
    server.client.delete(f"/v1/sessions/{session}")


def test_a_bypass_lets_everything_through_for_a_while(server: Serving) -> None:
    session = server.session()
    too_far = server.client.patch(
        f"/v1/sessions/{session}", json={"bypass_until": time.time() + 9 * 3600}
    )
    assert too_far.json()["field"] == "bypass_until"
    server.client.patch(
        f"/v1/sessions/{session}", json={"bypass_until": time.time() + 60}
    )
    assert server.run(session, ASKED)["result"]["stdout"] == "ran\n"
    records = server.client.get(
        f"/v1/audit?kind=approval&session={session}&limit=200"
    ).json()["items"]
    assert [record["by"] for record in records if record["by"] == "bypass"]
    server.client.patch(f"/v1/sessions/{session}", json={"bypass_until": None})
    assert server.run(session, ASKED, wait=0)["state"] == "waiting"
    server.client.delete(f"/v1/sessions/{session}")


def test_a_command_that_ends_cancels_its_question(
    server: Serving, session: str
) -> None:
    command, approval = _waiting(server, session)
    killed = server.client.delete(
        f"/v1/sessions/{session}/commands/{command['id']}"
    ).json()
    assert (killed["state"], killed["error"]["code"]) == ("ended", "cancelled")
    assert (
        server.client.get(f"/v1/approvals/{approval['id']}").json()["state"]
        == "cancelled"
    )


def test_a_stream_tells_that_a_command_waits(server: Serving, session: str) -> None:
    command, approval = _waiting(server, session)
    path = f"/v1/sessions/{session}/commands/{command['id']}"
    told: list[dict[str, Any]] = []
    with server.client.stream(
        "GET", path, headers={"Accept": "text/event-stream"}
    ) as answer:
        for event in events(answer.iter_lines()):
            told.append(event)
            if event["event"] == "waiting":
                assert event["data"]["approval"] == approval
                with server.with_key(KEY) as client:
                    body = {"decision": "allow", "token": approval["token"]}
                    client.post(f"/v1/approvals/{approval['id']}", json=body)
    assert [event["event"] for event in told] == [
        "waiting",
        "started",
        "output",
        "ended",
    ]


def test_a_key_without_approve_may_look(server: Serving, session: str) -> None:
    command, approval = _waiting(server, session)
    with server.with_key(server.key("run", reach="tenant")["key"]) as client:
        assert client.get(f"/v1/approvals/{approval['id']}").json() == approval
        body = {"decision": "allow", "token": approval["token"]}
        assert (
            client.post(f"/v1/approvals/{approval['id']}", json=body).json()["scope"]
            == "approve"
        )
    _decide(server, approval, "deny")
    _ended(server, command)
