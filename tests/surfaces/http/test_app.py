"""What every request passes: names, origins, ids, headers, bodies, problems, idempotency, pages (app.py, calls.py)."""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from starlette.requests import ClientDisconnect, Request
from tests.surfaces.http.serving import Serving

from belljar.surfaces.http import app, calls, models, openapi, pages, problems, routes
from belljar.surfaces.http.streams import Placed


def test_every_answer_has_its_headers(server: Serving) -> None:
    for path in ("/v1/sessions", "/v1/nothing", "/healthz"):
        answer = server.client.get(path, headers={"X-Request-Id": "my-id_1"})
        assert answer.headers["x-request-id"] == "my-id_1"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert "server" not in answer.headers
        assert not [
            name for name in answer.headers if name.startswith("access-control")
        ]
    assert server.client.get("/v1/sessions").headers["cache-control"] == "no-store"
    odd = server.client.get("/v1/sessions", headers={"X-Request-Id": "a b"}).headers[
        "x-request-id"
    ]
    assert calls.ID.match(odd)


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:1", ""])
def test_another_name_is_refused_before_the_key(server: Serving, host: str) -> None:
    with server.with_key(None) as client:
        answer = client.get("/v1/sessions", headers={"Host": host})
        assert (answer.status_code, answer.json()["code"]) == (421, "host_refused")
        assert client.get("/healthz", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://127.0.0.1"])
def test_a_foreign_page_is_refused(server: Serving, origin: str) -> None:
    for path in ("/v1/sessions", "/healthz"):
        answer = server.client.get(path, headers={"Origin": origin})
        assert (answer.status_code, answer.json()["code"]) == (403, "origin_refused")
    assert (
        server.client.get("/v1/sessions", headers={"Origin": server.url}).status_code
        == 200
    )
    assert (
        server.client.get(
            "/v1/sessions", headers={"Host": f"localhost:{server.port}"}
        ).status_code
        == 200
    )


def test_problems_are_rfc_9457(server: Serving) -> None:
    answer = server.client.get("/v1/sessions/none", headers={"X-Request-Id": "r1"})
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json() == {
        "type": "urn:belljar:error:session_not_found", "title": "Session not found", "status": 404,
        "detail": "there is no such session", "code": "session_not_found", "request_id": "r1",
    }  # fmt: skip
    wrong = server.client.put("/v1/sessions")
    assert (wrong.status_code, wrong.json()["code"]) == (405, "method_not_allowed")
    assert server.client.get("/v1/nothing").json()["code"] == "not_found"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"nothing": 1}, "nothing"), ({"lease": "5"}, "lease"), ({"lease": -1}, "lease"), ({"env": {"a": 1}}, "env"),
        ({"name": "x" * 65}, "name"), ({"network": "some"}, "network"), ({"workspace": "../x"}, "workspace"),
        ({"workspace": "a\n"}, "workspace"), ({"metadata": {"a": "b" * 5000}}, "metadata"), ({"mounts": {}}, "mounts"),
        ({"keep": True}, "keep"), ({"id": "x"}, "id"), ({"engine": "docker"}, "engine"), ({"image": "/etc"}, "image"),
    ],
)  # fmt: skip
def test_a_wrong_field_is_named(
    server: Serving, body: dict[str, Any], field: str
) -> None:
    answer = server.client.post("/v1/sessions", json=body)
    assert (answer.status_code, answer.json()["code"], answer.json()["field"]) == (
        400,
        "usage",
        field,
    )
    assert field in answer.json()["detail"]


def test_bodies_are_json_and_small(server: Serving) -> None:
    post = server.client.post
    assert (
        post(
            "/v1/sessions", content=b"{}", headers={"Content-Type": "text/plain"}
        ).status_code
        == 415
    )
    assert (
        post(
            "/v1/sessions", content=b"{", headers={"Content-Type": "application/json"}
        ).json()["code"]
        == "usage"
    )
    large = b'{"name": "' + b"x" * (1 << 20) + b'"}'
    assert (
        post(
            "/v1/sessions", content=large, headers={"Content-Type": "application/json"}
        ).status_code
        == 413
    )
    assert server.client.get("/v1/sessions?limit=0").json()["field"] == "limit"
    assert server.client.get("/v1/sessions?nothing=1").json()["field"] == "nothing"
    assert (
        server.client.get("/v1/sessions", headers={"Accept": "image/png"}).status_code
        == 406
    )


