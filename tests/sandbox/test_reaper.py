"""The reaper removes what dead processes left, and nothing of a living one."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from belljar.engines.docker.engine import DockerEngine
from belljar.engines.spec import LABEL
from belljar.resources import run_root
from belljar.sandbox.reaper import reap
from belljar.sandbox.rundir import RunDir, new_session_id, write_session

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
    """Another process with a session."""

    def __init__(self, workspace: Path, lease: float, keep: bool = False) -> None:
        arguments = [
            sys.executable,
            "-c",
            HOST,
            str(workspace),
            str(lease),
            "keep" if keep else "throw",
        ]
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
    return [
        each.state for each in listed if each.labels.get(LABEL + "session") == session
    ]


async def reaped(engine: DockerEngine) -> list[str]:
    return await to_thread.run_sync(reap, engine)


async def gone(engine: DockerEngine, session: str) -> None:
    with anyio.fail_after(120):
        while await containers(engine, session):  # noqa: ASYNC110 - the engine sends no event
            await anyio.sleep(0.05)


async def test_a_killed_host_leaves_nothing_once_its_lease_ran_out(
    engine: DockerEngine, host: Callable[..., Host]
) -> None:
    killed = host(lease=1.0)
    assert await containers(engine, killed.session) == ["running"]
    killed.kill()
    await gone(engine, killed.session)
    assert killed.session in await reaped(engine)  # its run directory
    assert not (run_root() / killed.session).exists()


async def test_the_next_start_reaps_what_a_dead_host_left(
    engine: DockerEngine, host: Callable[..., Host]
) -> None:
    killed = host(lease=600.0)
    killed.kill()
    assert killed.session in await reaped(engine)
    await gone(engine, killed.session)
    assert not (run_root() / killed.session).exists()


async def test_a_living_sibling_is_never_reaped(
    engine: DockerEngine, host: Callable[..., Host]
) -> None:
    sibling = host(lease=600.0)
    assert sibling.session not in await reaped(engine)
    assert await containers(engine, sibling.session) == ["running"]
    assert (run_root() / sibling.session / "link").is_dir()
    sibling.kill()
    await reaped(engine)


def test_a_session_that_is_kept_while_the_engine_is_asked_is_left_alone(
    tmp_path: Path,
) -> None:
    """The engine's list is older than the session, so its container is not in it."""
    kept = []

    class Engine:
        identity = "here"

        def list(self) -> list[object]:
            made = RunDir.create(new_session_id(), tmp_path)
            write_session(made.path, {"container": "its own", "engine": "here"})
            made.release()
            kept.append(made.path)
            return []

    assert reap(Engine(), tmp_path) == []  # type: ignore[arg-type]
    assert kept[0].is_dir()
