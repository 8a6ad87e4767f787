"""The life of sandboxes, through E2B's own client, and who may see them."""

from __future__ import annotations

import json
import time

import e2b
import httpx
import pytest
from e2b import Sandbox, SandboxQuery, SandboxState
from e2b.exceptions import AuthenticationException, NotFoundException, SandboxException
from starlette.requests import Request
from tests.surfaces.http.serving import KEY, Serving

from belljar.surfaces.http.e2b import app, control

pytestmark = pytest.mark.engine


def test_a_sandbox_is_made_found_and_ended() -> None:
    sandbox = Sandbox.create(timeout=60, metadata={"job": "17"}, envs={"A": "1"})
    try:
        assert sandbox.is_running()
        assert sandbox.commands.run("echo $A").stdout == "1\n"
        found = Sandbox.list(query=SandboxQuery(metadata={"job": "17"})).next_items()
        assert [each.sandbox_id for each in found] == [sandbox.sandbox_id]
        info = sandbox.get_info()
        assert (info.metadata, info.state, info.template_id) == (
            {"job": "17"},
            SandboxState.RUNNING,
            "base",
        )
        assert 50 < (info.end_at - info.started_at).total_seconds() < 70
    finally:
        assert sandbox.kill() is True
    assert not sandbox.is_running()
    assert Sandbox.kill(sandbox.sandbox_id) is False
    with pytest.raises(NotFoundException):
        Sandbox.connect(sandbox.sandbox_id)


def test_a_sandbox_ends_at_its_timeout(sandbox: Sandbox) -> None:
    sandbox.set_timeout(1)
    until = time.monotonic() + 20
    while sandbox.is_running() and time.monotonic() < until:
        time.sleep(0.2)
    assert not sandbox.is_running()


def test_a_paused_sandbox_goes_on_where_it_was(sandbox: Sandbox) -> None:
    sandbox.commands.run("sleep 600", background=True)
    sandbox.files.write("kept", "1")
    assert sandbox.pause() is True
    assert sandbox.pause() is False
    assert not sandbox.is_running()
    paused = Sandbox.list(query=SandboxQuery(state=[SandboxState.PAUSED])).next_items()
    assert sandbox.sandbox_id in [each.sandbox_id for each in paused]
    again = Sandbox.connect(sandbox.sandbox_id)
    assert again.is_running()
    assert again.files.read("kept") == "1"
    assert len(again.commands.list()) == 1


def test_a_snapshot_is_a_template(sandbox: Sandbox) -> None:
    sandbox.files.write("state", "kept")
    sandbox.commands.run("echo w > /workspace/w; echo t > /tmp/t")
    made = sandbox.create_snapshot(name="ready")
    sandbox.files.write("state", "later")
    listed = sandbox.list_snapshots().next_items()
    assert [each.snapshot_id for each in listed] == [made.snapshot_id]
    twin = Sandbox.create(made.snapshot_id, timeout=60)
    try:
        assert twin.files.read("state") == "kept"
        assert twin.commands.run("cat /workspace/w /tmp/t").stdout == "w\nt\n"
        assert twin.get_info().template_id == made.snapshot_id
    finally:
        twin.kill()
    assert Sandbox.delete_snapshot(made.snapshot_id) is True
    assert Sandbox.delete_snapshot(made.snapshot_id) is False
    with pytest.raises(SandboxException):
        Sandbox.create(made.snapshot_id, timeout=60)


def test_forks_have_the_files_and_are_apart(sandbox: Sandbox) -> None:
    sandbox.files.write("state", "before")
    forks = sandbox.fork(count=2)
    try:
        assert len({sandbox.sandbox_id, *(fork.sandbox_id for fork in forks)}) == 3
        forks[0].files.write("state", "after")
        assert [each.files.read("state") for each in (sandbox, *forks)] == [
            "before",
            "after",
            "before",
        ]
    finally:
        for fork in forks:
            fork.kill()


def test_a_sandbox_that_is_killed_ends_its_commands(sandbox: Sandbox) -> None:
    sleeper = sandbox.commands.run("sleep 600", background=True)
    sandbox.kill()
    with pytest.raises(SandboxException, match="killed or reached its"):
        sleeper.wait()


