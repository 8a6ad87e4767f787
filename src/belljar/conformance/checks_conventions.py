"""Conventions, keys, scopes, tenants and quotas."""

from __future__ import annotations

import concurrent.futures
import re
import secrets

from belljar.conformance.probe import Probe, check, eventually, holds, ok, problem, same

UNKNOWN = "x" * 20


@check("conventions", "an unknown field is refused, and named")
def _(probe: Probe) -> None:
    told = problem(probe.http.post("/v1/sessions", json={"imge": "base"}), 400, "usage")
    same(told.get("field"), "imge")


@check("conventions", "a wrong type is refused, and named")
def _(probe: Probe) -> None:
    told = problem(
        probe.http.post("/v1/sessions", json={"lease": "long"}), 400, "usage"
    )
    same(told.get("field"), "lease")


@check("conventions", "a field that names a path of the host is unknown")
def _(probe: Probe) -> None:
    for name in ("mounts", "cache", "allow_home", "engine", "id", "keep"):
        problem(probe.http.post("/v1/sessions", json={name: "x"}), 400, "usage")


@check("conventions", "a wrong query value is refused")
def _(probe: Probe) -> None:
    for query in ("limit=0", "limit=201", "limit=x", "no_such=1"):
        problem(probe.http.get(f"/v1/sessions?{query}"), 400, "usage")


@check("conventions", "a large body is refused")
def _(probe: Probe) -> None:
    body = b'{"name": "' + b"a" * (1 << 20) + b'"}'
    answer = probe.http.post(
        "/v1/sessions", content=body, headers={"Content-Type": "application/json"}
    )
    problem(answer, 413, "too_large")


@check("conventions", "a body must be JSON by its media type")
def _(probe: Probe) -> None:
    answer = probe.http.post(
        "/v1/sessions", content=b"{}", headers={"Content-Type": "text/plain"}
    )
    problem(answer, 415, "unsupported_media_type")


@check("conventions", "every answer has its request id and the headers that protect")
def _(probe: Probe) -> None:
    for path in ("/v1/sessions", "/v1/no-such-thing", "/healthz"):
        headers = probe.http.get(path, headers={"X-Request-Id": "abc-123"}).headers
        same(headers.get("x-request-id"), "abc-123")
        same(headers.get("x-content-type-options"), "nosniff")
        same(headers.get("x-frame-options"), "DENY")
        same(headers.get("referrer-policy"), "no-referrer")
        holds(
            "default-src 'none'" in headers.get("content-security-policy", ""),
            "no Content-Security-Policy",
        )
        holds("server" not in headers, "a Server header")
        holds(
            not [name for name in headers if name.startswith("access-control")],
            "an Access-Control header",
        )


@check("conventions", "answers of the API are not stored")
def _(probe: Probe) -> None:
    same(probe.http.get("/v1/sessions").headers.get("cache-control"), "no-store")


