"""Keys, tenants, scopes, quotas, logins: what one caller can and cannot do (keys.py, quota.py)."""

from __future__ import annotations

import time

import httpx
import pytest
from tests.surfaces.http.serving import KEY, Serving

from belljar.surfaces.http import keys, quota


def test_the_narrowest_bound_wins() -> None:
    found = quota.narrowest(
        [
            {"sessions": 5, "network": "full"},
            {"sessions": 3, "network": "allow", "memory": None},
        ]
    )
    assert (found["sessions"], found["network"], found["memory"]) == (3, "allow", None)
    assert quota.wider("network", "full", "allow")
    assert quota.wider("sessions", None, 3)
    assert not quota.wider("policies", ["strict"], ["default", "strict"])


def test_scopes_hold_the_lesser_ones() -> None:
    assert keys.meant(["run"]) == {"read", "run"}
    assert keys.meant(["admin"]) == {"read", "run", "approve", "admin"}


@pytest.mark.parametrize("key", [None, "bj_" + "x" * 40, "nonsense", ""])
def test_without_a_key_nothing_is_answered(server: Serving, key: str | None) -> None:
    with server.with_key(key) as client:
        for path in ("/v1/sessions", "/v1/none", "/openapi.json", "/metrics"):
            answer = client.get(path)
            assert (answer.status_code, answer.json()["code"]) == (
                401,
                "unauthenticated",
            )
            assert answer.headers["www-authenticate"] == "Bearer"


def test_a_key_is_shown_once(server: Serving) -> None:
    made = server.key("run", quota={"sessions": 2})
    assert made["key"].startswith("bj_")
    assert len(made["key"]) >= 35
    with server.with_key(made["key"]) as client:
        own = client.get("/v1/keys/self").json()
    assert (own["scopes"], own["quota"]["sessions"], own["parent"]) == (
        ["run"],
        2,
        server.told_key,
    )
    assert own["quota"]["policies"] == ["default", "strict", "ci"]
    assert "key" not in own
    assert made["key"] not in server.client.get("/v1/keys").text


@pytest.mark.parametrize(
    "wider",
    [
        {"scopes": ["admin"]}, {"scopes": ["run", "approve"]}, {"scopes": ["run"], "quota": {"sessions": 3}},
        {"scopes": ["run"], "quota": {"sessions": None}}, {"scopes": ["run"], "reach": "tenant"},
        {"scopes": ["run"], "quota": {"policies": ["permissive"]}}, {"scopes": ["run"], "quota": {"network": "full"}},
        {"scopes": ["run"], "expires": time.time() + 99999}, {"scopes": ["run"], "tenant": "other"},
    ],
)  # fmt: skip
def test_a_child_is_never_wider_than_its_parent(
    server: Serving, wider: dict[str, object]
) -> None:
    made = server.key("run", quota={"sessions": 2}, expires=time.time() + 600)
    with server.with_key(made["key"]) as client:
        answer = client.post("/v1/keys", json={"name": "child", **wider})
        assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
        narrower = client.post(
            "/v1/keys",
            json={"name": "child", "scopes": ["read"], "quota": {"sessions": 1}},
        ).json()
    assert (narrower["reach"], narrower["expires"], narrower["quota"]["sessions"]) == (
        "own",
        made["expires"],
        1,
    )


def test_a_revoked_key_takes_its_children_along(server: Serving) -> None:
    made = server.key("run")
    with server.with_key(made["key"]) as client:
        child = client.post(
            "/v1/keys", json={"name": "child", "scopes": ["read"]}
        ).json()
        with server.with_key(child["key"]) as below:
            assert below.get("/v1/keys/self").status_code == 200
            assert server.client.delete(f"/v1/keys/{made['id']}").status_code == 204
            assert below.get("/v1/keys/self").status_code == 401
        assert client.get("/v1/keys/self").status_code == 401
    assert server.client.delete(f"/v1/keys/{made['id']}").status_code == 404


def test_an_expired_key_is_none(server: Serving) -> None:
    made = server.key("read", expires=time.time() + 1.0)
    with server.with_key(made["key"]) as client:
        assert client.get("/v1/keys/self").status_code == 200
        time.sleep(1.1)
        assert client.get("/v1/keys/self").status_code == 401


