"""MCP at the service, with the SDK's own client: a session for each client, bound to its key, resumable."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx
import pytest
from mcp import Client, ClientSession
from mcp.client.streamable_http import streamable_http_client
from tests.surfaces.http.serving import KEY, Serving, serving

import belljar
from belljar.surfaces.http.mcp import EVENTS_KEPT, kept_events

pytestmark = pytest.mark.engine


@asynccontextmanager
async def client(
    server: Serving, key: str = KEY, query: str = ""
) -> AsyncIterator[ClientSession]:
    async with (
        httpx.AsyncClient(
            headers={"Authorization": f"Bearer {key}"}, timeout=60, trust_env=False
        ) as http,
        streamable_http_client(f"{server.url}/mcp{query}", http_client=http) as (
            read,
            write,
            *_,
        ),
        ClientSession(read, write) as session,
    ):
        await session.initialize()
        yield session


async def _run(session: ClientSession, command: str) -> str:
    answer = await session.call_tool(
        "Bash", {"command": command, "description": "test"}
    )
    return "".join(part.text for part in answer.content)  # type: ignore[union-attr]


def _living(server: Serving) -> list[dict[str, Any]]:
    found = server.client.get("/v1/sessions?limit=200").json()["items"]
    return [each for each in found if each["state"] != "ended"]


async def test_each_client_has_a_sandbox_that_ends_with_it(server: Serving) -> None:
    async with client(server) as one, client(server) as two:
        assert {tool.name for tool in (await one.list_tools()).tools} >= {
            "Bash",
            "BashOutput",
            "KillShell",
        }
        assert _living(server) == []
        await _run(one, "echo mine > /tmp/x; cd /tmp")
        assert "mine" in await _run(one, "cat x")
        assert "No such file" in await _run(two, "cat /tmp/x")
        assert len(_living(server)) == 2
    with anyio.fail_after(60):
        while _living(server):  # noqa: ASYNC110
            await anyio.sleep(0.05)


async def test_the_newest_protocol_has_no_sessions_so_a_key_has_one(
    server: Serving,
) -> None:
    key = server.key("run", "read")["key"]
    for command in ("echo once > /tmp/x", "cat /tmp/x"):
        async with (
            httpx.AsyncClient(
                headers={"Authorization": f"Bearer {key}"}, timeout=60, trust_env=False
            ) as http,
            Client(
                streamable_http_client(f"{server.url}/mcp", http_client=http),
                mode="auto",
            ) as one,
        ):
            answer = await one.call_tool(
                "Bash", {"command": command, "description": "t"}
            )
    assert "once" in str(answer.content)
    for session in _living(server):
        server.client.delete(f"/v1/sessions/{session['id']}")


async def test_the_policy_and_the_key_s_limits_hold(server: Serving) -> None:
    narrow = server.key("run", "read", quota={"sessions": 1})["key"]
    async with client(server, narrow) as session:
        assert "blocked" in (await _run(session, "rm -rf /")).lower()
        async with client(server, narrow) as second:
            assert "in use" in await _run(second, "true")
    reader = server.key("read")["key"]
    with server.with_key(reader) as asking:
        answer = asking.post("/mcp", json={})
    assert (answer.status_code, answer.json()["scope"]) == (403, "run")


async def test_a_command_that_needs_a_yes_waits_for_people(server: Serving) -> None:
    agent, far = server.key("run", "read")["key"], belljar.connect(server.url, key=KEY)
    async with client(server, agent) as session, anyio.create_task_group() as tasks:
        said: list[str] = []

        async def run() -> None:
            said.append(await _run(session, 'rm -rf "$NOWHERE"; echo went on'))

        tasks.start_soon(run)
        with anyio.fail_after(60):
            while not (waiting := await far.approvals()):  # noqa: ASYNC110
                await anyio.sleep(0.05)
        await far.decide(waiting[0], "allow")
    assert "went on" in said[0]


async def test_a_session_that_is_there_can_be_named_and_stays(server: Serving) -> None:
    id = server.session(workspace="named")
    async with client(
        server, query=f"?session={id}&tools=execute_command,files"
    ) as session:
        assert "execute_command" in {
            tool.name for tool in (await session.list_tools()).tools
        }
        await session.call_tool("write_file", {"path": "x", "content": "kept\n"})
    assert server.run(id, "cat x")["result"]["stdout"] == "kept\n"
    server.client.delete(f"/v1/sessions/{id}")


def _begin(asking: httpx.Client) -> None:
    """Begin a session by hand."""
    asking.headers["Accept"] = "application/json, text/event-stream"
    hello = {
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
    }  # fmt: skip
    begun = asking.post("/mcp", json=hello)
    assert begun.status_code == 200
    asking.headers["Mcp-Session-Id"] = begun.headers["mcp-session-id"]


def test_a_session_belongs_to_its_key(server: Serving) -> None:
    with (
        server.with_key(KEY) as one,
        server.with_key(server.key("run")["key"]) as other,
    ):
        _begin(one)
        other.headers.update(
            {name: one.headers[name] for name in ("Accept", "Mcp-Session-Id")}
        )
        asked = other.post(
            "/mcp", json={"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
        )
        assert (asked.status_code, asked.json()["code"]) == (404, "not_found")
        assert other.delete("/mcp").status_code == 404
        assert one.delete("/mcp").status_code == 200
        assert one.delete("/mcp").status_code == 404


def test_what_is_no_request_of_mcp_makes_nothing(server: Serving) -> None:
    before = len(_living(server))
    assert (
        server.client.post(
            "/mcp", content=b"{", headers={"Content-Type": "application/json"}
        ).status_code
        >= 400
    )
    assert server.client.get("/mcp?toools=bash").json()["field"] == "toools"
    assert server.client.post("/mcp?tools=nonsense", json={}).status_code == 400
    with (
        server.with_key(None) as nobody,
        server.with_key(KEY, Origin="https://evil.example") as foreign,
    ):
        assert nobody.post("/mcp", json={}).status_code == 401
        assert foreign.post("/mcp", json={}).json()["code"] == "origin_refused"
    assert len(_living(server)) == before


async def test_a_client_that_comes_back_gets_what_it_missed() -> None:
    kept = kept_events()
    first = await kept.store_event("a", None)
    for number in range(3):
        await kept.store_event("b", {"other": number})
        await kept.store_event("a", {"n": number})
    told: list[Any] = []

    async def take(event: Any) -> None:
        told.append(event.message)

    assert await kept.replay_events_after(first, take) == "a"
    assert told == [{"n": 0}, {"n": 1}, {"n": 2}]
    assert await kept.replay_events_after("no number", take) is None
    for _ in range(EVENTS_KEPT):
        await kept.store_event("b", {})
    assert await kept.replay_events_after(first, take) is None


def test_a_stop_leaves_the_sandboxes_of_clients(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    state = tmp_path_factory.mktemp("stopping")
    with serving(state) as server:
        call = {
            "name": "Bash",
            "arguments": {"command": "echo hi > x", "description": "t"},
        }
        with server.with_key(KEY) as asking:
            _begin(asking)
            asking.post(
                "/mcp", json={"jsonrpc": "2.0", "method": "notifications/initialized"}
            )
            asking.post(
                "/mcp",
                json={
                    "jsonrpc": "2.0",
                    "id": 2,
                    "method": "tools/call",
                    "params": call,
                },
            )
        (session,) = _living(server)
        assert server.stop() == 0
        server.start()
        assert server.run(session["id"], "cat x")["result"]["stdout"] == "hi\n"
        assert session["metadata"] == {"client": "mcp"}
