"""Files, review, approvals, ports, events and records."""

from __future__ import annotations

import io
import secrets
import tarfile
import threading
from typing import Any

from belljar.conformance.probe import (
    Failed,
    Probe,
    check,
    eventually,
    holds,
    ok,
    problem,
    read_events,
    same,
)

ASKED = 'rm -rf "$NOWHERE"; echo allowed'
"""What the policy `default` asks about, and what does nothing."""


# Files.


@check("files", "a file is written with its parents, read, and removed")
def _(probe: Probe) -> None:
    path, name = probe.path("files"), f"d{secrets.token_hex(4)}/e/f"
    info = ok(
        probe.http.put(path, params={"path": name, "mode": "0600"}, content=b"\x00data")
    )
    same((info["kind"], info["size"], info["mode"] & 0o777), ("file", 5, 0o600))
    answer = ok(probe.http.get(path, params={"path": name}))
    same(answer.content, b"\x00data")
    holds(
        "attachment" in answer.headers.get("content-disposition", ""),
        "no Content-Disposition",
    )
    holds(
        "sandbox" in answer.headers.get("content-security-policy", ""),
        "a file may act as a page",
    )
    same(
        ok(
            probe.http.get(path, params={"path": name, "offset": 1, "length": 2})
        ).content,
        b"da",
    )
    same(probe.run(["cat", name])["result"]["stdout"], "\x00data")
    ok(probe.http.delete(path, params={"path": name}), 204)
    problem(probe.http.get(path, params={"path": name}), 404, "file_failed")


@check("files", "the errors of files have their kernel's names")
def _(probe: Probe) -> None:
    path = probe.path("files")
    same(
        problem(probe.http.get(path, params={"path": "/nowhere"}), 404, "file_failed")[
            "errno"
        ],
        "ENOENT",
    )
    same(
        problem(probe.http.get(path, params={"path": "/tmp"}), 409, "file_failed")[
            "errno"
        ],
        "EISDIR",
    )
    problem(probe.http.get(path), 400, "usage")
    answer = probe.http.put(path, params={"path": "/etc/hostname"}, content=b"x")
    holds(answer.status_code == 403, f"a read-only place: {answer.status_code}")


@check("files", "a directory is listed, sorted")
def _(probe: Probe) -> None:
    name = f"/tmp/l{secrets.token_hex(4)}"
    probe.run(f"mkdir -p {name}/b; touch {name}/a {name}/b/c; ln -s a {name}/z")
    items = ok(
        probe.http.get(probe.path("entries"), params={"path": name, "depth": 2})
    )["items"]
    same([each["path"] for each in items], ["a", "b", "b/c", "z"])
    same(
        (items[1]["kind"], items[3]["kind"], items[3]["target"]),
        ("directory", "link", "a"),
    )
    itself = ok(
        probe.http.get(probe.path("entries"), params={"path": name, "depth": 0})
    )["items"]
    same([each["kind"] for each in itself], ["directory"])
    made = ok(probe.http.put(probe.path("entries"), params={"path": f"{name}/x/y"}))
    same(made["kind"], "directory")


@check("files", "a tree goes in and comes out as tar")
def _(probe: Probe) -> None:
    name = f"/tmp/t{secrets.token_hex(4)}"
    probe.run(f"mkdir -p {name}")
    sent = _tar(("a/b.txt", b"inside"))
    headers = {"Content-Type": "application/x-tar"}
    ok(
        probe.http.put(
            probe.path("tar"), params={"path": name}, content=sent, headers=headers
        ),
        204,
    )
    got = ok(probe.http.get(probe.path("tar"), params={"path": name}))
    with tarfile.open(fileobj=io.BytesIO(got.content)) as archive:
        found = {
            member.name.removeprefix("./"): archive.extractfile(member)
            for member in archive
            if member.isfile()
        }
    same([*found], ["a/b.txt"])


@check("files", "an archive that reaches out of its directory is refused whole")
def _(probe: Probe) -> None:
    headers = {"Content-Type": "application/x-tar"}
    for wrong in ("../out", "/tmp/absolute"):
        name = f"/tmp/t{secrets.token_hex(4)}"
        probe.run(f"mkdir -p {name}")
        sent = _tar((wrong, b"x"))
        problem(
            probe.http.put(
                probe.path("tar"), params={"path": name}, content=sent, headers=headers
            ),
            400,
            "usage",
        )
        same(
            ok(probe.http.get(probe.path("entries"), params={"path": name}))["items"],
            [],
        )