def test_a_scope_is_missing(server: Serving, session: str) -> None:
    with server.with_key(server.key("read", reach="tenant")["key"]) as client:
        assert client.get(f"/v1/sessions/{session}").status_code == 200
        answer = client.post("/v1/sessions", json={})
        assert (answer.status_code, answer.json()["scope"]) == (403, "run")
        assert (
            client.post(
                f"/v1/sessions/{session}/commands", content=b"{", headers={}
            ).json()["scope"]
            == "run"
        )
        assert client.get("/v1/tenants").json()["scope"] == "operator"
    with server.with_key(server.key("run", reach="tenant")["key"]) as client:
        answer = client.patch(
            f"/v1/sessions/{session}", json={"bypass_until": time.time() + 60}
        )
        assert (answer.status_code, answer.json()["scope"]) == (403, "approve")


def test_another_tenants_things_do_not_exist(server: Serving, session: str) -> None:
    assert server.client.post("/v1/tenants", json={"name": "other"}).status_code == 201
    assert (
        server.client.post("/v1/tenants", json={"name": "other"}).json()["code"]
        == "conflict"
    )
    command = server.run(session, "true")["id"]
    with server.with_key(server.key("admin", tenant="other")["key"]) as client:
        none = "/v1/sessions/bj-000000000000"
        for method, rest, body in (
            ("GET", "", None), ("PATCH", "", {"lease": 5}), ("DELETE", "", None), ("GET", f"/commands/{command}", None),
            ("POST", "/commands", {"command": "true"}), ("GET", f"/commands/{command}/output", None),
            ("DELETE", f"/commands/{command}", None),
        ):  # fmt: skip
            theirs = client.request(method, f"/v1/sessions/{session}{rest}", json=body)
            missing = client.request(method, f"{none}{rest}", json=body)
            assert theirs.status_code == missing.status_code == 404
            assert {**theirs.json(), "request_id": ""} == {
                **missing.json(),
                "request_id": "",
            }
        assert client.get("/v1/sessions").json()["items"] == []
        assert client.get("/v1/audit").json()["items"][0]["tenant"] == "other"
        assert client.get("/v1/usage?tenant=default").status_code == 403
    assert server.client.get("/v1/usage?tenant=other").json()["sessions"] == 0
    assert server.client.delete("/v1/tenants/other").status_code == 204
    assert server.client.get("/v1/sessions").json()["items"][0]["id"] == session


def test_a_command_is_found_in_its_own_session_only(
    server: Serving, session: str
) -> None:
    """Also one that runs, and one that is only in the database."""
    done, running = server.run(session, "true"), server.run(session, "sleep 60", wait=0)
    server.client.post("/v1/tenants", json={"name": "guests"})
    with server.with_key(server.key("admin", tenant="guests")["key"]) as client:
        own = client.post("/v1/sessions", json={}, headers={"Prefer": "wait=60"})
        path = f"/v1/sessions/{own.json()['id']}/commands"
        for _ in ("known", "from the database"):
            for command in (done["id"], running["id"]):
                for rest in ("", "/output"):
                    answer = client.get(f"{path}/{command}{rest}")
                    assert answer.json()["code"] == "not_found"
                assert client.delete(f"{path}/{command}").status_code == 404
            server.kill()
            server.start()
    path = f"/v1/sessions/{session}/commands/{running['id']}"
    assert server.client.get(path).json()["state"] == "running"
    server.client.delete(path)
    assert server.client.delete("/v1/tenants/guests").status_code == 204


def test_a_later_tenant_of_a_name_finds_nothing_of_the_earlier_one(
    server: Serving,
) -> None:
    def made() -> httpx.Client:
        assert server.client.post("/v1/tenants", json={"name": "again"}).is_success
        return server.with_key(server.key("admin", tenant="again")["key"])

    with made() as earlier:
        wait = {"Prefer": "wait=60"}
        body = {"workspace": "plans", "changes": "staged"}
        id = earlier.post("/v1/sessions", json=body, headers=wait).json()["id"]
        command = {"command": "echo secret > f"}
        path = f"/v1/sessions/{id}/commands"
        assert earlier.post(path, json=command, headers=wait).status_code == 200
        assert earlier.post(f"/v1/sessions/{id}/apply", json={}).json()["paths"]
        snapshot = {"session": id, "name": "kept"}
        assert earlier.post("/v1/snapshots", json=snapshot).status_code == 201
    assert server.client.delete("/v1/tenants/again").status_code == 204
    with made() as later:
        for what in ("sessions", "snapshots", "approvals?state=cancelled"):
            assert later.get(f"/v1/{what}").json()["items"] == []
        kinds = [item["kind"] for item in later.get("/v1/audit").json()["items"]]
        assert kinds == ["key_created"]
        assert later.get("/v1/audit/verify").json()["ok"]
        used = later.get("/v1/usage").json()
        assert (used["creates_last_minute"], used["commands"]) == (0, 0)
        id = later.post("/v1/sessions", json=body, headers=wait).json()["id"]
        assert later.get(f"/v1/sessions/{id}/entries").json()["items"] == []
    assert server.client.delete("/v1/tenants/again").status_code == 204
    (kept, *_) = server.state.glob("**/ended-tenants/again-*/workspaces/plans/f")
    assert kept.read_text() == "secret\n"


