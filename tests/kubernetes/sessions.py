"""Sessions on a real cluster: what a session offers, as far as the engine's capabilities say."""

# ruff: noqa: ASYNC110  (what is waited for happens in the cluster, which sets no event)

from __future__ import annotations

import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import anyio
import pytest
from anyio import to_thread
from tests.kubernetes.conftest import OPTIONS

from belljar import Allow, Pool, Session
from belljar.doctor import examine
from belljar.engines.capabilities import Capabilities
from belljar.errors import EngineError, ProtectionMissing, UsageError
from belljar.host import Host

LOOK_AROUND = """
ls -d /var/run/secrets 2>&1 | head -1
cat /proc/net/route | wc -l
cat /.belljar-*/init 2>&1 >/dev/null | grep -c 'Permission denied'
touch $(ls -d /.belljar-*)/x 2>&1 | grep -o 'Read-only file system'
env | grep -c -e KUBERNETES -e BELLJAR_TOKEN
kill -9 1; echo still
ls /proc | grep -c '^[0-9]*$'
"""


async def test_what_the_engine_lacks_is_named_as_a_capability(
    host: Host, workspace: Path
) -> None:
    can = (await to_thread.run_sync(host.connect)).capabilities
    lacking = {
        name
        for name, value in vars(Capabilities()).items()
        if value is True and getattr(can, name) is False
    }
    assert lacking == {"workspace", "binds", "overlays", "sees_processes", "sees_groups", "removes_itself",
                       "limits_processes", "gives_user", "pauses"}  # fmt: skip
    with pytest.raises(UsageError, match="--staged"):
        async with Session(workspace, host=host):
            pass
    with pytest.raises(UsageError, match="--root"):
        async with Session(workspace, host=host, root=True, changes="staged"):
            pass


async def test_a_staged_workspace_comes_in_and_its_changes_come_back(
    host: Host, workspace: Path
) -> None:
    (workspace / "kept").write_text("as it was\n")
    (workspace / "d").mkdir()
    (workspace / "d" / "old").write_text("old")
    async with Session(workspace, host=host, **OPTIONS) as box:
        assert (
            await box.run("cat kept; echo new > made; rm d/old; echo more >> kept")
        ).output == "as it was\n"
        assert {(change.path, change.kind) for change in await box.changes()} == {
            ("made", "added"), ("d/old", "deleted"), ("kept", "modified"),
        }  # fmt: skip
        await box.checkpoint("one")
        await box.run("echo wrong > made")
        await box.rollback("one")
        await box.apply()
    assert (workspace / "made").read_text() == "new\n"
    assert (workspace / "kept").read_text() == "as it was\nmore\n"
    assert not (workspace / "d" / "old").exists()


async def test_shells_files_and_ports_work_over_the_bridge(
    host: Host, workspace: Path
) -> None:
    async with Session(workspace, host=host, **OPTIONS) as box:
        shell = await box.start("python3 -u -c 'print(input())'; sleep 600")
        await shell.write(b"heard\n")
        with anyio.fail_after(60):
            while "heard" not in (await shell.read(offset=0)).stdout:
                await anyio.sleep(0.1)
        await shell.kill()
        await box.files.write("/workspace/x/y", b"\0bytes\xff")
        assert await box.files.read("/workspace/x/y") == b"\0bytes\xff"
        server = await box.start("cd /workspace/x && exec python3 -m http.server 8000")
        url = await box.forward(8000)
        with anyio.fail_after(60):
            assert b"\0bytes\xff" in await to_thread.run_sync(_fetch, f"{url}/y")
        await server.kill()


def _fetch(url: str) -> bytes:
    import time
    import urllib.request

    url = url if url.startswith("http") else f"http://{url}"
    for _ in range(200):
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return bytes(answer.read())
        except OSError:
            time.sleep(0.2)
    raise TimeoutError(url)


async def test_output_arrives_whole_and_many_commands_run_at_once(
    host: Host, workspace: Path
) -> None:
    async with Session(workspace, host=host, **OPTIONS) as box:
        script = "import hashlib,os,sys\nd=os.urandom(1<<20)\nh=hashlib.sha256()\nfor _ in range(32):\n h.update(d); "
        script += "sys.stdout.buffer.write(d)\nsys.stderr.write(h.hexdigest())"
        whole = await box.run(
            ["python3", "-c", script], output_limit=64 << 20, timeout=300
        )
        assert hashlib.sha256(whole.stdout_bytes).hexdigest() == whole.stderr
        results = []

        async def one(number: int) -> None:
            results.append((number, (await box.run(["echo", str(number)])).stdout))

        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(one, number)
        assert sorted(results) == [(number, f"{number}\n") for number in range(20)]


