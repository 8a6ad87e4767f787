"""What a server has, apart from its live sessions."""

from __future__ import annotations

from pathlib import Path

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
