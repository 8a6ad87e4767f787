"""What every engine must do, over every kind of link: its verbs alone, and Belljar's launch on top of them.

`BELLJAR_TEST_ENGINES=docker,podman` chooses the engines (default: docker if it answers, and oci if runc is there).
A chosen engine that does not answer is a failure. To add an engine, make its folder, and add its name to
`engines.KNOWN` and to this variable.
"""

from __future__ import annotations

import os
import secrets
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

import belljar
from belljar import resources
from belljar.engines.base import Engine, image_store
from belljar.engines.docker.engine import DockerEngine
from belljar.engines.spec import LABEL, Mount, SandboxSpec, has_own_kernel
from belljar.errors import (
    EngineError,
    ImageMissing,
    SandboxLost,
    SessionNotFound,
    Unsupported,
    UsageError,
)
from belljar.host import Host
from belljar.images import catalog
from belljar.layout import WORKSPACE
from belljar.limits import Limits
from belljar.options import Changes, SandboxOptions
from belljar.sandbox import reaper, rundir
from belljar.sandbox.init_file import local_link
from belljar.sandbox.launch import Launch, attach, launch
from belljar.sandbox.rundir import RunDir
from belljar.sandbox.sandbox import Sandbox
from belljar.sandbox.spec import LinkPlan, build_spec
from belljar.workspace.pinned import Workspace

ASKED = os.environ.get("BELLJAR_TEST_ENGINES")
OCI = pytest.param("oci", marks=[pytest.mark.oci, pytest.mark.root])
ENGINES = (
    ASKED.split(",")
    if ASKED
    else [pytest.param("docker", marks=pytest.mark.docker), OCI]
)
# With a runtime that has its own kernel, exceeding a limit ends that kernel and the whole sandbox.
OWN_KERNEL = has_own_kernel(os.environ.get("BELLJAR_RUNTIME", ""))
LOST = "sandbox lost"
LIMITS = Limits(
    memory="64m", cpus=0.5, pids=32, tmp="4m", home="4m", shm="4m", nofile=100
)


FORKING = """
import os, time
children = []
try:
    while len(children) < 200:
        children.append(os.fork())
        if not children[-1]:
            time.sleep(30)
            os._exit(0)
except BlockingIOError:
    pass
print(len(children), flush=True)
for child in children:
    os.kill(child, 9)
"""


@pytest.fixture(params=ENGINES, scope="module")
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["socket", "bridge"], scope="module")
def host(request: pytest.FixtureRequest, kind: str) -> Iterator[Host]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BELLJAR_LINK", request.param)
        patch.setenv("BELLJAR_ENGINE", kind)
        found = Host(engine=kind)  # type: ignore[arg-type]
        if found.connect().capabilities.link == "socket" and request.param == "bridge":
            pytest.skip(f"{kind} has no other link")
        if found.connect().images is not None:
            catalog.ensure(image_store(found.connect()), "base")
        yield found
        found.close()


@pytest.fixture
def engine(host: Host) -> Engine:
    return host.connect()


def way(engine: Engine) -> Changes:
    """How a workspace gets into a sandbox of this engine."""
    return "direct" if engine.capabilities.workspace else "staged"


@pytest.fixture
def made(host: Host, workspace: Path) -> Iterator[Callable[..., Launch]]:
    """Makes launches, and undoes them at the end."""
    launches: list[Launch] = []

    def make(**options: object) -> Launch:
        changes = way(host.connect())
        plan = SandboxOptions(str(workspace), limits=LIMITS, changes=changes, **options)  # type: ignore[arg-type]
        launches.append(launch(plan, rundir.new_session_id(), host))
        return launches[-1]

    yield make
    for each in launches:
        each.discard()


@pytest.fixture
def spec(engine: Engine, workspace: Path) -> Iterator[SandboxSpec]:
    """A spec whose sandbox the host never connects to."""
    image = engine.image(catalog.reference("base"))
    assert image is not None
    run_dir = RunDir.create(rundir.new_session_id())
    if engine.capabilities.link == "socket":
        link = local_link(resources.init_binary(), resources.run_root(), run_dir.link)
    else:
        link = LinkPlan(
            "exec",
            engine.install_init(resources.init_binary(engine.machine), image.ref),
            token="0" * 64,
        )
    with Workspace.open(workspace) as pinned:
        identity = pinned.identity
        yield build_spec(
            image=image, workspace=pinned, limits=LIMITS, link=link, lease_seconds=60,
            labels=rundir.owner_labels(run_dir.path.name, 60, False), user=engine.user(identity.uid, identity.gid),
            runtime=engine.runtime, can=engine.capabilities,
            place=None if engine.capabilities.workspace else Mount("tmpfs", WORKSPACE, read_only=False, size=4 << 20),
        )  # fmt: skip
    run_dir.close()


