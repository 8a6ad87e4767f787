"""Faults of a real cluster, made for real: a node killed, its network cut, the API server restarted, a Pod evicted."""

# ruff: noqa: ASYNC110  (what is waited for happens in the cluster, which sets no event)

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread
from tests.kubernetes.conftest import OPTIONS

from belljar import Session
from belljar.errors import BelljarError, SandboxLost
from belljar.host import Host

DEAD_SECONDS, SILENT_SECONDS = 5.0, 30.0
CUT_SECONDS = 30.0
LOAD = "n=0; while :; do for i in {1..200}; do echo $((++n)); done; sleep 0.05; done"
TALKING = "echo before; while sleep 0.2; do echo more; done"


async def lost_after(
    host: Host, workspace: Path, fault: Callable[[], Any]
) -> tuple[float, str]:
    """How long after the fault the command was told lost, and what it had printed."""
    async with Session(workspace, host=host, **OPTIONS) as box:
        begun, seen, result = 0.0, anyio.Event(), None

        async def strike() -> None:
            nonlocal begun
            await seen.wait()
            begun = time.monotonic()
            await to_thread.run_sync(fault)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(strike)
            async with box.stream(TALKING, timeout=300) as events:
                async for event in events:
                    if type(event).__name__ == "Output":
                        seen.set()
                    if type(event).__name__ == "Ended":
                        result = event.result
        assert result is not None
        assert result.cause == "sandbox_lost"
        return time.monotonic() - begun, result.stdout


async def test_a_killed_node_is_told_at_once_with_what_was_printed(
    workspace: Path, tmp_path: Path, do: Callable[..., Any], on: Callable[[str], None]
) -> None:
    on("n2")
    host = Host(engine="kubernetes", state=tmp_path / "state")
    try:
        seconds, printed = await lost_after(host, workspace, lambda: do("kill", "n2"))
    finally:
        await to_thread.run_sync(do, "start", "n2")
        await to_thread.run_sync(host.close)
    print(f"node killed: told after {seconds:.1f} s")
    assert seconds < DEAD_SECONDS
    assert printed.startswith("before\n")


async def test_a_cut_network_is_told_by_silence(
    workspace: Path, tmp_path: Path, do: Callable[..., Any], on: Callable[[str], None]
) -> None:
    on("n1")
    host = Host(engine="kubernetes", state=tmp_path / "state")
    try:
        seconds, printed = await lost_after(host, workspace, lambda: do("cut", "n1"))
    finally:
        await to_thread.run_sync(do, "heal", "n1")
        await to_thread.run_sync(host.close)
    print(f"network cut: told after {seconds:.1f} s")
    assert seconds < SILENT_SECONDS
    assert printed.startswith("before\n")


async def test_an_evicted_pod_is_a_lost_sandbox_and_a_new_one_starts(
    host: Host, workspace: Path, kubectl: Callable[..., str]
) -> None:
    async with Session(workspace, host=host, **OPTIONS) as box:
        eviction = {"apiVersion": "policy/v1beta1", "kind": "Eviction",
                    "metadata": {"name": box.sandbox.launched.id, "namespace": "belljar-test"}}  # fmt: skip
        import json

        path = (
            f"/api/v1/namespaces/belljar-test/pods/{box.sandbox.launched.id}/eviction"
        )
        await to_thread.run_sync(
            lambda: kubectl(
                "create", "--raw", path, "-f", "-", given=json.dumps(eviction)
            )
        )
        with anyio.fail_after(60):
            while (await _cause(box)) != "lost":
                await anyio.sleep(0.2)
    async with Session(workspace, host=host, **OPTIONS) as again:
        assert (await again.run("echo again")).stdout == "again\n"


async def _cause(box: Session) -> str:
    try:
        return "lost" if (await box.run(["true"])).cause == "sandbox_lost" else "fine"
    except SandboxLost:
        return "lost"


