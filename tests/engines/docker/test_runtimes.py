"""Docker with crun and runsc, on a private daemon. `python -m tests.runtimes` fetches both."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import runtimes
from tests.engines import contract_run
from tests.private_engine import PrivateEngine

import belljar
from belljar.engines import connect
from belljar.engines.base import image_store
from belljar.engines.docker.engine import OWN_KERNEL_ARGUMENTS
from belljar.engines.oci import cgroups
from belljar.errors import EngineError
from belljar.host import Host
from belljar.images import catalog
from belljar.images.store import Store

PROGRAMS = {name: runtimes.find(name) for name in ("crun", "runsc")}
# The parts that depend on the runtime. The rest of the contract is Docker's and is tested with runc.
PART = "launch or commands_run or limits_hold or dead_host"
WHOLE = os.environ.get("BELLJAR_ABUSE") == "full"

pytestmark = [
    pytest.mark.dockerd,
    pytest.mark.skipif(
        None in PROGRAMS.values(), reason=f"needs crun and runsc: {runtimes.FETCH}"
    ),
]


@pytest.fixture(scope="module")
def daemon() -> Iterator[PrivateEngine]:
    place = Path(f"/run/belljar-runtimes-{os.getpid()}")
    place.mkdir()
    known = {
        "crun": {"path": str(_crun(place))},
        "runsc": {"path": PROGRAMS["runsc"], "runtimeArgs": OWN_KERNEL_ARGUMENTS},
        "silent/runsc": {"path": PROGRAMS["runsc"]},
    }
    (place / "daemon.json").write_text(json.dumps({"runtimes": known}))
    engine = PrivateEngine(place, "--config-file", f"{place}/daemon.json")
    try:
        engine.start()
        _load_base(engine)
        yield engine
    finally:
        engine.close()


def _crun(place: Path) -> Path:
    """crun refuses hybrid control groups. Start it where they are not mounted, as the engine oci does."""
    hidden = " ".join(cgroups.unified_beside_version_1())
    script = place / "crun"
    script.write_text(
        f'#!/bin/sh\nexec unshare --mount sh -c \'[ -z "{hidden}" ] || umount {hidden}; exec "$@"\' '
        f'sh {PROGRAMS["crun"]} "$@"\n'
    )
    script.chmod(0o755)
    return script


def _load_base(engine: PrivateEngine) -> None:
    """Load `base` from oci's image store, where its one layer is a directory."""
    reference = catalog.reference("base")
    catalog.ensure(image_store(connect("oci", "")), "base")
    store = Store()
    image = store.find(reference)
    assert image is not None
    [layer] = store.layer_directories(image)
    with subprocess.Popen(
        ["tar", "-C", str(layer), "-c", "."], stdout=subprocess.PIPE
    ) as tar:
        imported = ["docker", "-H", engine.host, "import", "-", reference]
        subprocess.run(
            imported, stdin=tar.stdout, check=True, stdout=subprocess.DEVNULL
        )


@pytest.mark.parametrize(("runtime", "link"), [("crun", "socket"), ("runsc", "bridge")])
def test_crun_and_runsc_pass_the_engine_contract(
    daemon: PrivateEngine, tmp_path: Path, runtime: str, link: str
) -> None:
    chosen = link if WHOLE else f"{link} and ({PART})"
    given = {
        "BELLJAR_TEST_ENGINES": "docker",
        "BELLJAR_RUNTIME": runtime,
        "DOCKER_HOST": daemon.host,
    }
    contract_run.passes(tmp_path, "-k", chosen, **given)


@pytest.fixture
def gvisor(daemon: PrivateEngine, monkeypatch: pytest.MonkeyPatch) -> Host:
    monkeypatch.setenv("DOCKER_HOST", daemon.host)
    monkeypatch.setenv("BELLJAR_RUNTIME", "runsc")
    return Host(engine="docker")


async def test_a_session_can_be_attached_without_naming_its_runtime(
    gvisor: Host, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with belljar.Session(workspace, host=gvisor, keep=True, lease=60) as box:
        id = box.id
        await box.run("echo kept > /tmp/x")
        assert box.usage()["memory"]
    monkeypatch.delenv("BELLJAR_RUNTIME")
    other = Host(engine="docker")
    assert id in [each.id for each in await belljar.Session.list(host=other)]
    again = await belljar.Session.attach(id, host=other)
    assert (await again.run("cat /tmp/x; uname -r")).stdout == "kept\n4.4.0\n"
    await again.stop()


async def test_staged_changes_and_shells_work_on_a_kernel_of_its_own(
    gvisor: Host, workspace: Path
) -> None:
    async with belljar.Session(workspace, host=gvisor, changes="staged") as box:
        shell = await box.start("echo made > file; cat file")
        assert (await shell.wait()).stdout == "made\n"
        assert [change.path for change in await box.changes()] == ["file"]
    assert not (workspace / "file").exists()


def test_what_gvisor_cannot_do_is_reported_or_refused(
    gvisor: Host, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert any("Landlock" in each for each in gvisor.connect().describe().does_without)
    with pytest.raises(EngineError, match="has no network to give"):
        belljar.sync.run("true", workspace, host=gvisor, network="full")
    monkeypatch.setenv("BELLJAR_RUNTIME", "silent/runsc")
    with pytest.raises(
        EngineError,
        match="does not tell silent/runsc to put our seccomp profile in force",
    ):
        belljar.sync.run("true", workspace, host=Host(engine="docker"))
