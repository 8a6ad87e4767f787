"""The OpenAI Agents SDK on Belljar: its sandbox contract, and agents whose model is a script."""

from __future__ import annotations

import asyncio
import io
import json
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.adapters import examples

examples.needs("agents")

from agents import Agent, Runner, ShellTool
from agents.run import RunConfig
from agents.sandbox import Manifest, SandboxAgent, SandboxRunConfig, errors
from agents.sandbox.entries import (
    Dir,
    File,
    InContainerMountStrategy,
    MountpointMountPattern,
    S3Mount,
)
from agents.sandbox.session.pty_types import PTY_PROCESSES_MAX
from agents.sandbox.snapshot import LocalSnapshotSpec
from agents.sandbox.types import Group, User
from agents.testing import ScriptedModel, assistant_message, function_call
from agents.tool import ShellActionRequest, ShellCallData, ShellCommandRequest

import belljar
from belljar.adapters import boxes, openai_agents
from belljar.adapters.openai_agents import (
    BelljarSandboxClient,
    BelljarSandboxClientOptions,
    BelljarShellExecutor,
)
from belljar.session.background_shell import READ_LIMIT

pytestmark = pytest.mark.engine


@pytest.fixture
async def session() -> AsyncIterator[Any]:
    client = BelljarSandboxClient()
    made = await client.create(
        manifest=Manifest(entries={"notes.txt": File(content=b"hello\n")})
    )
    async with made:
        yield made
    await client.delete(made)


@pytest.mark.quick
async def test_the_example_runs_an_agent_to_its_end() -> None:
    model = ScriptedModel(
        [
            [
                function_call(
                    "exec_command", {"cmd": "echo made > report.txt; ls"}, call_id="c"
                )
            ],
            [assistant_message("report.txt")],
        ]
    )
    names = await examples.run(openai_agents, model=model)
    assert names["result"].final_output == "report.txt"
    (_, second) = model.calls
    assert "report.txt" in str(second.input)
    assert "Process exited with code 0" in str(second.input)


async def test_an_agent_reads_why_its_command_was_denied(tmp_path: Path) -> None:
    file = tmp_path / "rm.txt"
    file.write_text("rm -rf /\n")
    model = ScriptedModel(
        [
            [
                function_call(
                    "exec_command", {"cmd": file.read_text().strip()}, call_id="c"
                )
            ],
            [assistant_message("no")],
        ]
    )
    agent = SandboxAgent(name="a", model=model, instructions="-")
    config = RunConfig(sandbox=SandboxRunConfig(client=BelljarSandboxClient()))
    await Runner.run(agent, "-", run_config=config)
    told = str(model.calls[1].input)
    assert "Process exited with code 126" in told
    assert "belljar: " in told


@pytest.mark.quick
async def test_streams_status_and_bytes_come_back_as_they_are(session: Any) -> None:
    result = await session.exec("printf '\\377\\000'; echo err >&2; exit 7")
    assert (result.stdout, result.stderr, result.exit_code) == (
        b"\xff\x00",
        b"err\n",
        7,
    )
    assert (await session.exec("printf", "%s", "a b", shell=False)).stdout == b"a b"
    assert (await session.exec("pwd", shell=False)).stdout == b"/workspace\n"


async def test_a_timeout_is_the_sdks_error(session: Any) -> None:
    with pytest.raises(errors.ExecTimeoutError) as raised:
        await session.exec("echo begun; sleep 600", timeout=0.5)
    assert "begun" in str(raised.value.context)
    with pytest.raises(errors.ExecTimeoutError):
        await session.exec("true", timeout=0)
    assert (await session.exec("pgrep -f '[s]leep 600'")).exit_code == 1