async def test_a_restarted_api_server_loses_streams_but_no_sandbox_that_is_kept(
    host: Host, workspace: Path, do: Callable[..., Any]
) -> None:
    """The stream goes through the API server. The Pod, its shells and their output outlive it."""
    async with Session(workspace, host=host, keep=True, lease=600, **OPTIONS) as box:
        shell = await box.start(
            "for i in $(seq 1 600); do echo line $i; sleep 0.1; done"
        )
        id, shell_id = box.id, shell.id
        with anyio.fail_after(60):
            while "line 3\n" not in (await shell.read(offset=0)).stdout:
                await anyio.sleep(0.1)
        await to_thread.run_sync(do, "kill", "apiserver")
        with anyio.fail_after(60):
            while (await _cause(box)) != "lost":
                await anyio.sleep(0.1)
        await to_thread.run_sync(do, "start", "apiserver")
    with anyio.fail_after(120):
        again = await _attached(id, host)
    printed = (await again.shell(shell_id).read(offset=0)).stdout
    assert printed.startswith("line 1\nline 2\nline 3\nline 4\n")
    assert (await again.run("echo still")).stdout == "still\n"
    await again.stop()


async def test_cut_streams_cost_a_kept_session_nothing_that_it_printed(
    host: Host, workspace: Path
) -> None:
    async with Session(workspace, host=host, keep=True, lease=600, **OPTIONS) as box:
        shell = await box.start(
            "for i in $(seq 1 100000); do echo line $i; done; sleep 600", ring=16 << 20
        )
        id, shell_id = box.id, shell.id
        await box.run("true")
        box.sandbox.link.close("cut by the test")
    whole, cursor = "", 0
    for _ in range(5):
        again = await _attached(id, host)
        chunk = await again.shell(shell_id).read(offset=cursor)
        whole, cursor = whole + chunk.stdout, cursor + len(chunk.stdout)
        again.sandbox.link.close("cut by the test")
    assert whole.splitlines()[:3] == ["line 1", "line 2", "line 3"]
    numbers = [int(line.split()[1]) for line in whole.splitlines()[:-1]]
    assert numbers == list(range(1, len(numbers) + 1)), "nothing lost, nothing twice"
    last = await _attached(id, host)
    await last.stop()


async def test_a_stream_that_is_cut_again_and_again_loses_no_line_under_load(
    host: Host, workspace: Path
) -> None:
    """Every 30 s, for BELLJAR_KUBERNETES_CUTS minutes, as balancers and proxies do it: both directions end at once."""
    minutes = float(os.environ.get("BELLJAR_KUBERNETES_CUTS") or 1)
    async with Session(workspace, host=host, keep=True, lease=600, **OPTIONS) as box:
        shell = await box.start(LOAD, ring=16 << 20)
        id, shell_id = box.id, shell.id
    cursor, following, cuts, commands, lost = 0, 1, 0, 0, 0
    begun = time.monotonic()
    while time.monotonic() - begun < minutes * 60:
        again = await _attached(id, host)
        cut_at = time.monotonic() + CUT_SECONDS
        try:
            while time.monotonic() < cut_at:
                chunk = await again.shell(shell_id).read(offset=cursor, wait=1)
                whole, _, _ = chunk.stdout.rpartition("\n")
                if whole:
                    numbers = [int(line) for line in whole.split("\n")]
                    expected = list(range(following, following + len(numbers)))
                    assert numbers == expected, "nothing lost, nothing twice"
                    following += len(numbers)
                    cursor += len(whole) + 1
                said = await again.run("echo beside")
                assert said.stdout == "beside\n"
                commands += 1
            _cut(again)
            cuts += 1
            cause = (await again.run("echo cut")).cause
            assert cause == "sandbox_lost", "a cut stream is never success"
        except SandboxLost:
            lost += 1
    print(f"streams: {minutes:.0f} min, {cuts} cuts, {commands} commands beside, "
          f"{following - 1} lines in order, {lost} told by an error")  # fmt: skip
    assert cuts
    await (await _attached(id, host)).stop()


def _cut(box: Session) -> None:
    """As whatever is between us and the API server would do it."""
    import socket

    with contextlib.suppress(OSError):
        descriptor = os.dup(box.sandbox.link._transport.fileno())
        with socket.socket(fileno=descriptor) as connection:
            connection.shutdown(socket.SHUT_RDWR)


async def _attached(id: str, host: Host) -> Session:
    while True:
        try:
            return await Session.attach(id, host=host)
        except BelljarError:
            await anyio.sleep(0.5)


@pytest.fixture(autouse=True, scope="module")
def _both_nodes_are_ready_at_the_end(kubectl: Callable[..., str]) -> Any:
    yield
    kubectl("wait", "--for=condition=Ready", "node", "--all", "--timeout=120s")
