"""A session at a service behaves as one at home: its commands, files and life."""

from __future__ import annotations

import hashlib
import os
import signal
from pathlib import Path

import anyio
import pytest
from tests.surfaces.http.serving import KEY, Serving

import belljar
from belljar.errors import (
    BelljarError,
    CommandNotFound,
    EngineUnavailable,
    PolicyDenied,
    ServiceError,
    Unsupported,
    UsageError,
    WorkingDirectoryError,
)
from belljar.remote.box import RemoteSession
from belljar.remote.host import RemoteHost
from belljar.session.box import Box, BoxShell, Watched
from belljar.session.result import Ended, Output, Started

pytestmark = pytest.mark.engine


def _is_a_box(box: RemoteSession) -> Box:
    """The type checker compares every signature."""
    return box


async def test_stdout_and_stderr_come_back_apart(box: RemoteSession) -> None:
    result = await box.run("echo out; echo err >&2; exit 3", env={"A": "1"}, timeout=60)
    assert (result.cause, result.exit_code, result.stdout, result.stderr) == (
        "exited",
        3,
        "out\n",
        "err\n",
    )
    assert result.verdict is not None
    assert result.verdict.decision == "allow"


async def test_bytes_and_long_output_are_those_of_the_command(
    box: RemoteSession,
) -> None:
    assert (await box.run(r"printf '\xff\x00\xfeok'")).stdout_bytes == b"\xff\x00\xfeok"
    result = await box.run("seq 2000000")
    assert (result.truncated, result.bytes_produced) == (True, 14888896)
    assert result.bytes_kept == box.limits.output
    assert result.stdout.startswith("1\n2\n")
    assert result.stdout.endswith("2000000\n")


@pytest.mark.parametrize("size", [0, 10, 3_000_000])
async def test_stdin_is_what_was_given(box: RemoteSession, size: int) -> None:
    data = os.urandom(size)
    result = await box.run("sha256sum; true", stdin=data)
    assert result.stdout.split()[0] == hashlib.sha256(data).hexdigest()


async def test_stdin_may_be_a_stream(box: RemoteSession) -> None:
    async def pieces() -> object:
        for n in range(3):
            yield f"line {n}\n"

    assert (await box.run(["cat"], stdin=pieces())).stdout == "line 0\nline 1\nline 2\n"  # type: ignore[arg-type]


async def test_a_stream_has_its_events_in_order(box: RemoteSession) -> None:
    async with box.stream("echo one; echo two >&2; cat", stdin_open=True) as events:
        kinds, text = [], ""
        async for event in events:
            kinds.append(type(event))
            if isinstance(event, Output):
                text += event.data.decode()
                if "two" in text and "three" not in text:
                    await events.write("three\n")
                    events.close_input()
    assert kinds[0] is Started
    assert kinds[-1] is Ended
    assert text.split() == ["one", "two", "three"]
    assert events.result is not None
    assert events.result.exit_code == 0


async def test_leaving_a_stream_kills_its_command(box: RemoteSession) -> None:
    async with box.stream("echo $$ > pid; echo begun; sleep 600") as events:
        async for event in events:
            if isinstance(event, Output):
                break
    assert (await box.run("kill -0 $(cat pid)")).exit_code != 0
    assert events.result is not None
    assert events.result.cause == "killed"


async def test_a_cancelled_run_leaves_no_process(box: RemoteSession) -> None:
    with anyio.move_on_after(1.0):
        await box.run("echo $$ > cancelled; sleep 600")
    assert (await box.run("kill -0 $(cat cancelled)")).exit_code != 0


async def test_ctrl_c_interrupts(box: RemoteSession) -> None:
    async with box.stream("echo begun; sleep 600") as events:
        async for event in events:
            if isinstance(event, Output):
                events.interrupt()
    assert events.result is not None
    assert events.result.cause == "interrupted"