def test_a_repeated_request_makes_one_thing(server: Serving, session: str) -> None:
    key, path = (
        {"Idempotency-Key": str(uuid.uuid4())},
        f"/v1/sessions/{session}/commands",
    )
    body = {"command": "echo once >> once.txt; cat once.txt"}
    first = server.client.post(path, json=body, headers=key)
    second = server.client.post(path, json=body, headers=key)
    assert first.json() == second.json()
    assert second.headers["idempotency-replayed"] == "true"
    assert "idempotency-replayed" not in first.headers
    assert server.run(session, "cat once.txt")["result"]["stdout"] == "once\n"
    other = server.client.post(path, json={"command": "true"}, headers=key)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_mismatch")
    assert (
        server.client.post(
            path, json=body, headers={"Idempotency-Key": "a b"}
        ).status_code
        == 400
    )


def test_a_repeated_request_waits_for_the_first(server: Serving, session: str) -> None:
    key, found = {"Idempotency-Key": str(uuid.uuid4())}, []

    def post() -> None:
        with server.with_key(
            server.client.headers["Authorization"].split()[1]
        ) as client:
            body = {"command": "sleep 0.5; echo x >> twice.txt"}
            found.append(
                client.post(
                    f"/v1/sessions/{session}/commands", json=body, headers=key
                ).json()["id"]
            )

    threads = [threading.Thread(target=post) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 6
    assert len(set(found)) == 1
    assert server.run(session, "cat twice.txt")["result"]["stdout"] == "x\n"


def test_after_an_error_the_idempotency_key_is_free(
    server: Serving, session: str
) -> None:
    key, path = (
        {"Idempotency-Key": str(uuid.uuid4())},
        f"/v1/sessions/{session}/commands",
    )
    assert (
        server.client.post(path, json={"command": "rm -rf /"}, headers=key).status_code
        == 403
    )
    assert (
        server.client.post(path, json={"command": ["no-such"]}, headers=key).status_code
        == 422
    )
    assert (
        server.client.post(path, json={"command": "true"}, headers=key).status_code
        == 200
    )


def test_other_posts_are_remembered_too(server: Serving) -> None:
    key = {"Idempotency-Key": str(uuid.uuid4())}
    body = {"name": "one", "scopes": ["read"]}
    first = server.client.post("/v1/keys", json=body, headers=key).json()
    second = server.client.post("/v1/keys", json=body, headers=key).json()
    assert first["id"] == second["id"]
    assert "key" not in second
    check = [
        server.client.post("/v1/check", json={"command": "ls"}, headers=key)
        for _ in range(2)
    ]
    assert check[0].json() == check[1].json()
    assert check[1].headers["idempotency-replayed"] == "true"


def test_a_cursor_holds_when_items_are_added(server: Serving) -> None:
    names = [server.key("read")["id"] for _ in range(5)]
    first = server.client.get("/v1/keys?limit=2").json()
    assert [item["id"] for item in first["items"]] == names[:-3:-1]
    server.key("read")
    second = server.client.get(
        "/v1/keys", params={"limit": 2, "cursor": first["next"]}
    ).json()
    assert [item["id"] for item in second["items"]] == names[2:0:-1]
    assert server.client.get("/v1/keys?cursor=nonsense").json()["field"] == "cursor"


def test_the_description_names_every_route(server: Serving) -> None:
    described = server.client.get("/openapi.json").json()
    assert described == openapi.document(app.ROUTES)
    for route in app.ROUTES:
        operation = described["paths"][route.path][route.method.lower()]
        assert operation["summary"]
        assert str(route.status) in operation["responses"]
    assert described["components"]["schemas"]["CommandBody"]["required"] == ["command"]
    assert set(models.CommandAnswer.model_fields) <= set(
        described["components"]["schemas"]["CommandAnswer"]["properties"]
    )


def test_no_detail_tells_a_path_of_this_machine() -> None:
    problems.hide("/secret/state", "…")
    assert (
        problems.without_paths("cannot open /secret/state/tenants/x: denied")
        == "cannot open …: denied"
    )
    assert pages.page([], models.Page()) == {"items": [], "next": None}
    assert models.POLICIES[0] == "default"


def test_a_method_that_a_path_has_not_is_answered_with_those_that_it_has(
    server: Serving,
) -> None:
    ways: dict[str, set[str]] = {}
    for route in routes.ROUTES:
        ways.setdefault(route.path, set()).add(route.method)
    for path in ("/v1/keys", "/v1/sessions", "/v1/login"):
        answer = server.client.request("OPTIONS", path)
        assert (answer.status_code, answer.json()["code"]) == (
            405,
            "method_not_allowed",
        )
        assert {*answer.headers["allow"].split(", ")} - {"HEAD"} == ways[path]


def test_a_request_for_the_head_of_a_stream_ends(server: Serving, session: str) -> None:
    done = server.run(session, "echo hi > f; echo hi")
    command = f"/v1/sessions/{session}/commands/{done['id']}"
    paths = ("/v1/events?topics=sessions", f"/v1/sessions/{session}/files?path=f")
    for path in (*paths, f"/v1/sessions/{session}/tar", f"{command}/output", command):
        headers = {"Accept": "*/*, text/event-stream"}
        answer = server.client.head(path, headers=headers, timeout=10)
        assert (answer.status_code, answer.content) == (200, b""), path
    assert server.client.get("/v1/keys/self").status_code == 200
    assert "\nbelljar_streams 0.0\n" in server.client.get("/metrics").text


def test_a_repeated_request_with_other_bytes_is_refused(
    server: Serving, session: str
) -> None:
    command = server.run(session, "cat", wait=0, stdin_open=True)["id"]
    path = f"/v1/sessions/{session}/commands/{command}"
    headers = {"Idempotency-Key": uuid.uuid4().hex}
    answers = [
        server.client.post(f"{path}/stdin", content=content, headers=headers)
        for content in (b"a", b"a", b"b")
    ]
    assert [answer.status_code for answer in answers] == [204, 204, 422]
    assert answers[2].json()["code"] == "idempotency_mismatch"
    server.client.post(f"{path}/stdin?close=true", content=b"c")
    ended = server.client.get(path, headers={"Prefer": "wait=30"}).json()
    assert ended["result"]["stdout"] == "ac"


@pytest.mark.parametrize("path", ["images", "policies", "snapshots"])
def test_every_list_comes_in_pages(server: Serving, path: str) -> None:
    whole = server.client.get(f"/v1/{path}").json()
    assert whole["next"] is None
    found, cursor = [], None
    while len(found) < len(whole["items"]):
        query = {"limit": "1", **({"cursor": cursor} if cursor else {})}
        page = server.client.get(f"/v1/{path}", params=query).json()
        found += page["items"]
        cursor = page["next"]
    assert (found, cursor) == (whole["items"], None)
    assert server.client.get(f"/v1/{path}?limit=0").json()["field"] == "limit"


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ("wait=5", 5),
        ("respond-async, wait=9.5", 9.5),
        ("wait=301", 300),
        ("wait=99999999999999999999", 300),
        ("wait=x", 7),
        ("", 7),
    ],
)
def test_a_wait_is_as_long_as_asked_and_five_minutes_at_most(
    given: str, seconds: float
) -> None:
    request = Request({"type": "http", "headers": [(b"prefer", given.encode())]})
    call = calls.Call(request, None, None, None)  # type: ignore[arg-type]
    assert call.wait(7) == seconds


async def test_a_place_is_given_back_if_the_client_goes_before_the_answer() -> None:
    class Place:
        is_open = True

        def close(self) -> None:
            self.is_open = False

    async def content() -> AsyncGenerator[bytes]:
        yield b""

    async def gone() -> dict[str, str]:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        raise OSError("gone")

    place = Place()
    answer = Placed(content(), place)  # type: ignore[arg-type]
    with contextlib.suppress(ClientDisconnect, OSError, ExceptionGroup):
        await answer({"type": "http", "method": "GET", "asgi": {}}, gone, send)
    assert not place.is_open
