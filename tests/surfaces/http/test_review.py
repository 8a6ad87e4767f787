"""Reviewing what a staged session changed (review.py)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.surfaces.http.serving import Serving

from belljar.surfaces.http import review  # noqa: F401 - what these tests are about


@pytest.fixture
def staged(server: Serving) -> Iterator[str]:
    seed = server.session(workspace="reviewed")
    server.run(
        seed,
        "rm -rf new later.txt; printf 'one\\ntwo\\n' > kept.txt; echo old > gone.txt",
    )
    server.client.delete(f"/v1/sessions/{seed}")
    session = server.session(workspace="reviewed", changes="staged")
    server.run(
        session,
        "printf 'one\\n2\\n' > kept.txt; rm gone.txt; mkdir new; echo n > new/file",
    )
    yield session
    server.client.delete(f"/v1/sessions/{session}")


def _host(server: Serving) -> dict[str, str]:
    look = server.session(workspace="reviewed")
    text = server.run(look, "grep -r '' . | sort")["result"]["stdout"]
    server.client.delete(f"/v1/sessions/{look}")
    return dict(line.split(":", 1) for line in text.splitlines())


def test_changes_are_shown_and_applied_in_part(server: Serving, staged: str) -> None:
    path = f"/v1/sessions/{staged}"
    answer = server.client.get(f"{path}/changes")
    kinds = {item["path"]: item["kind"] for item in answer.json()["items"]}
    assert kinds == {
        "kept.txt": "modified",
        "gone.txt": "deleted",
        "new": "added",
        "new/file": "added",
    }
    diff = server.client.get(f"{path}/diff", params={"path": "kept.txt"})
    assert diff.headers["content-type"].startswith("text/x-diff")
    assert "-two\n+2\n" in diff.text
    assert "gone" not in diff.text
    assert diff.headers["etag"] == answer.headers["etag"]
    applied = server.client.post(
        f"{path}/apply",
        json={"paths": ["kept.txt"]},
        headers={"If-Match": diff.headers["etag"]},
    )
    assert applied.json() == {
        "paths": ["kept.txt"],
        "held": [],
        "refused": [],
        "merged": [],
    }
    left = [
        item["path"] for item in server.client.get(f"{path}/changes").json()["items"]
    ]
    assert left == ["gone.txt", "new", "new/file"]
    assert server.client.post(f"{path}/discard", json={"paths": ["new"]}).json()[
        "paths"
    ] == ["new", "new/file"]
    assert server.client.post(f"{path}/undo", json={}).json()["paths"] == ["kept.txt"]
    again = server.client.post(f"{path}/undo", json={})
    assert (again.status_code, again.json()["code"]) == (409, "conflict")


def test_what_changed_since_is_not_applied(server: Serving, staged: str) -> None:
    path = f"/v1/sessions/{staged}"
    etag = server.client.get(f"{path}/changes").headers["etag"]
    server.run(staged, "printf 'one\\n3\\n' > kept.txt")
    answer = server.client.post(f"{path}/apply", json={}, headers={"If-Match": etag})
    assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
    assert "kept.txt" in answer.json()["paths"]
    assert _host(server)["./gone.txt"] == "old"
    host = server.session(workspace="reviewed")
    etag = server.client.get(f"{path}/changes").headers["etag"]
    server.run(host, "echo mine > kept.txt")
    server.client.delete(f"/v1/sessions/{host}")
    for headers in ({"If-Match": etag}, {}):
        answer = server.client.post(f"{path}/apply", json={}, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
    forced = server.client.post(
        f"{path}/apply", json={"paths": ["kept.txt"], "force": True}
    )
    assert forced.json()["paths"] == ["kept.txt"]


def test_a_key_without_approve_cannot_accept_its_own_changes(
    server: Serving, staged: str
) -> None:
    with server.with_key(server.key("run", reach="tenant")["key"]) as client:
        assert client.get(f"/v1/sessions/{staged}/changes").status_code == 200
        for verb in ("apply", "undo"):
            answer = client.post(f"/v1/sessions/{staged}/{verb}", json={})
            assert (answer.status_code, answer.json()["scope"]) == (403, "approve")


def test_checkpoints_bring_files_back(server: Serving, staged: str) -> None:
    path = f"/v1/sessions/{staged}"
    made = server.client.post(f"{path}/checkpoints", json={"name": "first"})
    assert (made.status_code, made.json()["name"]) == (201, "first")
    server.run(staged, "echo later > later.txt")
    running = server.run(staged, "sleep 100", wait=0)
    busy = server.client.post(f"{path}/checkpoints", json={"name": "second"})
    assert (busy.status_code, busy.json()["code"]) == (409, "conflict")
    assert (
        server.client.post(f"{path}/rollback", json={"name": "none"}).status_code == 404
    )
    assert server.client.post(f"{path}/rollback", json={}).json()["name"] == "first"
    killed = server.client.get(f"{path}/commands/{running['id']}").json()
    assert killed["result"]["cause"] == "killed"
    assert server.run(staged, "ls")["result"]["stdout"] == "kept.txt\nnew\n"
    assert [
        item["name"]
        for item in server.client.get(f"{path}/checkpoints").json()["items"]
    ] == ["first"]
    assert server.client.delete(f"{path}/checkpoints/first").status_code == 204
    assert server.client.delete(f"{path}/checkpoints/first").status_code == 404
    assert server.client.post(f"{path}/rollback", json={}).json()["code"] == "conflict"


def test_changes_outlive_their_session(server: Serving) -> None:
    session = server.session(workspace="later", changes="staged")
    server.run(session, "echo later > file")
    server.client.delete(f"/v1/sessions/{session}")
    path = f"/v1/sessions/{session}"
    assert [
        item["path"] for item in server.client.get(f"{path}/changes").json()["items"]
    ] == ["file"]
    assert server.client.post(f"{path}/apply", json={}).json()["paths"] == ["file"]
    after = server.session(workspace="later")
    assert server.run(after, "cat file")["result"]["stdout"] == "later\n"
    server.client.delete(f"/v1/sessions/{after}")


def test_a_direct_session_has_nothing_to_review(server: Serving, session: str) -> None:
    asks: list[tuple[str, str, Any]] = [
        ("GET", "changes", None), ("GET", "diff", None), ("POST", "apply", {}), ("POST", "discard", {}),
        ("POST", "undo", {}), ("GET", "checkpoints", None), ("POST", "rollback", {}),
    ]  # fmt: skip
    for method, verb, body in asks:
        answer = server.client.request(
            method, f"/v1/sessions/{session}/{verb}", json=body
        )
        assert (answer.status_code, answer.json()["code"]) == (400, "usage")