async def test_long_output_is_whole_or_an_error(
    session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await session.exec("head -c 9000000 /dev/zero")
    assert len(made.stdout) == 9_000_000
    monkeypatch.setattr("belljar.adapters.boxes.MOST_OUTPUT", 1 << 20)
    with pytest.raises(errors.ExecTransportError) as raised:
        await session.exec("cat /dev/zero")
    assert raised.value.context["cause"] == "output_limit"


async def test_what_cannot_start_has_a_shells_status(session: Any) -> None:
    assert (await session.exec("no-such-program", shell=False)).exit_code == 127
    assert (await session.exec("/workspace/notes.txt", shell=False)).exit_code == 126
    denied = await session.exec("rm", "-rf", "/", shell=False)
    assert denied.exit_code == 126
    assert denied.stderr.startswith(b"belljar: ")


async def test_another_user_needs_root_inside(session: Any) -> None:
    with pytest.raises(errors.ExecTransportError) as raised:
        await session.exec("id -un", user="nobody")
    assert isinstance(raised.value.cause, belljar.Unsupported)


@pytest.mark.oci
async def test_with_root_inside_commands_run_as_other_users() -> None:
    client = BelljarSandboxClient(engine="oci")
    async with await client.create(
        options=BelljarSandboxClientOptions(root=True)
    ) as session:
        assert (await session.exec("id -un", user="nobody")).stdout == b"nobody\n"
        assert (await session.exec("id -un")).stdout == b"root\n"


@pytest.mark.oci
async def test_users_and_groups_of_the_manifest_are_made_if_the_policy_lets_them() -> (
    None
):
    manifest = Manifest(
        users=[User(name="alice")],
        groups=[Group(name="team", users=[User(name="bob")])],
    )
    client = BelljarSandboxClient(engine="oci")
    session = await client.create(
        options=BelljarSandboxClientOptions(root=True), manifest=manifest
    )
    with pytest.raises(errors.ExecNonZeroError, match="an account"):
        await session.start()
    assert not await session.running()
    options = BelljarSandboxClientOptions(root=True, policy="none")
    async with await client.create(options=options, manifest=manifest) as session:
        assert (
            await session.exec("id -un; touch mine", user="alice")
        ).stdout == b"alice\n"
        assert b"team" in (await session.exec("id", user=User(name="bob"))).stdout


@pytest.mark.quick
async def test_a_service_far_away_has_the_sandbox(address: str, tmp_path: Path) -> None:
    client = BelljarSandboxClient()
    manifest = Manifest(entries={"notes.txt": File(content=b"hello\n")})
    options = BelljarSandboxClientOptions(host=address)
    session = await client.create(
        options=options,
        manifest=manifest,
        snapshot=LocalSnapshotSpec(base_path=tmp_path),
    )
    async with session:
        assert (
            await session.exec("cat notes.txt; echo more >> notes.txt")
        ).stdout == b"hello\n"
        with pytest.raises(errors.ExecTimeoutError):
            await session.exec("sleep 600", timeout=0.5)
        with pytest.raises(errors.InvalidManifestPathError):
            await session.read(Path("/etc/passwd"))
        typed = await session.pty_exec_start(
            "read name; echo hi $name", tty=True, yield_time_s=0.3
        )
        last = await session.pty_write_stdin(
            session_id=typed.process_id, chars="you\n", yield_time_s=20
        )
        assert b"hi you" in last.output
        assert last.exit_code == 0
        assert (
            await session.pty_exec_start("seq 3", yield_time_s=20)
        ).output == b"1\n2\n3\n"
    async with await client.resume(session.state) as resumed:
        assert (await resumed.read(Path("notes.txt"))).read() == b"hello\nmore\n"


@pytest.mark.quick
async def test_files_are_written_read_and_bounded(session: Any) -> None:
    await session.write(Path("deep/down/data.bin"), io.BytesIO(b"\x00\xff" * 200_000))
    assert (
        await session.read(Path("deep/down/data.bin"))
    ).read() == b"\x00\xff" * 200_000
    assert await session.read_bounded(Path("notes.txt"), max_bytes=3) == b"hel"
    await session.write(Path("/workspace/text.txt"), io.BytesIO(b"text"))
    assert (await session.exec("cat text.txt")).stdout == b"text"


async def test_a_file_that_is_written_again_keeps_its_mode_and_its_links(
    session: Any,
) -> None:
    await session.exec(
        "printf '#!/bin/sh\necho old\n' > run.sh; chmod 755 run.sh; ln -s run.sh link"
    )
    await session.write(Path("link"), io.BytesIO(b"#!/bin/sh\necho new\n"))
    assert (
        await session.exec("./run.sh; readlink link; stat -c %a run.sh")
    ).stdout == b"new\nrun.sh\n755\n"


async def test_missing_files_and_wrong_data_are_the_sdks_errors(session: Any) -> None:
    with pytest.raises(errors.WorkspaceReadNotFoundError):
        await session.read(Path("missing"))
    with pytest.raises(errors.WorkspaceReadNotFoundError):
        await session.read_bounded(Path("missing"), max_bytes=1)
    with pytest.raises(errors.WorkspaceArchiveReadError):
        await session.read(Path("."))
    with pytest.raises(errors.WorkspaceWriteTypeError):
        await session.write(Path("x"), io.StringIO("not bytes"))


async def test_paths_do_not_leave_the_workspace(session: Any) -> None:
    await session.exec("ln -s /etc/passwd out; ln -s notes.txt inside")
    for path in ("../etc/passwd", "/etc/passwd", "out"):
        with pytest.raises(errors.InvalidManifestPathError):
            await session.read(Path(path))
        with pytest.raises(errors.InvalidManifestPathError):
            await session.write(Path(path), io.BytesIO(b"x"))
    assert (await session.read(Path("inside"))).read() == b"hello\n"


async def test_directories_are_listed_made_moved_and_removed(session: Any) -> None:
    await session.mkdir("a/b", parents=True)
    with pytest.raises(errors.ExecNonZeroError):
        await session.mkdir("x/y")
    await session.write(Path("a/f"), io.BytesIO(b"1"))
    await session.mv("a/f", "a/g")
    assert await session.same_file("a/g", "a/../a/g")
    assert {Path(entry.path).name for entry in await session.ls("a")} == {"b", "g"}
    await session.rm("a", recursive=True)
    assert (await session.exec("test -e a")).exit_code == 1
    with pytest.raises(errors.ExecNonZeroError):
        await session.rm("missing")


async def test_a_patch_and_an_archive_are_applied(session: Any) -> None:
    await session.apply_patch(
        {
            "type": "update_file",
            "path": "notes.txt",
            "diff": "@@\n-hello\n+hello, you\n",
        }
    )
    assert (await session.read(Path("notes.txt"))).read() == b"hello, you\n"
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        info = tarfile.TarInfo("inner.txt")
        info.size = 2
        tar.addfile(info, io.BytesIO(b"in"))
    archive.seek(0)
    await session.extract("unpacked/a.tar", archive)
    assert (await session.read(Path("unpacked/inner.txt"))).read() == b"in"


async def test_a_terminal_takes_input_until_its_program_ends(session: Any) -> None:
    first = await session.pty_exec_start(
        'read name; echo "hi $name"; test -t 1; exit $?', tty=True, yield_time_s=0.3
    )
    assert first.process_id is not None
    assert first.exit_code is None
    last = await session.pty_write_stdin(
        session_id=first.process_id, chars="you\n", yield_time_s=20
    )
    assert b"hi you" in last.output
    assert (last.process_id, last.exit_code) == (None, 0)
    with pytest.raises(errors.PtySessionNotFoundError):
        await session.pty_write_stdin(session_id=first.process_id, chars="")


async def test_without_a_terminal_a_command_has_no_input_and_can_be_polled(
    session: Any,
) -> None:
    ended = await session.pty_exec_start(
        "cat; echo both; echo err >&2", yield_time_s=20
    )
    assert (ended.output, ended.exit_code, ended.process_id) == (
        b"both\nerr\n",
        0,
        None,
    )
    going = await session.pty_exec_start("echo one; sleep 600", yield_time_s=0.3)
    with pytest.raises(RuntimeError, match="stdin is not available"):
        await session.pty_write_stdin(session_id=going.process_id, chars="x")
    await session.pty_terminate_all()
    assert (await session.exec("pgrep -f '[s]leep 600'")).exit_code == 1


async def test_a_flood_of_output_does_not_fill_this_machine(
    session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openai_agents, "MOST_AT_ONCE", 100_000)
    flood = await session.pty_exec_start("exec yes", yield_time_s=1)
    assert 100_000 <= len(flood.output) <= 100_000 + 4 * READ_LIMIT
    update = await session.pty_exec_start("yes | head -c 9000000; exit 3")
    whole = len(update.output)
    while update.process_id is not None:
        update = await session.pty_write_stdin(session_id=update.process_id, chars="")
        whole += len(update.output)
    assert update.exit_code == 3
    assert whole < 9_000_000


async def test_of_too_many_programs_the_oldest_ends(session: Any) -> None:
    async def begun() -> Any:
        return await session.pty_exec_start("sleep 600", yield_time_s=0.3)

    await asyncio.gather(*(begun() for _ in range(PTY_PROCESSES_MAX + 2)))
    running = list(session._inner._ptys)
    assert len(running) == PTY_PROCESSES_MAX
    await session.pty_terminate_all()
    with pytest.raises(errors.PtySessionNotFoundError):
        await session.pty_write_stdin(session_id=running[-1], chars="")


async def test_a_lost_sandbox_is_the_sdks_error() -> None:
    client = BelljarSandboxClient()
    session = await client.create()
    await session.start()
    update = await session.pty_exec_start("sleep 600", tty=True, yield_time_s=0.3)
    await session._inner.box.sandbox.destroy()
    with pytest.raises(errors.ExecTransportError):
        await session.pty_write_stdin(session_id=update.process_id, chars="x\n")
    with pytest.raises(errors.ExecTransportError):
        await session.pty_write_stdin(session_id=update.process_id, chars="")
    with pytest.raises(errors.ExecTransportError):
        await session.exec("true")
    assert not await session.running()
    place = Path(session._inner.box.options.workspace)
    assert place.exists()
    await client.delete(session)
    assert not place.exists()


async def test_output_of_the_terminal_is_cut_at_the_wanted_number_of_tokens(
    session: Any,
) -> None:
    update = await session.pty_exec_start(
        "seq 20000", yield_time_s=20, max_output_tokens=50
    )
    assert len(update.output) < 1000
    assert update.original_token_count > 50


async def test_only_configured_ports_are_opened() -> None:
    options = BelljarSandboxClientOptions(image="python", exposed_ports=(8123,))
    async with await BelljarSandboxClient().create(options=options) as session:
        await session.pty_exec_start(
            "python3 -m http.server 8123 --bind 127.0.0.1", yield_time_s=0.3
        )
        endpoint = await session.resolve_exposed_port(8123)
        assert (endpoint.host, endpoint.tls) == ("127.0.0.1", False)
        assert endpoint.port > 0
        with pytest.raises(errors.ExposedPortUnavailableError):
            await session.resolve_exposed_port(9000)


async def test_variables_and_root_of_the_manifest_hold_for_every_command() -> None:
    manifest = Manifest(
        root="/tmp/project",
        environment={"value": {"COLOUR": "green"}},
        entries={"d": Dir()},
    )
    async with await BelljarSandboxClient().create(manifest=manifest) as session:
        assert (
            await session.exec('echo "$PWD $COLOUR"; ls')
        ).stdout == b"/tmp/project green\nd\n"


@pytest.mark.quick
async def test_a_snapshot_brings_the_workspace_back_in_a_new_sandbox(
    tmp_path: Path,
) -> None:
    client = BelljarSandboxClient()
    manifest = Manifest(entries={"notes.txt": File(content=b"first\n")})
    session = await client.create(
        manifest=manifest, snapshot=LocalSnapshotSpec(base_path=tmp_path)
    )
    async with session:
        await session.exec(
            "mkdir -p d; echo more >> notes.txt; ln -s notes.txt d/link; chmod 700 d"
        )
        before = session.state.sandbox_id
    payload = client.serialize_session_state(session.state)
    resumed = await client.resume(client.deserialize_session_state(payload))
    async with resumed:
        assert resumed.state.sandbox_id != before
        assert (
            await resumed.exec("cat notes.txt; stat -c %a d; readlink d/link")
        ).stdout == (b"first\nmore\n700\nnotes.txt\n")


async def test_a_kept_sandbox_is_entered_again_with_its_processes() -> None:
    client = BelljarSandboxClient()
    options = BelljarSandboxClientOptions(keep=True, lease=120)
    session = await client.create(options=options)
    async with session:
        await session.exec("echo kept > /tmp/x")
        assert await session.running()
    assert not await session.running()
    state = client.deserialize_session_state(
        client.serialize_session_state(session.state)
    )
    resumed = await client.resume(state)
    async with resumed:
        assert resumed.state.sandbox_id == session.state.sandbox_id
        assert (await resumed.exec("cat /tmp/x")).stdout == b"kept\n"
    await client.delete(resumed)
    assert session.state.sandbox_id not in {
        kept.id for kept in await belljar.Session.list()
    }


async def test_no_snapshot_is_unpacked_over_a_directory_of_the_host(
    workspace: Path, tmp_path: Path
) -> None:
    client = BelljarSandboxClient()
    options = BelljarSandboxClientOptions(workspace=str(workspace))
    session = await client.create(
        options=options, snapshot=LocalSnapshotSpec(base_path=tmp_path)
    )
    async with session:
        await session.exec("echo old > file")
    (workspace / "file").write_text("newer\n")
    async with await client.resume(session.state) as resumed:
        assert (await resumed.exec("cat file")).stdout == b"newer\n"
    assert (workspace / "file").read_text() == "newer\n"


async def test_a_hostile_archive_is_refused(session: Any) -> None:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("../outside"))
    archive.seek(0)
    with pytest.raises(errors.WorkspaceArchiveWriteError):
        await session.hydrate_workspace(archive)


