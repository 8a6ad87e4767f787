"""A sandbox loses what it depends on: its container, its engine, or the disk under the run directory."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from anyio import to_thread
from tests.abuse.conftest import PROMPT, Footprint, nothing_left, warmed_up
from tests.private_engine import PrivateEngine

import belljar
from belljar import engines, host
from belljar.engines.docker.engine import DockerEngine
from belljar.errors import BelljarError, SandboxLost
from belljar.session.result import Output

# When a connection is refused, docker-py leaves its socket to the garbage collector.
pytestmark = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)


# The container.


@pytest.mark.parametrize("deed", ["kill", "pause", "rm -f", "stop -t 1"])
async def test_a_container_removed_during_a_command_is_sandbox_lost(
    base_image: str, workspace: Path, engine: DockerEngine, deed: str
) -> None:
    before = await warmed_up(workspace, engine)
    with anyio.fail_after(PROMPT):
        async with belljar.Session(workspace) as box:
            async with box.stream("echo up; sleep 600") as run:
                async for event in run:
                    if isinstance(event, Output):
                        await anyio.run_process(
                            [engine.name, *deed.split(), box.sandbox.launched.id]
                        )
            assert run.result is not None
            assert (run.result.cause, run.result.stdout) == ("sandbox_lost", "up\n")
            with pytest.raises(SandboxLost):
                await box.run("true")
    await nothing_left(engine, before)


# The engine. It is a private one, so that other tests are not affected.


def image_of(place: Path) -> Path:
    """An image of this machine's bash, sleep and cat. Loading the base image would take longer than the test."""
    tar = place / "image.tar"
    programs = [shutil.which(name) or name for name in ("bash", "sleep", "cat")]
    found = subprocess.run(
        ["ldd", *programs], check=True, capture_output=True, text=True
    ).stdout.split()
    libraries = {
        word for word in found if word.startswith("/") and not word.endswith(":")
    }
    with tarfile.open(tar, "w", dereference=True) as archive:
        for directory in sorted(
            {str(parent) for library in libraries for parent in Path(library).parents}
            | {"/bin"}
        ):
            archive.add(directory, directory, recursive=False)
        for program in programs:
            archive.add(program, f"bin/{Path(program).name}")
        for library in libraries:
            archive.add(library, library.lstrip("/"))
    return tar


@pytest.fixture
def private(monkeypatch: pytest.MonkeyPatch) -> Iterator[PrivateEngine]:
    if os.geteuid() != 0 or not shutil.which("dockerd") or not shutil.which("unshare"):
        pytest.skip("an engine of our own needs root, dockerd and a network namespace")
    interfaces = set(os.listdir("/sys/class/net"))
    place = Path(f"/run/belljar-engine-{os.getpid()}")
    place.mkdir()
    engine = PrivateEngine(place, "--storage-driver=vfs")
    try:
        engine.start()
        engine.docker("import", str(image_of(place)), "small:latest")
        monkeypatch.setenv("DOCKER_HOST", engine.host)
        host.default().forget()
        yield engine
    finally:
        monkeypatch.undo()
        host.default().forget()
        engine.close()
    assert {"docker0"} & interfaces <= set(os.listdir("/sys/class/net")), (
        "the private engine touched the shared one"
    )


async def test_a_command_outlives_the_engine_and_the_engine_may_return(
    private: PrivateEngine, workspace: Path
) -> None:
    """A running command does not need the engine and goes on without it. A call that needs the engine fails in time."""
    box = await belljar.Session(workspace, image="small:latest").open()
    async with box.stream(
        "echo once >> ran; echo up; read -r; echo on", stdin_open=True, timeout=60
    ) as run:
        async for event in run:
            if isinstance(event, Output) and event.data == b"up\n":
                await to_thread.run_sync(private.kill)
                with anyio.fail_after(PROMPT), pytest.raises(BelljarError):
                    await belljar.run("true", workspace, image="small:latest")
                await run.write(b"go\n")
    assert run.result is not None
    assert run.result.stdout == "up\non\n"
    with anyio.fail_after(PROMPT):
        await box.close()
    await to_thread.run_sync(private.start)
    with anyio.fail_after(PROMPT):
        result = await belljar.run(
            "echo again; cat ran", workspace, image="small:latest"
        )
    assert result.stdout == "again\nonce\n"
    listed = await to_thread.run_sync(lambda: engines.connect().list())
    with anyio.fail_after(PROMPT):
        while listed:
            await anyio.sleep(0.2)
            listed = await to_thread.run_sync(lambda: engines.connect().list())


# Belljar's run directory.


@pytest.fixture
def small_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    place = Path(f"/run/belljar-full-{os.getpid()}")
    place.mkdir(mode=0o700)
    subprocess.run(
        [
            "mount",
            "-t",
            "tmpfs",
            "-o",
            "size=1m,nr_inodes=32,mode=0700",
            "tmpfs",
            str(place),
        ],
        check=True,
    )
    monkeypatch.setenv("BELLJAR_RUN", str(place))
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)
        place.rmdir()


@pytest.mark.parametrize("lack", ["bytes", "files", "none of it writable"])
async def test_a_full_or_read_only_state_directory_is_a_clear_error(
    base_image: str, workspace: Path, engine: DockerEngine, small_disk: Path, lack: str
) -> None:
    before = await to_thread.run_sync(Footprint.now, engine)
    if lack == "bytes":
        subprocess.run(
            ["head", "-c", "2M", "/dev/zero"],
            stdout=(small_disk / "fill").open("wb"),
            check=False,
        )
    elif lack == "files":
        _use_up_files(small_disk)
    else:
        subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with anyio.fail_after(PROMPT), pytest.raises(BelljarError, match=str(small_disk)):
        await belljar.run("true", workspace)
    assert not [name for name in os.listdir(small_disk) if "bj-" in name]
    await nothing_left(engine, before)


def _use_up_files(place: Path) -> None:
    for n in range(64):
        try:
            (place / str(n)).touch()
        except OSError:
            return


async def test_a_state_directory_that_fills_up_at_any_moment_leaves_nothing_behind(
    base_image: str, workspace: Path, engine: DockerEngine, small_disk: Path
) -> None:
    """Allow one more file in each round, until a command runs."""
    before = await to_thread.run_sync(Footprint.now, engine)
    _use_up_files(small_disk)
    fillers = sorted(entry for entry in small_disk.iterdir() if entry.name.isdigit())
    outcomes: list[str] = []
    for filler in fillers:
        if "ran\n" in outcomes:
            break
        try:
            outcomes.append(
                (await belljar.run("echo ran", workspace, timeout=PROMPT)).stdout
            )
        except BelljarError as error:
            outcomes.append(type(error).__name__)
        filler.unlink()
    assert "ran\n" in outcomes
    assert outcomes[0] == "BelljarError"
    assert not [name for name in os.listdir(small_disk) if "bj-" in name]
    await nothing_left(engine, before)