async def test_a_callback_that_raises_ends_the_command(box: RemoteSession) -> None:
    def fail(output: Output) -> None:
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        await box.run("echo $$ > raised; echo hi; sleep 600", on_output=fail)
    assert (await box.run("kill -0 $(cat raised)")).exit_code != 0


async def test_errors_are_those_of_a_session_at_home(box: RemoteSession) -> None:
    with pytest.raises(CommandNotFound):
        await box.run(["no-such-program"])
    with pytest.raises(WorkingDirectoryError):
        await box.run("pwd", cwd="missing")
    with pytest.raises(PolicyDenied) as denied:
        await box.run("rm -rf /")
    assert denied.value.verdict.risk == "blocked"
    with pytest.raises(PolicyDenied):
        await box.run("sudo ls")
    with pytest.raises(UsageError, match="timeuot"):
        await box.run("true", timeuot=3)  # type: ignore[call-arg]
    with pytest.raises(FileNotFoundError):
        await box.files.read("missing")
    with pytest.raises(IsADirectoryError):
        await box.files.read(".")


# Background shells.


async def test_a_background_shell_is_read_from_where_it_was(box: RemoteSession) -> None:
    shell = await box.start(
        "echo one; echo oops >&2; read line; echo got $line; echo error: none"
    )
    chunk = await shell.read(wait=30)
    while "one" not in chunk.stdout or "oops" not in (
        chunk.stderr or (await shell.read(offset=0, wait=5)).stderr
    ):
        chunk = await shell.read(offset=0, wait=5)
    await shell.write("yes\n")
    result = await shell.wait(timeout=60)
    assert result.stdout == "one\ngot yes\nerror: none\n"
    assert (await shell.read(filter="error")).stdout == "error: none\n"
    assert (await shell.read(offset=0)).stdout == result.stdout
    assert (await shell.read(offset=(4, 2))).text == "got yes\nerror: none\nps\n"
    assert shell.status == "completed"


async def test_a_killed_shell_says_so_and_is_forgotten(box: RemoteSession) -> None:
    shell = await box.start("sleep 600")
    assert await shell.poll() == "running"
    assert shell.id in [each.id for each in await box.refresh()]
    await shell.kill()
    assert (shell.status, (await shell.result()).cause) == ("killed", "killed")
    assert await box.cleanup() >= 1
    assert shell.id not in [each.id for each in await box.refresh()]


async def test_a_shell_gets_signals(box: RemoteSession) -> None:
    shell = await box.start(
        "trap 'echo hup; exit 4' HUP; echo ready; while :; do sleep 0.05; done"
    )
    assert "ready" in (await shell.read(wait=30)).stdout
    shell.signal(signal.SIGHUP)
    assert "".join([chunk.stdout async for chunk in shell.observe()]) == "ready\nhup\n"
    assert (await shell.wait(timeout=60)).exit_code == 4


async def test_a_command_that_takes_long_goes_on_in_the_background(
    box: RemoteSession,
) -> None:
    quick = await box.yielding("echo done", yield_after=60)
    assert isinstance(quick, belljar.Result)
    shell = await box.yielding("echo begun; sleep 600", yield_after=0.5)
    assert not isinstance(shell, belljar.Result)
    assert await shell.poll() == "running"
    await shell.kill()


async def test_a_persistent_shell_keeps_its_state(box: RemoteSession) -> None:
    await box.persistent.run("mkdir -p deep && cd deep; x=7")
    result = await box.persistent.run("pwd; echo $x")
    assert result.stdout == "/workspace/deep\n7\n"
    assert result.cwd == box.persistent.cwd == "/workspace/deep"
    assert (await box.shell("other").run("pwd")).stdout == "/workspace\n"