def _tar(*files: tuple[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, data in files:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return out.getvalue()


# Review.


def _staged(probe: Probe) -> str:
    return probe.new_session(changes="staged", workspace=f"w{secrets.token_hex(6)}")


@check("review", "changes wait until they are applied")
def _(probe: Probe) -> None:
    id = _staged(probe)
    ok(probe.command("echo 1 > new", session=id))
    base = f"/v1/sessions/{id}"
    answer = probe.http.get(f"{base}/changes")
    same([(each["path"]) for each in ok(answer)["items"]], ["new"])
    holds(answer.headers.get("etag"), "no ETag")
    diff = ok(probe.http.get(f"{base}/diff"))
    holds(
        "+1" in diff.text and diff.headers["content-type"].startswith("text/x-diff"),
        "no diff",
    )
    applied = ok(
        probe.http.post(
            f"{base}/apply", json={}, headers={"If-Match": answer.headers["etag"]}
        )
    )
    same(applied["paths"], ["new"])
    same(ok(probe.http.get(f"{base}/changes"))["items"], [])


@check("review", "what was not shown is not applied")
def _(probe: Probe) -> None:
    id = _staged(probe)
    ok(probe.command("echo 1 > file", session=id))
    etag = probe.http.get(f"/v1/sessions/{id}/changes").headers["etag"]
    ok(probe.command("echo 2 > file", session=id))
    answer = probe.http.post(
        f"/v1/sessions/{id}/apply", json={}, headers={"If-Match": etag}
    )
    problem(answer, 409, "conflict")
    same(len(ok(probe.http.get(f"/v1/sessions/{id}/changes"))["items"]), 1)


@check("review", "an apply can be undone, and changes dropped")
def _(probe: Probe) -> None:
    id = _staged(probe)
    base = f"/v1/sessions/{id}"
    ok(probe.command("echo 1 > a; echo 2 > b", session=id))
    same(ok(probe.http.post(f"{base}/discard", json={"paths": ["b"]}))["paths"], ["b"])
    ok(probe.http.post(f"{base}/apply", json={"paths": ["a"]}))
    ok(probe.http.post(f"{base}/undo", json={}))
    problem(probe.http.post(f"{base}/undo", json={}), 409, "conflict")


@check("review", "an agent's key does not accept its own changes")
def _(probe: Probe) -> None:
    with probe.client(probe.new_key("run")["key"]) as agent:
        id = probe.new_session(
            agent, changes="staged", workspace=f"w{secrets.token_hex(6)}"
        )
        told = problem(
            agent.post(f"/v1/sessions/{id}/apply", json={}), 403, "forbidden"
        )
        same(told["scope"], "approve")


@check("review", "a session whose changes are direct has none to review")
def _(probe: Probe) -> None:
    problem(probe.http.get(probe.path("changes")), 400, "usage")


@check("review", "a rollback goes back to a checkpoint")
def _(probe: Probe) -> None:
    id = _staged(probe)
    base = f"/v1/sessions/{id}"
    ok(probe.command("echo 1 > file", session=id))
    ok(probe.http.post(f"{base}/checkpoints", json={"name": "one"}), 201)
    ok(probe.command("echo 2 > file; touch more", session=id))
    same(ok(probe.http.post(f"{base}/rollback", json={"name": "one"}))["name"], "one")
    same(ok(probe.command("cat file; ls", session=id))["result"]["stdout"], "1\nfile\n")


# Approvals.


def _waiting(probe: Probe, session: str) -> tuple[str, dict[str, Any]]:
    begun = ok(probe.command(ASKED, wait=0, session=session), 202)

    def find() -> Any:
        listed = ok(probe.http.get("/v1/approvals", params={"session": session}))[
            "items"
        ]
        return next((each for each in listed if each["command"] == begun["id"]), None)

    return begun["id"], eventually(find, "no approval waits")


@check("approvals", "a command that needs a yes waits for it, and runs")
def _(probe: Probe) -> None:
    id = probe.new_session()
    command, approval = _waiting(probe, id)
    same(
        ok(probe.http.get(f"/v1/sessions/{id}/commands/{command}"))["state"], "waiting"
    )
    body = {"decision": "allow", "token": approval["token"]}
    decided = ok(probe.http.post(f"/v1/approvals/{approval['id']}", json=body))
    same((decided["state"], decided["decided"]["decision"]), ("allowed", "allow"))
    same(probe.until(command, "ended", session=id)["result"]["stdout"], "allowed\n")


@check("approvals", "a no ends it with the reason that was given")
def _(probe: Probe) -> None:
    id = probe.new_session()
    command, approval = _waiting(probe, id)
    body = {"decision": "deny", "token": approval["token"], "reason": "not today"}
    ok(probe.http.post(f"/v1/approvals/{approval['id']}", json=body))
    ended = probe.until(command, "ended", session=id)
    same((ended["error"]["code"], ended["result"]), ("policy_denied", None))
    holds("not today" in ended["error"]["detail"], ended["error"]["detail"])


@check("approvals", "a decision is bound to what was judged")
def _(probe: Probe) -> None:
    id = probe.new_session()
    _, approval = _waiting(probe, id)
    wrong = {"decision": "allow", "token": "x" * len(approval["token"])}
    problem(
        probe.http.post(f"/v1/approvals/{approval['id']}", json=wrong),
        409,
        "approval_changed",
    )
    same(ok(probe.http.get(f"/v1/approvals/{approval['id']}"))["state"], "waiting")


@check("approvals", "of two who decide one wins")
def _(probe: Probe) -> None:
    id = probe.new_session()
    _, approval = _waiting(probe, id)
    answers: list[int] = []

    def decide(decision: str) -> None:
        body = {"decision": decision, "token": approval["token"]}
        answers.append(
            probe.http.post(f"/v1/approvals/{approval['id']}", json=body).status_code
        )

    threads = [
        threading.Thread(target=decide, args=[each]) for each in ("allow", "deny")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    same(sorted(answers), [200, 409])


@check("approvals", "nobody's answer is a no")
def _(probe: Probe) -> None:
    id = probe.new_session(approval_seconds=1)
    command, approval = _waiting(probe, id)
    ended = probe.until(command, "ended", session=id)
    same((ended["error"]["code"], ended["result"]), ("policy_denied", None))
    same(ok(probe.http.get(f"/v1/approvals/{approval['id']}"))["state"], "expired")


@check("approvals", "with nobody to ask, asking is denying")
def _(probe: Probe) -> None:
    problem(
        probe.command(ASKED, session=probe.new_session(approval_seconds=0)),
        403,
        "policy_denied",
    )


@check("approvals", "a yes for the session covers the same command later")
def _(probe: Probe) -> None:
    id = probe.new_session()
    command, approval = _waiting(probe, id)
    body = {"decision": "allow", "token": approval["token"], "scope": "session"}
    ok(probe.http.post(f"/v1/approvals/{approval['id']}", json=body))
    probe.until(command, "ended", session=id)
    same(ok(probe.command(ASKED, session=id), 200)["state"], "ended")


@check("approvals", "who may not decide, does not")
def _(probe: Probe) -> None:
    _, approval = _waiting(probe, probe.new_session())
    with probe.client(probe.new_key("run", reach="tenant")["key"]) as agent:
        body = {"decision": "allow", "token": approval["token"]}
        problem(
            agent.post(f"/v1/approvals/{approval['id']}", json=body), 403, "forbidden"
        )


# Ports.


@check("ports", "what listens inside is reached, without the server's rights")
def _(probe: Probe) -> None:
    begun = probe.start(
        "cd /tmp && echo hello > page && exec python3 -m http.server 8123"
    )

    def find() -> Any:
        answer = probe.http.get(probe.path("ports", "8123", "page"))
        return answer if answer.status_code == 200 else None

    answer = eventually(find, "the port does not answer")
    same(answer.text, "hello\n")
    same(
        answer.headers.get("content-security-policy"),
        "sandbox allow-scripts allow-forms",
    )
    probe.http.delete(probe.path("commands", begun["id"]) + "?grace=0")
    problem(probe.http.get(probe.path("ports", "8124", "x")), 502, "port_closed")


@check("ports", "a link leads there without a key, and to nothing else")
def _(probe: Probe) -> None:
    probe.start("cd /tmp && echo linked > page && exec python3 -m http.server 8125")
    link = ok(
        probe.http.post(probe.path("links"), json={"port": 8125, "seconds": 60}), 201
    )
    with probe.client(None) as anyone:
        same(
            eventually(
                lambda: _text(anyone, f"{link['url']}page"), "the link does not answer"
            ),
            "linked\n",
        )
        same(anyone.get(link["url"][:-4] + "wxyz/page").status_code, 404)


def _text(client: Any, url: str) -> str:
    answer = client.get(url)
    return answer.text if answer.status_code == 200 else ""


# Events and records.


@check("events", "a screen sees what is there, then what changes")
def _(probe: Probe) -> None:
    id = probe.session
    with probe.http.stream("GET", "/v1/events?topics=commands,sessions") as answer:
        same(answer.headers["content-type"].partition(";")[0], "text/event-stream")
        events = read_events(answer.iter_lines())
        first: dict[str, list[dict[str, Any]]] = {}
        while len(first) < 2:
            event = next(events)
            if event["event"] != "ping":
                same(event["data"]["kind"], "snapshot")
                first[event["event"]] = event["data"]["items"]
        holds(
            id in [each["id"] for each in first["sessions"]],
            "the snapshot leaves a session out",
        )
        begun = ok(probe.command("echo seen", wait=0), 200, 202)
        for event in events:
            data = event["data"] or {}
            item = (
                data["item"]
                if event["event"] == "commands" and data.get("kind") == "put"
                else {}
            )
            if (item.get("id"), item.get("state")) == (begun["id"], "ended"):
                holds("stdout" not in item["result"], "an event holds the output")
                return
    raise Failed("the end of a command is not told")


@check("records", "a verdict can be had without running anything")
def _(probe: Probe) -> None:
    denied = ok(probe.http.post("/v1/check", json={"command": "rm -rf /"}))
    same((denied["decision"], denied["risk"]), ("deny", "blocked"))
    holds(
        denied["rules"] and denied["effects"] and denied["reason"],
        "rules, effects or a reason are missing",
    )
    same(ok(probe.http.post("/v1/check", json={"command": "ls"}))["decision"], "allow")


@check("records", "the trail names who did what, and is whole")
def _(probe: Probe) -> None:
    ended = probe.run(f"echo {secrets.token_hex(6)}")
    own = ok(probe.http.get("/v1/keys/self"))["id"]

    def find() -> Any:
        page = ok(
            probe.http.get("/v1/audit", params={"session": probe.session, "limit": 200})
        )
        while page["next"]:
            page = ok(
                probe.http.get(
                    "/v1/audit",
                    params={
                        "session": probe.session,
                        "limit": 200,
                        "cursor": page["next"],
                    },
                )
            )
        return [
            each
            for each in page["items"]
            if each["kind"] == "start" and each["command"] == ended["command"]
        ]

    (start,) = eventually(find, "the trail has no start")
    same(start["key"], own)
    holds(start["tenant"] and start["request_id"], "tenant or request_id is missing")
    verified = ok(probe.http.get("/v1/audit/verify"))
    holds(
        verified.get("ok", verified.get("intact", True)),
        f"the trail does not verify: {verified}",
    )


@check("records", "metrics name no session, key or tenant")
def _(probe: Probe) -> None:
    answer = probe.http.get("/metrics")
    if answer.status_code == 403:
        return
    same(answer.status_code, 200)
    for name in (
        "belljar_sessions",
        "belljar_commands_total",
        "belljar_approvals_waiting",
        "belljar_denied_total",
    ):
        holds(name in answer.text, f"{name} is missing")
    holds(probe.session not in answer.text, "a session's id is a label")


@check("records", "images and policies are listed")
def _(probe: Probe) -> None:
    policies = ok(probe.http.get("/v1/policies"))["items"]
    holds(
        "default" in [each.get("name") for each in policies],
        "the policy default is missing",
    )
    holds(
        isinstance(ok(probe.http.get("/v1/images"))["items"], list), "no list of images"
    )