def test_a_key_with_its_own_reach_sees_what_it_and_its_children_made(
    server: Serving, session: str
) -> None:
    mine = server.key("run", reach="own")
    with server.with_key(mine["key"]) as client:
        assert client.get(f"/v1/sessions/{session}").status_code == 404
        child = client.post(
            "/v1/keys", json={"name": "child", "scopes": ["run"]}
        ).json()
        with server.with_key(child["key"]) as below:
            made = below.post(
                "/v1/sessions", json={}, headers={"Prefer": "wait=60"}
            ).json()
            assert made["key"] == child["id"]
        assert [each["id"] for each in client.get("/v1/sessions").json()["items"]] == [
            made["id"]
        ]
        assert client.delete(f"/v1/sessions/{made['id']}").json()["state"] == "ended"


def test_a_full_quota_says_so(server: Serving) -> None:
    with server.with_key(
        server.key("run", quota={"sessions": 1, "memory": "1g"})["key"]
    ) as client:
        too_big = client.post("/v1/sessions", json={"limits": {"memory": "2g"}})
        assert (too_big.status_code, too_big.json()["quota"]) == (403, "memory")
        small = {"limits": {"memory": "512m"}}
        made = client.post(
            "/v1/sessions", json=small, headers={"Prefer": "wait=60"}
        ).json()
        full = client.post("/v1/sessions", json=small)
        assert (full.status_code, full.json()["quota"]) == (429, "sessions")
        assert int(full.headers["retry-after"]) >= 1
        policy = client.post("/v1/sessions", json={**small, "policy": "permissive"})
        assert (policy.status_code, policy.json()["quota"]) == (403, "policies")
        for network in (
            "full",
            {"allow": ["10.0.0.1"]},
            {"allow": ["internal.example=127.0.0.1"]},
        ):
            refused = client.post("/v1/sessions", json={**small, "network": network})
            assert (refused.status_code, refused.json()["quota"]) == (403, "network")
        client.delete(f"/v1/sessions/{made['id']}")
        again = client.post("/v1/sessions", json=small)
        assert again.status_code == 201
        client.delete(f"/v1/sessions/{again.json()['id']}")


def test_a_login_is_a_cookie_that_ends_with_its_key(server: Serving) -> None:
    made = server.key("run")
    with server.with_key(None) as browser:
        assert (
            browser.post("/v1/login", json={"key": "bj_" + "y" * 40}).status_code == 401
        )
        assert browser.post("/v1/login", json={"key": made["key"]}).status_code == 204
        (cookie,) = browser.cookies.jar
        assert (cookie.name, cookie.path, cookie.has_nonstandard_attr("HttpOnly")) == (
            "belljar",
            "/",
            True,
        )
        assert browser.get("/v1/keys/self").json()["id"] == made["id"]
        refused = browser.post("/v1/check", json={"command": "ls"})
        assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
        assert (
            browser.post(
                "/v1/check", json={"command": "ls"}, headers={"Belljar-Request": "1"}
            ).status_code
            == 200
        )
        server.client.delete(f"/v1/keys/{made['id']}")
        assert browser.get("/v1/keys/self").status_code == 401


def test_a_logout_ends_the_cookie(server: Serving) -> None:
    with server.with_key(None) as browser:
        browser.post("/v1/login", json={"key": KEY})
        saved = dict(browser.cookies)
        assert (
            browser.delete("/v1/login", headers={"Belljar-Request": "1"}).status_code
            == 204
        )
        browser.cookies.clear()
        browser.cookies.update(saved)
        assert browser.get("/v1/keys/self").status_code == 401