async def test_inside_there_is_no_token_no_route_and_no_way_to_the_init(
    host: Host, workspace: Path
) -> None:
    async with Session(workspace, host=host, policy="none", **OPTIONS) as box:
        token, routes, unreadable, readonly, variables, still, processes = (
            await box.run(LOOK_AROUND)
        ).stdout.splitlines()
        assert "No such file" in token
        assert (routes, unreadable, readonly, variables, still) == (
            "1",
            "1",
            "Read-only file system",
            "0",
            "still",
        )
        assert int(processes) < 20
        assert box.sandbox.witnesses["network"] == "init, engine"
        assert box.sandbox.witnesses["pids"] == "init"


class Quiet(BaseHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "8")
        self.end_headers()
        self.wfile.write(b"outside\n")


async def test_the_door_of_a_pod_without_a_network_lets_through_what_is_allowed(
    host: Host, workspace: Path
) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as site:
        threading.Thread(target=site.serve_forever, daemon=True).start()
        port = site.server_port
        allow = Allow(f"127.0.0.1:{port}")
        async with Session(workspace, host=host, network=allow, **OPTIONS) as box:
            ask = (
                "import sys, urllib.request as u; print(u.urlopen(sys.argv[1]).read())"
            )
            url = f"http://127.0.0.1:{port}/"
            proxy = "unset no_proxy NO_PROXY; "
            said = await box.run(f"{proxy}python3 -c '{ask}' {url}")
            assert said.stdout == "b'outside\\n'\n", said.stderr
            refused = await box.run(f"{proxy}python3 -c '{ask}' http://127.0.0.1:1/")
            assert not refused.ok
            verdicts = {(each["port"], each["verdict"]) for each in said.network}
            assert (port, "allowed") in verdicts
            assert all(each["verdict"] != "allowed" for each in refused.network)
        site.shutdown()


async def test_a_session_begins_with_what_a_snapshot_holds(
    host: Host, workspace: Path
) -> None:
    async with Session(workspace, host=host, **OPTIONS) as box:
        await box.run("echo new > made; echo t > /tmp/t; echo h > ~/h")
        await box.shell("build").run("export WHERE=there")
        await box.snapshot("ready")
    async with Session(snapshot="ready", host=host) as twin:
        assert (await twin.run("cat made /tmp/t ~/h")).stdout == "new\nt\nh\n"
        assert (await twin.shell("build").run("echo $WHERE")).stdout == "there\n"
        assert {each.path for each in await twin.changes()} == {"made"}


async def test_a_seccomp_profile_that_no_node_has_stops_the_run(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BELLJAR_KUBERNETES_SECCOMP", "profiles/nobody-has-this.json")
    host = Host(engine="kubernetes", state=tmp_path / "other")
    with pytest.raises(EngineError, match="seccomp"):
        async with Session(workspace, host=host, **OPTIONS):
            pass
    assert await to_thread.run_sync(host.connect().list) == []
    await to_thread.run_sync(host.close)


async def test_pods_that_have_a_network_are_refused_and_it_is_named(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cluster's own CNI enforces no NetworkPolicy: the object is accepted, and does nothing."""
    monkeypatch.setenv("BELLJAR_RUNTIME", "")
    host = Host(engine="kubernetes", state=tmp_path / "other")
    with pytest.raises(ProtectionMissing, match="there are routes"):
        async with Session(workspace, host=host, **OPTIONS):
            pass
    assert await to_thread.run_sync(host.connect().list) == []
    await to_thread.run_sync(host.close)


async def test_a_pool_keeps_pods_ready_and_a_claim_is_used_once(
    host: Host, workspace: Path
) -> None:
    async with Pool(workspace, size=2, host=host, **OPTIONS) as pool:
        with anyio.fail_after(180):
            await pool.ready()
        seen = set()
        for _ in range(3):
            async with pool.session() as box:
                assert (
                    await box.run("cat /tmp/mark 2>/dev/null; touch /tmp/mark; echo ok")
                ).stdout == "ok\n"
                seen.add(box.sandbox.launched.id)
        assert len(seen) == 3
    assert await to_thread.run_sync(host.connect().list) == []


async def test_two_hosts_on_one_namespace_leave_each_other_s_pods_alone(
    host: Host, workspace: Path, tmp_path: Path
) -> None:
    from belljar.sandbox.reaper import reap

    other = Host(engine="kubernetes", state=tmp_path / "other", run=tmp_path / "run")
    async with Session(workspace, host=host, **OPTIONS) as box:
        theirs = await to_thread.run_sync(other.connect)
        assert await to_thread.run_sync(theirs.list) == []
        assert await to_thread.run_sync(reap, theirs, other.run_root) == []
        assert (await box.run("echo mine")).stdout == "mine\n"
    await to_thread.run_sync(other.close)


async def test_an_image_that_no_node_has_is_one_clear_error(
    host: Host, workspace: Path
) -> None:
    with pytest.raises(EngineError, match="cannot get the image"):
        async with Session(
            workspace, host=host, image="registry.invalid/nobody/has:this", **OPTIONS
        ):
            pass
    assert await to_thread.run_sync(host.connect().list) == []


def test_the_doctor_finds_everything_in_order(host: Host) -> None:
    failed = [check for check in examine(host=host) if not check.ok]
    assert failed == []