@pytest.fixture
def name(engine: Engine) -> Iterator[str]:
    chosen = f"belljar-contract-{secrets.token_hex(4)}"
    yield chosen
    engine.destroy(chosen)


def gone(engine: Engine, id: str) -> bool:
    deadline = time.monotonic() + 120
    while engine.state(id) is not None:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def run(host: Host, workspace: Path, *commands: str) -> list[str]:
    """What each command prints, all in one sandbox."""
    return [result.output for result in results(host, workspace, *commands)]


def results(host: Host, workspace: Path, *commands: str) -> list[belljar.Result]:
    async def story() -> list[belljar.Result]:
        changes = way(await anyio.to_thread.run_sync(host.connect))
        options = {
            "limits": LIMITS,
            "policy": "permissive",
            "approve": _yes,
            "changes": changes,
        }
        async with belljar.Session(workspace, host=host, **options) as box:  # type: ignore[arg-type]
            found = [await box.run(command, timeout=600) for command in commands]
            if box.is_staged and box.sandbox.link.lost is None:
                await box.apply()
            return found

    return anyio.run(story)


def output_or_loss(host: Host, workspace: Path, command: str) -> str:
    """The command's output. A sandbox may also be lost, even before it reports that the command started."""
    try:
        [result] = results(host, workspace, command)
    except SandboxLost:
        return LOST
    return LOST if result.cause == "sandbox_lost" else result.output


def _yes(verdict: belljar.Verdict) -> bool:
    return True


# The engine's verbs.


def test_the_engine_reports_its_name_machine_and_version(
    engine: Engine, kind: str
) -> None:
    assert engine.name == kind
    assert engine.machine in ("x86_64", "aarch64")
    assert engine.identity
    assert engine.describe().version


def test_a_container_is_created_once_by_its_name(
    engine: Engine, spec: SandboxSpec, name: str
) -> None:
    first = engine.create(spec, name)
    assert engine.create(spec, name) == first, (
        "a create whose answer was lost may be repeated"
    )
    assert engine.state(first) == "created"


def test_a_started_container_has_a_process_and_may_be_started_again(
    engine: Engine, spec: SandboxSpec, name: str
) -> None:
    id = engine.create(spec, name)
    first = engine.start(id)
    assert first.pid > 0
    assert engine.state(id) == "running"
    assert engine.start(id).pid == first.pid
    assert engine.inspect(id) == first


def test_a_destroyed_container_is_gone_and_may_be_destroyed_again(
    engine: Engine, spec: SandboxSpec, name: str
) -> None:
    id = engine.create(spec, name)
    engine.start(id)
    engine.destroy(id)
    assert gone(engine, id)
    engine.destroy(id)
    engine.destroy("belljar-never-was")
    assert engine.state("belljar-never-was") is None


def test_a_verb_on_an_unknown_container_is_a_clear_error(
    engine: Engine, spec: SandboxSpec
) -> None:
    for verb in (engine.start, engine.inspect):
        with pytest.raises(EngineError) as failed:
            verb("belljar-never-was")
        assert "\n" not in str(failed.value)


def test_the_list_names_each_sandbox_with_its_labels(
    engine: Engine, spec: SandboxSpec, name: str
) -> None:
    id = engine.create(spec, name)
    [listed] = [each for each in engine.list() if each.id == id]
    assert listed.labels[LABEL + "session"] == spec.labels[LABEL + "session"]
    assert listed.labels[LABEL + "spec"] == spec.digest
    assert listed.state == "created"


def test_an_image_is_described_or_missing(engine: Engine) -> None:
    found = engine.image(catalog.reference("base"))
    assert found is not None
    assert found.ref
    # Without a store of its own only the nodes know, once a sandbox is started.
    assert (engine.image("belljar-test/nobody-has:this") is None) == (
        engine.images is not None
    )


def test_an_image_that_is_gone_is_one_clear_error(
    engine: Engine, spec: SandboxSpec, name: str
) -> None:
    from dataclasses import replace

    from belljar.engines.spec import Image

    with pytest.raises(ImageMissing):
        engine.start(
            engine.create(
                replace(spec, image=Image("belljar-test/nobody-has:this")), name
            )
        )


# A sandbox on top of the engine.


