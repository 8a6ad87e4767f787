"""What a server has, apart from its live sessions."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
from tests.surfaces.http.serving import KEY, serving

from belljar.surfaces.http import server
from belljar.surfaces.http.server import Recently, Server


def test_nothing_of_a_tenant_is_above_its_own_directory(tmp_path: Path) -> None:
    made = Server(tmp_path)
    for tenant in ("default", "other"):
        own = made.tenant_directory(tenant)
        assert own.parent == tmp_path / "tenants"
        workspaces = [made.workspace_of(tenant, "s", name) for name in (None, "shared")]
        assert all(
            own in place.parents for place in (*workspaces, made.trail(tenant).where)
        )


def test_a_tenant_has_one_host_and_one_trail(tmp_path: Path) -> None:
    made = Server(tmp_path)
    assert (
        made.host_of("default") is made.host_of("default") is not made.host_of("other")
    )
    assert made.trail("default") is made.trail("default") is not made.trail("other")


def test_only_the_commands_that_ended_last_stay_in_memory() -> None:
    recently = Recently()
    for number in range(server.RECENT + 1):
        recently.keep(str(number), number)
    assert recently.get("0") is None
    assert recently.get(str(server.RECENT)) == server.RECENT


async def test_one_key_cannot_have_all_connections(tmp_path: Path) -> None:
    """Of a server that may have 512 descriptors."""
    limited = ("prlimit", "--nofile=512:512")
    with serving(tmp_path, wrapper=limited) as running:
        key = running.key("read")["key"]
        command = running.run(running.session(), "sleep 1000", wait=0)
        path = (
            f"{running.url}/v1/sessions/{command['session']}/commands/{command['id']}"
        )
        headers = {"Authorization": f"Bearer {key}", "Prefer": "wait=300"}
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(limits=limits, timeout=None) as client:
            asked = [
                asyncio.create_task(client.get(path, headers=headers))
                for _ in range(512 // 8 + 1)
            ]
            done, _ = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
            (refused,) = (task.result() for task in done)
            assert (refused.status_code, refused.json()["quota"]) == (429, "requests")
            assert refused.headers["retry-after"] == "1"
            own = {"Authorization": f"Bearer {KEY}"}
            assert (await client.get(path, headers=own)).json()["state"] == "running"
            for task in asked:
                task.cancel()