@check("conventions", "a request id that is no id is replaced")
def _(probe: Probe) -> None:
    given = probe.http.get(
        "/v1/keys/self", headers={"X-Request-Id": "a b;c"}
    ).headers.get("x-request-id", "")
    holds(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", given), f"X-Request-Id: {given}")


@check("conventions", "a foreign host name is refused")
def _(probe: Probe) -> None:
    problem(
        probe.http.get("/v1/keys/self", headers={"Host": "evil.example"}),
        421,
        "host_refused",
    )


@check("conventions", "a foreign origin is refused, also null, also for reading")
def _(probe: Probe) -> None:
    for origin in ("https://evil.example", "null"):
        problem(
            probe.http.get("/v1/keys/self", headers={"Origin": origin}),
            403,
            "origin_refused",
        )


@check(
    "conventions",
    "what is not there is not found, and what may not be done is not allowed",
)
def _(probe: Probe) -> None:
    problem(probe.http.get("/v1/no-such-thing"), 404, "not_found")
    problem(probe.http.delete("/v1/usage"), 405, "method_not_allowed")
    problem(probe.http.get(f"/v1/sessions/{UNKNOWN}"), 404, "session_not_found")


@check("conventions", "a list comes in pages that neither repeat nor leave out")
def _(probe: Probe) -> None:
    for _ in range(3):
        probe.new_key("read")
    whole = [item["id"] for item in ok(probe.http.get("/v1/keys?limit=200"))["items"]]
    found, cursor = [], ""
    while cursor is not None:
        page = ok(
            probe.http.get(
                "/v1/keys",
                params={"limit": 2, **({"cursor": cursor} if cursor else {})},
            )
        )
        holds(len(page["items"]) <= 2, "a page is longer than its limit")
        found += [item["id"] for item in page["items"]]
        cursor = page["next"]
    same(found, whole)


@check("conventions", "the health of the server needs no key")
def _(probe: Probe) -> None:
    with probe.client(None) as anyone:
        same(ok(anyone.get("/healthz")), {"status": "ok"})
        same(ok(anyone.get("/readyz")), {"status": "ready"})


@check("conventions", "the routes are described")
def _(probe: Probe) -> None:
    paths = ok(probe.http.get("/openapi.json"))["paths"]
    holds(
        {"/v1/sessions", "/v1/approvals", "/v1/keys"} <= paths.keys(),
        "routes are missing",
    )


# Idempotency.


@check(
    "idempotency", "the same request makes one thing, and says that it was made before"
)
def _(probe: Probe) -> None:
    headers = {"Idempotency-Key": secrets.token_hex(8)}
    body = {"name": "once", "scopes": ["read"]}
    first = probe.http.post("/v1/keys", json=body, headers=headers)
    again = probe.http.post("/v1/keys", json=body, headers=headers)
    same((first.status_code, again.status_code), (201, 201))
    same(again.json()["id"], first.json()["id"])
    same(again.headers.get("idempotency-replayed"), "true")
    holds(
        "idempotency-replayed" not in first.headers,
        "the first answer says that it was replayed",
    )


@check("idempotency", "another body under the same key is refused")
def _(probe: Probe) -> None:
    headers = {"Idempotency-Key": secrets.token_hex(8)}
    ok(
        probe.http.post(
            "/v1/keys", json={"name": "a", "scopes": ["read"]}, headers=headers
        ),
        201,
    )
    answer = probe.http.post(
        "/v1/keys", json={"name": "b", "scopes": ["read"]}, headers=headers
    )
    problem(answer, 422, "idempotency_mismatch")


@check("idempotency", "a refused request leaves its key free")
def _(probe: Probe) -> None:
    headers = {"Idempotency-Key": secrets.token_hex(8)}
    problem(
        probe.http.post("/v1/keys", json={"name": "a"}, headers=headers), 400, "usage"
    )
    ok(
        probe.http.post(
            "/v1/keys", json={"name": "a", "scopes": ["read"]}, headers=headers
        ),
        201,
    )


@check("idempotency", "a command runs once for many requests at the same time")
def _(probe: Probe) -> None:
    headers, name = (
        {"Idempotency-Key": secrets.token_hex(8), "Prefer": "wait=30"},
        secrets.token_hex(4),
    )
    path, body = probe.path("commands"), {"command": f"echo x >> /tmp/{name}"}

    def ask(_: int) -> str:
        return str(ok(probe.http.post(path, json=body, headers=headers))["id"])

    with concurrent.futures.ThreadPoolExecutor(5) as pool:
        same(len(set(pool.map(ask, range(5)))), 1, "commands")
    same(probe.run(f"cat /tmp/{name}")["result"]["stdout"], "x\n")


# Keys, scopes, tenants, quotas.


@check("keys", "without a key, or with a wrong one, nobody gets in")
def _(probe: Probe) -> None:
    for key in (None, "bj_" + "x" * 40, "wrong"):
        with probe.client(key) as stranger:
            answer = stranger.get("/v1/sessions")
            problem(answer, 401, "unauthenticated")
            same(answer.headers.get("www-authenticate"), "Bearer")


@check("keys", "a key is shown once, and never again")
def _(probe: Probe) -> None:
    made = probe.new_key("read")
    holds(
        re.fullmatch(r"bj_[A-Za-z0-9_-]{32,}", made["key"]), "the key has another form"
    )
    listed = next(
        each
        for each in ok(probe.http.get("/v1/keys?limit=200"))["items"]
        if each["id"] == made["id"]
    )
    holds("key" not in listed, "a list shows the key")


@check("keys", "a key may do what its scopes say")
def _(probe: Probe) -> None:
    with probe.client(probe.new_key("read")["key"]) as reader:
        ok(reader.get("/v1/sessions"))
        told = problem(reader.post("/v1/sessions", json={}), 403, "forbidden")
        same(told.get("scope"), "run")
        ok(reader.post("/v1/check", json={"command": "ls"}))


@check("keys", "a child is never wider than its parent")
def _(probe: Probe) -> None:
    with probe.client(probe.new_key("run")["key"]) as runner:
        for wider in (
            {"scopes": ["approve"]},
            {"scopes": ["admin"]},
            {"scopes": ["run"], "reach": "tenant"},
        ):
            problem(
                runner.post("/v1/keys", json={"name": "wide", **wider}),
                403,
                "forbidden",
            )
        wide = {
            "name": "wide",
            "scopes": ["run"],
            "quota": {"policies": ["permissive"]},
        }
        problem(runner.post("/v1/keys", json=wide), 403, "forbidden")
        same(
            ok(runner.post("/v1/keys", json={"name": "n", "scopes": ["read"]}), 201)[
                "reach"
            ],
            "own",
        )


@check("keys", "a revoked key and its children are out at once")
def _(probe: Probe) -> None:
    parent = probe.new_key("run")
    with probe.client(parent["key"]) as holder:
        child = ok(holder.post("/v1/keys", json={"name": "c", "scopes": ["read"]}), 201)
        ok(probe.http.delete(f"/v1/keys/{parent['id']}"), 204)
        problem(holder.get("/v1/sessions"), 401, "unauthenticated")
    with probe.client(child["key"]) as below:
        problem(below.get("/v1/sessions"), 401, "unauthenticated")


@check("keys", "a key of reach own sees only what it made")
def _(probe: Probe) -> None:
    with probe.client(probe.new_key("run", reach="own")["key"]) as own:
        problem(own.get(probe.path()), 404, "session_not_found")
        same(ok(own.get("/v1/sessions"))["items"], [])


@check("keys", "a login gives a cookie that needs a header to write")
def _(probe: Probe) -> None:
    with probe.client(None) as browser:
        answer = browser.post("/v1/login", json={"key": probe.key})
        ok(answer, 204)
        cookie = answer.headers.get("set-cookie", "").lower()
        holds(
            "httponly" in cookie and "samesite=strict" in cookie and "path=/" in cookie,
            f"cookie: {cookie[:80]}",
        )
        ok(browser.get("/v1/keys/self"))
        body = {"name": "c", "scopes": ["read"]}
        problem(browser.post("/v1/keys", json=body), 403, "forbidden")
        ok(browser.post("/v1/keys", json=body, headers={"Belljar-Request": "1"}), 201)
        ok(browser.delete("/v1/login", headers={"Belljar-Request": "1"}), 204)
        problem(browser.get("/v1/keys/self"), 401, "unauthenticated")


@check("tenants", "a thing of another tenant is as if it were not there")
def _(probe: Probe) -> None:
    key = probe.new_key("admin", tenant=probe.tenant())["key"]
    with probe.client(key) as other:
        for method, path in (
            ("GET", ""),
            ("DELETE", ""),
            ("POST", "/commands"),
            ("GET", "/files?path=x"),
        ):
            there = other.request(
                method,
                f"/v1/sessions/{probe.session}{path}",
                json={} if method == "POST" else None,
            )
            gone = other.request(
                method,
                f"/v1/sessions/{UNKNOWN}{path}",
                json={} if method == "POST" else None,
            )
            same(
                (there.status_code, there.json()["detail"]),
                (gone.status_code, gone.json()["detail"]),
            )
            same(there.json()["code"], "session_not_found")


@check("tenants", "a tenant is made once, listed and ended")
def _(probe: Probe) -> None:
    name = probe.tenant()
    problem(probe.http.post("/v1/tenants", json={"name": name}), 409, "conflict")
    holds(
        name in [each["name"] for each in ok(probe.http.get("/v1/tenants"))["items"]],
        "it is not listed",
    )
    ok(probe.http.delete(f"/v1/tenants/{name}"), 204)


@check("quotas", "what is in use counts, and what ends is free again")
def _(probe: Probe) -> None:
    key = probe.new_key("run", quota={"sessions": 1})["key"]
    with probe.client(key) as small:
        first = probe.new_session(small)
        answer = small.post("/v1/sessions", json={})
        told = problem(answer, 429, "quota_exceeded")
        same(told.get("quota"), "sessions")
        holds(int(answer.headers.get("retry-after", "0")) >= 1, "no Retry-After")
        ok(small.delete(f"/v1/sessions/{first}"))
        probe.new_session(small)


@check("quotas", "what can never fit is forbidden")
def _(probe: Probe) -> None:
    key = probe.new_key(
        "run", quota={"memory": 64 << 20, "network": "none", "policies": ["strict"]}
    )["key"]
    with probe.client(key) as small:
        for body, name in (
            ({"policy": "strict", "limits": {"memory": "128m"}}, "memory"),
            (
                {"policy": "strict", "limits": {"memory": "32m"}, "network": "full"},
                "network",
            ),
            ({"policy": "default", "limits": {"memory": "32m"}}, "policies"),
        ):
            same(
                problem(small.post("/v1/sessions", json=body), 403, "forbidden").get(
                    "quota"
                ),
                name,
            )


@check("quotas", "usage tells what is in use")
def _(probe: Probe) -> None:
    probe.run("true")
    used = ok(probe.http.get("/v1/usage"))
    holds(
        used["sessions"] >= 1 and used["memory"] > 0 and used["commands"] >= 1,
        f"usage: {used}",
    )
    eventually(
        lambda: ok(probe.http.get("/v1/usage"))["cpu_time"] > 0, "cpu_time stays 0"
    )


@check("conventions", "every list has pages")
def _(probe: Probe) -> None:
    for name in ("sessions", "keys", "approvals", "images", "policies", "snapshots"):
        told = problem(probe.http.get(f"/v1/{name}?limit=0"), 400, "usage")
        same(told.get("field"), "limit")
        page = ok(probe.http.get(f"/v1/{name}?limit=1"))
        holds(len(page["items"]) <= 1, f"more than one of the {name}")


@check("conventions", "a request for the head of a stream ends")
def _(probe: Probe) -> None:
    answer = probe.http.head("/v1/events?topics=sessions", timeout=10)
    same((answer.status_code, answer.content), (200, b""))


@check("idempotency", "other bytes are another request")
def _(probe: Probe) -> None:
    running = probe.start("cat", stdin_open=True)
    headers = {"Idempotency-Key": secrets.token_hex(8)}
    path = probe.path("commands", running["id"], "stdin")
    for _ in range(2):
        same(probe.http.post(path, content=b"a", headers=headers).status_code, 204)
    problem(
        probe.http.post(path, content=b"b", headers=headers),
        422,
        "idempotency_mismatch",
    )
    same(probe.http.post(f"{path}?close=true", content=b"c").status_code, 204)
    ended = probe.until(running["id"], "ended")
    same(ended["result"]["stdout"], "ac")


@check("tenants", "a new tenant of an old name finds nothing of the old one")
def _(probe: Probe) -> None:
    name = probe.tenant()
    headers = {"Prefer": "wait=60"}
    with probe.client(probe.new_key("admin", tenant=name)["key"]) as earlier:
        ok(earlier.post("/v1/sessions", json={}, headers=headers), 201)
    same(probe.http.delete(f"/v1/tenants/{name}").status_code, 204)
    ok(probe.http.post("/v1/tenants", json={"name": name}), 201)
    with probe.client(probe.new_key("admin", tenant=name)["key"]) as later:
        same(ok(later.get("/v1/sessions"))["items"], [])
        same(ok(later.get("/v1/usage"))["creates_last_minute"], 0)
    probe.http.delete(f"/v1/tenants/{name}")