def test_a_launch_is_verified_and_a_discarded_one_leaves_nothing(
    engine: Engine, made: Callable[..., Launch]
) -> None:
    it = made()
    assert it.engine is engine
    it.discard()
    assert gone(engine, it.launched.id)
    assert not it.run_dir.exists()


def test_commands_run_unprivileged_in_the_workspace(
    host: Host, engine: Engine, workspace: Path
) -> None:
    who, where, caps = run(
        host,
        workspace,
        "id -u",
        "pwd; echo made > file",
        "grep CapBnd /proc/self/status",
    )
    assert where == "/workspace\n"
    assert int(caps.split()[1], 16) == 0
    assert (workspace / "file").read_text() == "made\n"
    assert (workspace / "file").stat().st_uid == workspace.stat().st_uid
    assert who.strip() != "0" or engine.describe().rootless


def test_the_limits_hold(host: Host, engine: Engine, workspace: Path) -> None:
    scratch, home, files, root, network = run(
        host,
        workspace,
        "head -c 8M /dev/zero > /tmp/fill; stat -c %s /tmp/fill",
        "head -c 8M /dev/zero > ~/fill; stat -c %s ~/fill",
        "ulimit -n",
        "python3 -c 'import os; os.mkdir(\"/opt/x\")' 2>&1 | tail -1",
        "cat /proc/net/route | wc -l; getent hosts localhost | head -1",
    )
    assert f"{4 << 20}\n" in scratch
    assert f"{4 << 20}\n" in home
    assert files == "100\n"
    assert "Read-only file system" in root
    assert network.startswith("1\n")


def test_processes_are_bounded(host: Host, engine: Engine, workspace: Path) -> None:
    (workspace / "forks.py").write_text(
        FORKING
    )  # as a file: the policy would recognise a fork bomb
    said = output_or_loss(host, workspace, "python3 forks.py")
    assert said == LOST if OWN_KERNEL else 10 < int(said) < 32


def test_memory_is_bounded(host: Host, engine: Engine, workspace: Path) -> None:
    said = output_or_loss(
        host,
        workspace,
        "head -c 200M /dev/zero | tail -c 190M | wc -c; echo ${PIPESTATUS[1]}",
    )
    assert said == LOST if OWN_KERNEL else said.split()[-1] == "137"


def test_a_kept_sandbox_is_found_again_by_another_process(
    engine: Engine, host: Host, made: Callable[..., Launch]
) -> None:
    it = made(keep=True, lease=60)
    it.transport.close()
    again = attach(it.id, host)
    assert again.launched.id == it.launched.id
    assert again.options == it.options

    async def story() -> str:
        sandbox = Sandbox(again)
        await sandbox._greet()
        sandbox.link.close()
        return "answered"

    assert anyio.run(story) == "answered"


