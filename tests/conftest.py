"""Fixtures for all tests. Each run has its own run directory, so that it knows its sandboxes from those of others."""

from __future__ import annotations

import gc
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests import blocking

if TYPE_CHECKING:
    from belljar.engines.docker.engine import DockerEngine

OWNER_UID = 1000
REMOVAL_SECONDS = (
    120  # a container that has ended removes itself, which takes the engine a moment
)
# A socket's path has at most 107 bytes. pytest's temporary directories are too long for that.
_RUN = Path(
    tempfile.mkdtemp(prefix="belljar-test-", dir="/run" if os.geteuid() == 0 else None)
)
_STATE = Path(
    tempfile.mkdtemp(prefix="bj-state-")
)  # not in /run, which has no room for volumes on a small machine


pytest_plugins = ["tests.needs", "tests.order"]


def pytest_configure(config: pytest.Config) -> None:
    if config.option.basetemp is None:
        # pytest's default is shared by all runs, and pytest cannot delete a deep tree that a killed run left there.
        config.option.basetemp = tempfile.mkdtemp(prefix="bj-")
        removal = ["rm", "-rf", "--one-file-system", config.option.basetemp]
        config.add_cleanup(lambda: subprocess.run(removal, check=False))
    # A background job of a script ignores Ctrl+C, and programs that the tests start would inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Some tests open a thousand connections, more than an ordinary user's soft limit allows.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    # Images are shared by all runs: to build them takes minutes.
    home = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    os.environ.setdefault("BELLJAR_IMAGES", f"{home}/belljar/images")
    os.environ["BELLJAR_RUN"] = str(_RUN)
    os.environ["XDG_STATE_HOME"] = str(_STATE)
    os.environ["TESTCONTAINERS_RYUK_DISABLED"] = "true"
    os.environ.pop(
        "PYTHONUNBUFFERED", None
    )  # it would hide that a line was not flushed


def pytest_collection_finish() -> None:
    """Keep the garbage collector from visiting thousands of collected tests again and again."""
    gc.collect()
    gc.freeze()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Print each failure at once, so that a run that is cut short shows it too."""
    if report.failed:
        print(
            f"\n{report.nodeid} failed ({report.when}):\n{report.longreprtext}",
            file=sys.__stderr__,
            flush=True,
        )


def pytest_unconfigure() -> None:
    for directory in (_RUN, _STATE):
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def _environment_is_restored() -> Iterator[None]:
    """Options such as `--engine` set variables, also where a test calls `main` in this process."""
    before = dict(os.environ)
    yield
    if os.environ != before:
        os.environ.clear()
        os.environ.update(before)


@pytest.fixture(autouse=True)
def _no_blocking_on_the_event_loop(request: pytest.FixtureRequest) -> Iterator[None]:
    with (
        blocking.refused() if "anyio_backend" in request.fixturenames else nullcontext()
    ):
        yield


@pytest.fixture(scope="session")
def engine() -> DockerEngine:
    from tests.needs import daemon

    return daemon()


@pytest.fixture(scope="session")
def base_image(engine: DockerEngine) -> str:
    from belljar.images import catalog

    return catalog.ensure(engine.images, "base")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A workspace of an unprivileged user, like a person's checkout."""
    return _workspace_of(tmp_path, OWNER_UID)


@pytest.fixture
def root_workspace(tmp_path: Path) -> Path:
    """A workspace of the user who runs the tests. In CI that is root, which needs an id-mapped mount."""
    return _workspace_of(tmp_path, os.geteuid())


def _workspace_of(parent: Path, uid: int) -> Path:
    path = parent / "workspace"
    path.mkdir(mode=0o755)
    if os.geteuid() == 0:
        os.chown(path, uid, uid)
    return path


@pytest.fixture(scope="session")
def docker_client() -> Iterator[Any]:
    """Looks at containers from outside. The code under test goes through Belljar."""
    import docker

    client = docker.from_env()
    yield client
    client.close()


@dataclass(frozen=True)
class Neighbour:
    address: str
    port: int
    id: str


@pytest.fixture(scope="session")
def neighbour(base_image: str) -> Iterator[Neighbour]:
    """A web server in another container, which no sandbox may reach."""
    from testcontainers.core.container import DockerContainer
    from testcontainers.core.wait_strategies import LogMessageWaitStrategy

    server = DockerContainer(base_image).with_command("python3 -u -m http.server 8000")
    with server.waiting_for(LogMessageWaitStrategy("Serving HTTP")) as running:
        container = running.get_wrapped_container()
        container.reload()
        networks = container.attrs["NetworkSettings"]["Networks"].values()
        yield Neighbour(
            next(network["IPAddress"] for network in networks), 8000, container.id
        )


@pytest.fixture(scope="session", autouse=True)
def _nothing_is_left_behind() -> Iterator[None]:
    yield
    left = [entry.name for entry in _RUN.glob("bj-*")]
    assert not left, f"run directories left behind: {left}"
    deadline = time.monotonic() + REMOVAL_SECONDS
    while (own := _own_containers()) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not own, f"containers left behind: {own}"


def _own_containers() -> list[str]:
    from tests.needs import daemon

    from belljar.errors import EngineError

    try:
        listed = daemon().list()
    except EngineError:
        return []
    ours = f"{os.getpid()}:"
    return [
        each.id
        for each in listed
        if each.labels.get("org.belljar.owner", "").startswith(ours)
    ]
