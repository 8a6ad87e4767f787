"""One host per tenant: engines, run directories, trails and pools that know nothing of each other."""

import asyncio
import json
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

import belljar
from belljar import Host, Pool, Session, sync
from belljar import host as hosts
from belljar.audit import reader
from belljar.errors import SessionNotFound, UsageError


def kinds(where: Path) -> list[str]:
    return [json.loads(line)["kind"] for line in (where / "audit.jsonl").read_text().splitlines()]


def test_two_hosts_with_different_engines_and_state_live_in_one_process(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    socket = Host(engine="docker", run=hosts.default().run_root / "one", state=tmp_path / "one")
    bridge = Host(engine="docker", run=hosts.default().run_root / "two", state=tmp_path / "two")
    assert socket.connect().shares_files
    monkeypatch.setenv("BELLJAR_LINK", "bridge")
    assert not bridge.connect().shares_files
    monkeypatch.delenv("BELLJAR_LINK")

    async def both() -> None:
        async with Session(workspace, host=socket) as one, Session(workspace, host=bridge, keep=True) as two:
            assert one.sandbox.engine is not two.sandbox.engine
            assert one.sandbox.run_dir.parent != two.sandbox.run_dir.parent
            assert (await one.run("echo one")).stdout + (await two.run("echo two")).stdout == "one\ntwo\n"
            async with await Session.attach(two.id, host=bridge) as again:
                assert (await again.run("echo again")).stdout == "again\n"
            with pytest.raises(SessionNotFound):
                await Session.attach(two.id, host=socket)
            await two.stop()

    anyio.run(both)
    for host, name in ((socket, "one"), (bridge, "two")):
        host.close()
        assert kinds(tmp_path / name)[0] == "session_open"
        assert reader.verify(tmp_path / name).ok
        assert not [*host.run_root.glob("bj-*")]


async def test_a_pool_serves_sessions_of_its_own_host_only(workspace: Path, tmp_path: Path) -> None:
    other = Host(state=tmp_path / "state")
    async with Pool(workspace, size=1, host=other) as pool:
        with anyio.fail_after(120):
            await pool.ready()
        async with Session(workspace):
            assert pool.waiting == 1
        async with Session(workspace, host=other):
            assert pool.waiting == 0
    await to_thread.run_sync(other.close)


async def test_a_blocking_call_beside_an_open_pool_leaves_it_alone(workspace: Path) -> None:
    """The pool belongs to this event loop; the blocking call has one of its own."""
    async with Pool(workspace, size=1) as pool:
        with anyio.fail_after(120):
            await pool.ready()
        result = await asyncio.to_thread(sync.run, "echo beside", workspace)
        assert (result.stdout, pool.waiting) == ("beside\n", 1)


def test_an_engine_that_nobody_knows_is_refused_before_anything_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="auto, docker, podman"):
        Session(engine="dokcer")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="host"):
        Session(host="docker")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="either"):
        Session(host=Host(engine="docker"), engine="podman")
    monkeypatch.setenv("BELLJAR_ENGINE", "dokcer")
    with pytest.raises(UsageError, match="auto, docker, podman"):
        belljar.Host().engine_name  # noqa: B018