def test_an_unknown_template_is_not_found() -> None:
    with pytest.raises(
        SandboxException, match="404: template 'no-such-template' was not found"
    ):
        Sandbox.create("no-such-template")


def test_a_wrong_key_is_told() -> None:
    for key in ("bj_" + "x" * 40, "e2b_" + "00" * 20, "e2b_zz", ""):
        with pytest.raises(AuthenticationException):
            Sandbox.create(api_key=key or "none")


def test_a_key_may_be_written_as_e2b_s_are(sandbox: Sandbox) -> None:
    assert (
        Sandbox.get_info(
            sandbox.sandbox_id, api_key="e2b_" + KEY.encode().hex()
        ).sandbox_id
        == sandbox.sandbox_id
    )


def test_another_tenant_finds_nothing(server: Serving, sandbox: Sandbox) -> None:
    server.client.post("/v1/tenants", json={"name": "other"})
    key = server.key("run", tenant="other")["key"]
    assert sandbox.sandbox_id not in [
        each.sandbox_id for each in Sandbox.list(api_key=key).next_items()
    ]
    with pytest.raises(NotFoundException):
        Sandbox.connect(sandbox.sandbox_id, api_key=key)
    assert Sandbox.kill(sandbox.sandbox_id, api_key=key) is False
    assert sandbox.is_running()


def test_a_key_that_may_only_read_makes_nothing(server: Serving) -> None:
    with pytest.raises(SandboxException):
        Sandbox.create(api_key=server.key("read")["key"])


@pytest.mark.parametrize("token", ["", "x" * 64])
def test_a_sandbox_is_entered_with_its_own_token_only(
    sandbox: Sandbox, wire: httpx.Client, token: str
) -> None:
    headers = {
        "E2b-Sandbox-Id": sandbox.sandbox_id,
        "X-Access-Token": token,
        "X-API-Key": KEY,
    }
    for path in ("/process.Process/List", "/filesystem.Filesystem/Stat"):
        assert wire.post(path, json={}, headers=headers).status_code == 401
    assert (
        wire.get("/files", params={"path": "/etc/passwd"}, headers=headers).status_code
        == 401
    )


def test_a_token_opens_no_other_sandbox(sandbox: Sandbox, wire: httpx.Client) -> None:
    other = Sandbox.create(timeout=60)
    try:
        headers = {
            "E2b-Sandbox-Id": other.sandbox_id,
            "X-Access-Token": sandbox._envd_access_token or "",
        }
        assert (
            wire.post("/process.Process/List", json={}, headers=headers).status_code
            == 401
        )
    finally:
        other.kill()


def test_what_e2b_has_and_we_have_not_answers_in_its_shape(wire: httpx.Client) -> None:
    answer = wire.get("/volumes", headers={"X-API-Key": KEY})
    assert (answer.status_code, answer.json()["code"]) == (404, 404)


def test_sessions_of_e2b_are_sessions_of_ours(
    server: Serving, sandbox: e2b.Sandbox
) -> None:
    shown = server.client.get(f"/v1/sessions/{sandbox.sandbox_id}").json()
    assert shown["state"] == "ready"
    sandbox.commands.run("echo seen")
    commands = server.client.get(f"/v1/sessions/{sandbox.sandbox_id}/commands").json()[
        "items"
    ]
    assert "echo seen" in [each["command"] for each in commands]


def test_a_long_list_comes_in_pages() -> None:
    items = [{"sandboxID": f"s{number}"} for number in range(5)]
    first = control._page(items, {"limit": "2"}, "sandboxID")
    assert (len(json.loads(bytes(first.body))), first.headers["x-next-token"]) == (
        2,
        "s2",
    )
    last = control._page(items, {"limit": "9", "nextToken": "s3"}, "sandboxID")
    assert (len(json.loads(bytes(last.body))), "x-next-token" in last.headers) == (
        2,
        False,
    )


@pytest.mark.parametrize(
    ("host", "id"),
    [
        ("49983-bj-0123456789ab.example.test", "bj-0123456789ab"),
        ("example.test", ""),
        ("49983-.example.test", ""),
    ],
)
def test_a_host_s_name_may_say_which_sandbox_is_meant(host: str, id: str) -> None:
    request = Request({"type": "http", "headers": [(b"host", host.encode())]})
    assert app._id(request) == id
