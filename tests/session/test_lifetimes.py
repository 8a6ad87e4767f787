"""However a host process ends, nothing of its sandboxes stays."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from belljar import Session
from belljar.engines.docker.engine import DockerEngine
from belljar.engines.spec import LABEL
from belljar.errors import SessionNotFound
from belljar.sandbox.reaper import reap
from belljar.sandbox.rundir import run_root

HOST = """
import sys, anyio, belljar
async def main():
    async with belljar.Session(sys.argv[1], lease=float(sys.argv[2]), keep=sys.argv[3] == "keep") as box:
        shell = await box.start("echo shell output; sleep 600")
        await box.run("true")
        print(box.id, shell.id, flush=True)
        if sys.argv[3] == "keep":
            return
        await anyio.sleep(600)
anyio.run(main)
"""


class Host:
    """Another process that has a session."""

    def __init__(self, workspace: Path, lease: float, keep: bool = False) -> None:
        arguments = [sys.executable, "-c", HOST, str(workspace), str(lease), "keep" if keep else "throw"]
        self.process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.session, self.shell = self.process.stdout.readline().split()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.close()

    def close(self) -> None:
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def host(workspace: Path) -> Iterator[Callable[..., Host]]:
    made: list[Host] = []

    def make(lease: float, keep: bool = False) -> Host:
        made.append(Host(workspace, lease, keep))
        return made[-1]

    yield make
    for each in made:
        each.process.kill()
        each.close()


async def containers(engine: DockerEngine, session: str) -> list[str]:
    listed = await to_thread.run_sync(engine.list)
    return [each.state for each in listed if each.labels.get(LABEL + "session") == session]


async def reaped(engine: DockerEngine) -> list[str]:
    return await to_thread.run_sync(reap, engine)


async def gone(engine: DockerEngine, session: str) -> None:
    with anyio.fail_after(120):
        while await containers(engine, session):  # noqa: ASYNC110 - the engine tells nobody
            await anyio.sleep(0.05)


async def test_a_killed_host_leaves_nothing_once_its_lease_ran_out(
    engine: DockerEngine, host: Callable[..., Host]
) -> None:
    killed = host(lease=1.0)
    assert await containers(engine, killed.session) == ["running"]
    killed.kill()
    await gone(engine, killed.session)
    assert killed.session in await reaped(engine)  # its directory
    assert not (run_root() / killed.session).exists()


async def test_the_next_start_reaps_what_a_dead_host_left(engine: DockerEngine, host: Callable[..., Host]) -> None:
    killed = host(lease=600.0)
    killed.kill()
    assert killed.session in await reaped(engine)
    await gone(engine, killed.session)
    assert not (run_root() / killed.session).exists()


async def test_a_living_sibling_is_never_reaped(engine: DockerEngine, host: Callable[..., Host]) -> None:
    sibling = host(lease=600.0)
    assert sibling.session not in await reaped(engine)
    assert await containers(engine, sibling.session) == ["running"]
    assert (run_root() / sibling.session / "link").is_dir()
    sibling.kill()
    await reaped(engine)


async def test_a_kept_session_outlives_its_maker_and_can_be_entered_by_others(
    engine: DockerEngine, host: Callable[..., Host]
) -> None:
    maker = host(lease=60.0, keep=True)
    maker.close()
    assert maker.session not in await reaped(engine)
    box = await Session.attach(maker.session)
    assert (await box.run("echo still here")).stdout == "still here\n"
    shell = box.shell(maker.shell)
    assert shell.command == "echo shell output; sleep 600"
    assert (await shell.read()).stdout == "shell output\n"
    echo = await box.start("cat")
    await echo.write("from one host, ")
    again = await Session.attach(maker.session)
    with anyio.fail_after(120):
        await again.shell(echo.id).write("then another" + "." * 2_000_000)
    again.shell(echo.id).close_input()
    assert (await again.shell(echo.id).wait(60)).bytes_produced == len("from one host, then another") + 2_000_000
    assert (await again.run("pgrep -c sleep")).stdout == "1\n"
    await again.close()
    await box.stop()
    await gone(engine, maker.session)
    with pytest.raises(SessionNotFound):
        await Session.attach(maker.session)


async def test_a_kept_session_ends_with_its_lease(engine: DockerEngine, host: Callable[..., Host]) -> None:
    maker = host(lease=0.5, keep=True)
    maker.close()
    await gone(engine, maker.session)
    assert maker.session in await reaped(engine)


async def test_a_session_that_never_was_is_one_clear_error() -> None:
    with pytest.raises(SessionNotFound, match="session list"):
        await Session.attach("bj-000000000000")


async def test_nothing_stays_mounted_on_the_host(root_workspace: Path) -> None:
    async with Session(root_workspace) as box:
        assert str(box.sandbox.run_dir) not in Path("/proc/self/mounts").read_text()
        await box.run("touch here")
    assert (root_workspace / "here").exists(), "the workspace itself is never cleaned up"


async def test_a_closed_session_leaves_no_descriptor(workspace: Path) -> None:
    async with Session(workspace) as box:
        await box.run("true")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        async with Session(workspace) as box:
            await box.run("seq 300000")
    assert len(os.listdir("/proc/self/fd")) <= before + 1


async def test_a_lease_can_be_extended(engine: DockerEngine, workspace: Path) -> None:
    async with Session(workspace, keep=True, lease=0.5) as box:
        box.extend(60)
        await box.run("true")
        id = box.id
    await anyio.sleep(2)
    again = await Session.attach(id)
    await again.stop()
    await gone(engine, id)