async def test_a_persistent_shell_has_a_terminal_and_is_typed_to(
    box: RemoteSession,
) -> None:
    shell = box.shell("typed")
    shell.use_terminal({"TERM": "dumb"})
    shell.resize(30, 90)
    await shell.write(b"to nobody\n")
    asked = anyio.Event()
    printed = bytearray()

    def take(output: belljar.Output) -> None:
        printed.extend(output.data)
        if b"ready" in printed:
            asked.set()

    async with anyio.create_task_group() as tasks:

        async def answer() -> None:
            await asked.wait()
            await shell.write(b"yes\n")

        tasks.start_soon(answer)
        command = "stty -echo; stty size; echo $TERM ready; read line; echo got $line"
        result = await shell.run(command, on_output=take)
    assert result.stdout == "30 90\r\ndumb ready\r\ngot yes\r\n"
    await shell.run("cd /tmp; x=1")
    await shell.restart()
    assert shell.cwd == "/workspace"
    assert (await shell.run('echo "$PWD $x"')).stdout == "/workspace \r\n"


async def test_an_interrupted_call_that_goes_on_is_killed(box: RemoteSession) -> None:
    shell, set_up = box.shell("stubborn"), anyio.Event()
    async with anyio.create_task_group() as tasks:

        async def interrupt() -> None:
            await set_up.wait()
            shell.interrupt()

        tasks.start_soon(interrupt)
        command = "trap '' INT; echo set; while :; do sleep 0.1; done"
        result = await shell.run(command, on_output=lambda _: set_up.set())
    assert result.cause == "interrupted"
    assert (await shell.run("echo on")).stdout == "on\n"


# Its life.


async def test_an_ended_session_is_gone_and_a_kept_one_can_be_entered(
    far: RemoteHost,
) -> None:
    box: RemoteSession = belljar.Session(
        host=far, keep=True, lease=600.0, metadata={"who": "test"}
    )
    async with box:
        await box.run("echo kept > file")
    assert not box.is_open
    assert box.id in [kept.id for kept in await belljar.Session.list(host=far)]
    again: RemoteSession = await belljar.Session.attach(box.id, host=far)
    assert (again.metadata, again.image) == ({"who": "test"}, "base")
    assert await again.files.read("file") == b"kept\n"
    await again.stop()
    assert box.id not in [kept.id for kept in await belljar.Session.list(host=far)]


async def test_a_paused_session_goes_on_where_it_stood(far: RemoteHost) -> None:
    async with belljar.Session(host=far) as box:
        shell = await box.start("while :; do echo tick; sleep 0.05; done")
        assert "tick" in (await shell.read(wait=30)).stdout
        await box.pause()
        assert box.is_paused
        with pytest.raises(belljar.BelljarError, match="paused"):
            await box.files.read("x")
        await box.resume()
        assert not box.is_paused
        await shell.read()
        assert "tick" in (await shell.read(wait=30)).stdout


async def test_a_session_that_cannot_start_says_why(far: RemoteHost) -> None:
    with pytest.raises(belljar.BelljarError, match="no-such-image"):
        await belljar.Session(host=far, image="no-such-image:1").open()


async def test_what_only_this_machine_has_is_refused(
    far: RemoteHost, tmp_path: Path
) -> None:
    for options in (
        {"mounts": {"/data": tmp_path}},
        {"policy": str(tmp_path / "p.toml")},
        {"allow_home": True},
    ):
        with pytest.raises(Unsupported):
            await belljar.Session(host=far, **options).open()
    with pytest.raises(UsageError, match="not open"):
        await belljar.Session(host=far).run("true")


async def test_a_key_without_a_scope_is_told_which(server: Serving) -> None:
    reader = belljar.connect(server.url, key=server.key("read")["key"])
    with pytest.raises(ServiceError, match="run") as refused:
        await belljar.Session(host=reader).open()
    assert (refused.value.problem["code"], refused.value.problem["scope"]) == (
        "forbidden",
        "run",
    )
    with pytest.raises(ServiceError) as unknown:
        await belljar.Session(
            host=belljar.connect(server.url, key="bj_" + "x" * 40)
        ).open()
    assert unknown.value.problem["code"] == "unauthenticated"


async def test_an_address_where_nothing_answers_is_named() -> None:
    with pytest.raises(EngineUnavailable, match=r"127\.0\.0\.1:9"):
        await belljar.Session(
            host=belljar.connect("http://127.0.0.1:9", key=KEY)
        ).open()