def test_a_wrong_option_is_named() -> None:
    with pytest.raises(belljar.BelljarError, match="imag"):
        BelljarSandboxClientOptions(imag="python")


def test_options_survive_json() -> None:
    options = BelljarSandboxClientOptions(
        image="python", limits={"memory": "1g"}, exposed_ports=(80,)
    )
    assert BelljarSandboxClientOptions.parse(options.model_dump(mode="json")) == options
    records = BelljarSandboxClientOptions(
        limits=belljar.Limits(memory="1g"), network=belljar.Allow("a.example")
    )
    again = BelljarSandboxClientOptions.parse(json.loads(records.model_dump_json()))
    assert isinstance(again, BelljarSandboxClientOptions)
    assert boxes.options_of(again.sandbox) == boxes.options_of(records.sandbox)


async def test_mounts_of_buckets_are_refused_clearly() -> None:
    strategy = InContainerMountStrategy(pattern=MountpointMountPattern())
    manifest = Manifest(entries={"data": S3Mount(bucket="b", mount_strategy=strategy)})
    session = await BelljarSandboxClient().create(manifest=manifest)
    with pytest.raises(errors.SandboxError):
        await session.start()
    await session.shutdown()


async def test_a_failed_start_leaves_no_sandbox() -> None:
    with pytest.raises(belljar.BelljarError):
        await BelljarSandboxClient().create(
            options=BelljarSandboxClientOptions(image="no-such-image-anywhere")
        )


@pytest.mark.quick
async def test_the_shell_tool_runs_in_the_sandbox() -> None:
    async with belljar.Session(policy="default") as box:
        executor = BelljarShellExecutor(box)
        commands = ["echo out; echo err >&2; exit 3", "rm -rf /", "sleep 600"]
        action = ShellActionRequest(commands, timeout_ms=500, max_output_length=99)
        result = await executor(ShellCommandRequest(None, ShellCallData("c", action)))
        first, denied, late = result.output
        assert (first.stdout, first.stderr, first.exit_code) == ("out\n", "err\n", 3)
        assert denied.exit_code == 126
        assert (late.status, late.exit_code) == ("timeout", None)
        assert Agent(name="a", tools=[ShellTool(executor=executor)]).tools