def test_a_session_of_another_engine_is_neither_attached_nor_reaped(
    engine: Engine,
    host: Host,
    made: Callable[..., Launch],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    it = made(keep=True, lease=60)
    assert it.held is not None
    it.held.release()
    monkeypatch.setattr(engine, "identity", "elsewhere")
    monkeypatch.setattr(engine, "list", list)
    with pytest.raises(SessionNotFound, match="another engine"):
        attach(it.id, host)
    reaper.reap(engine)
    assert it.run_dir.exists()


DYING = """
import os, sys
from belljar.sandbox.launch import launch
from belljar.options import SandboxOptions
from belljar.host import default
from belljar.limits import Limits
default().reaping.acquire()
limits = Limits(memory="64m", tmp="4m", home="4m", shm="4m")
made = launch(SandboxOptions(sys.argv[1], limits=limits, lease=600, changes=sys.argv[3]), sys.argv[2], default())
print(made.launched.id, flush=True)
os.kill(os.getpid(), 9)
"""


def test_what_a_dead_host_left_is_reaped_and_a_living_sibling_s_is_not(
    engine: Engine, made: Callable[..., Launch], workspace: Path
) -> None:
    sibling = made(lease=600)
    id = rundir.new_session_id()
    died = subprocess.run(
        [sys.executable, "-c", DYING, str(workspace), id, way(engine)],
        capture_output=True,
        text=True,
        check=False,
    )
    container = died.stdout.strip()
    assert container, died.stderr
    assert id in reaper.reap(engine)
    assert gone(engine, container)
    assert not (resources.run_root() / id).exists()
    assert engine.state(sibling.launched.id) == "running"


def test_a_sandbox_whose_host_is_gone_ends_with_its_lease(
    engine: Engine, made: Callable[..., Launch]
) -> None:
    it = made(lease=1.0, keep=True)
    it.transport.close()
    assert gone(engine, it.launched.id)


def test_a_paused_sandbox_stands_still_and_goes_on(
    host: Host, engine: Engine, workspace: Path
) -> None:
    async def story() -> None:
        async with belljar.Session(
            workspace, host=host, limits=LIMITS, changes=way(engine)
        ) as box:
            if not engine.capabilities.pauses:
                with pytest.raises(Unsupported, match="cannot pause"):
                    await box.pause()
                return
            ticking = await box.start("while :; do echo tick; sleep 0.01; done")
            await ticking.read(wait=60)
            timed = await box.start("sleep 0.7", timeout=1)
            await box.pause()
            assert (
                await anyio.to_thread.run_sync(engine.state, box.sandbox.launched.id)
                == "paused"
            )
            with pytest.raises(UsageError, match="is paused"):
                await box.run("true")
            with pytest.raises(UsageError, match="is paused"):
                await ticking.poll()
            await anyio.sleep(1.5)  # longer than the other command's deadline
            await box.resume()
            assert (await timed.wait(60)).cause == "exited"
            seen = (await ticking.read(offset=0)).next[0]
            more = await ticking.read(offset=seen, wait=60)
            assert more.stdout.startswith("tick")
            assert (await box.run("echo on")).output == "on\n"
            await box.pause()
            id = box.sandbox.launched.id
        assert await anyio.to_thread.run_sync(gone, engine, id), (
            "a paused sandbox ends with its session"
        )

    anyio.run(story)


def test_a_paused_sandbox_whose_lease_is_over_is_reaped(
    host: Host, engine: Engine, workspace: Path
) -> None:
    async def paused(lease: float) -> tuple[str, str]:
        options = {"keep": True, "changes": way(engine), "host": host}
        async with belljar.Session(workspace, limits=LIMITS, **options) as box:  # type: ignore[arg-type]
            box.extend(lease)
            await box.pause()
            return box.id, box.sandbox.launched.id

    async def resumed(id: str) -> str:
        with pytest.raises(UsageError, match="session resume"):
            await belljar.Session.attach(id, host=host)
        box = await belljar.Session.attach(id, host=host, resume=True)
        answer = (await box.run("echo on")).output
        await box.stop()
        return answer

    if not engine.capabilities.pauses:
        pytest.skip("it cannot pause")
    (over, container), (kept, _) = anyio.run(paused, 0.01), anyio.run(paused, 600.0)
    reaped = reaper.reap(engine, host.run_root)
    assert over in reaped
    assert kept not in reaped
    assert gone(engine, container)
    assert anyio.run(resumed, kept) == "on\n"


class Passage:
    """A socket in front of the engine's. It can be closed while sandboxes run."""

    def __init__(self, real: str, directory: Path) -> None:
        self.path = str(directory / "engine.sock")
        self._real, self._listener = real, socket.socket(socket.AF_UNIX)
        self._listener.bind(self.path)
        self._listener.listen(64)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                caller, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._carry, args=[caller], daemon=True).start()

    def _carry(self, caller: socket.socket) -> None:
        with caller, socket.socket(socket.AF_UNIX) as engine:
            engine.connect(self._real)
            ends = {caller: engine, engine: caller}
            while True:
                for ready in select.select([*ends], [], [])[0]:
                    if not (data := ready.recv(1 << 16)):
                        return
                    ends[ready].sendall(data)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        os.unlink(self.path)


def test_a_running_sandbox_survives_the_loss_of_its_daemon(
    kind: str, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Host(engine=kind).connect()  # type: ignore[arg-type]
    if not isinstance(whole, DockerEngine):
        pytest.skip(f"{kind} has no daemon to lose")
    passage = Passage(str(whole.client.endpoint.path), tmp_path)
    monkeypatch.setenv("DOCKER_HOST", f"unix://{passage.path}")
    host = Host(engine=kind)  # type: ignore[arg-type]

    async def story() -> str:
        async with belljar.Session(workspace, limits=LIMITS, host=host) as box:
            passage.close()
            monkeypatch.setenv(
                "BELLJAR_PATIENCE", "0.3"
            )  # do not wait long: the engine will not come back
            with pytest.raises(EngineError, match="reached"):
                await anyio.to_thread.run_sync(host.connect().list)
            monkeypatch.delenv("BELLJAR_PATIENCE")
            return (await box.run("echo still here", timeout=120)).output

    assert anyio.run(story) == "still here\n"