async def test_a_session_that_is_open_lives_on_past_its_lease(far: RemoteHost) -> None:
    async with belljar.Session(host=far, lease=3.0) as box:
        await anyio.sleep(6)
        assert (await box.run("echo alive")).stdout == "alive\n"


# Approvals.


async def test_the_approver_here_is_asked(far: RemoteHost, server: Serving) -> None:
    asked: list[str] = []

    async def approve(verdict: belljar.Verdict) -> bool:
        asked.append(verdict.canonical)
        return "yes" in verdict.canonical

    host = belljar.connect(server.url, key=KEY)
    async with belljar.Session(host=host, approve=approve) as box:
        result = await box.run('rm -rf "$NOWHERE"; echo yes')
        assert result.stdout == "yes\n"
        with pytest.raises(PolicyDenied) as denied:
            await box.run('rm -rf "$NOWHERE"; echo no')
        assert denied.value.declined
    assert len(asked) == 2


# Cut connections.


async def test_a_stream_goes_on_after_a_restart_of_the_service(
    server: Serving, far: RemoteHost
) -> None:
    async with belljar.Session(host=far) as box:
        data, killed = bytearray(), False
        async with box.stream(
            "for i in $(seq 2000); do echo line $i; sleep 0.001; done"
        ) as events:
            async for event in events:
                if isinstance(event, Output):
                    data += event.data
                if len(data) > 2000 and not killed:
                    killed = True
                    await anyio.to_thread.run_sync(server.kill)
                    await anyio.to_thread.run_sync(server.start)
    assert killed
    assert bytes(data) == b"".join(b"line %d\n" % n for n in range(1, 2001))


def test_a_remote_shell_and_run_have_the_protocols_names() -> None:
    from belljar.remote.command import RemoteRun
    from belljar.remote.shells import RemoteShell

    for promise, kind in ((BoxShell, RemoteShell), (Watched, RemoteRun)):
        promised = {
            name
            for name in vars(promise)
            if not name.startswith("_") and callable(getattr(promise, name))
        }
        assert promised <= set(dir(kind))


async def test_a_session_begins_with_a_snapshot_at_the_service(far: RemoteHost) -> None:
    async with RemoteHost.session(far, env={"OWN": "1"}) as first:
        await first.run("echo w > file; echo t > /tmp/t")
        made = await first.snapshot("far-away")
        assert (made.name, made.left_out) == ("far-away", ())
        assert (await first.snapshot("far-away", replace=True)).created > made.created
    async with RemoteHost.session(far, snapshot="far-away") as twin:
        assert (await twin.run("cat file /tmp/t; echo $OWN")).stdout == "w\nt\n1\n"
    with pytest.raises(BelljarError, match="no such snapshot"):
        await RemoteHost.session(far, snapshot="nobody").open()


async def test_a_session_may_reach_more_hosts_later(far: RemoteHost) -> None:
    async with RemoteHost.session(far) as box:
        assert box.allow is None
        await box.allow_host("one.test", "two.test:8080")
        await box.allow_host("three.test")
        hosts = ["one.test", "two.test:8080", "three.test"]
        assert box.allow is not None
        assert [*box.allow.hosts] == hosts
        assert (await box.look())["network"]["allow"] == hosts
        assert "proxy" in (await box.run("env")).stdout.lower()
        with pytest.raises(UsageError):
            await box.allow_host("no host")
        assert (await box.look())["network"]["allow"] == hosts


async def test_a_session_reaches_no_more_hosts_than_its_key_may(
    server: Serving,
) -> None:
    for quota, host in (({"network": "none"}, "one.test"), ({}, "a.test=127.0.0.1")):
        key = server.key("run", quota=quota)["key"]
        async with belljar.connect(server.url, key=key).session() as box:
            with pytest.raises(ServiceError) as refused:
                await box.allow_host(host)
            assert refused.value.problem["code"] == "forbidden"
            assert (await box.look())["network"] == "none"
