"""A runtime with its own kernel: gVisor's runsc. `python -m tests.runtimes` fetches it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from anyio import to_thread
from tests import runtimes
from tests.engines import contract_run

import belljar
from belljar.engines.oci import OciEngine, callers, own_kernel
from belljar.engines.oci.runtime import containers
from belljar.errors import EngineError, EngineUnavailable
from belljar.host import Host

RUNSC = runtimes.find("runsc")
needs_runsc = pytest.mark.skipif(RUNSC is None, reason=f"needs runsc: {runtimes.FETCH}")
# Searches for the link's token, and tries to take PID 1's socket.
PRYING = """
import glob, socket
for path in glob.glob("/proc/[0-9]*/environ") + ["/proc/1/mem"]:
    try:
        text = open(path, "rb").read(100_000)
    except OSError:
        continue
    found = [word for word in text.split(b"\\0") if word.startswith(b"BELLJAR_TOKEN=") and len(word) > 14]
    print("token" if found else "none")
try:
    socket.socket(socket.AF_UNIX).bind("\\0belljar")
    print("bound")
except OSError as error:
    print(error.strerror)
"""


@pytest.fixture
def gvisor(monkeypatch: pytest.MonkeyPatch) -> Host:
    assert RUNSC is not None
    monkeypatch.setenv("BELLJAR_RUNTIME", RUNSC)
    return Host(engine="oci")


@needs_runsc
@pytest.mark.root
def test_runsc_passes_the_engine_contract(tmp_path: Path) -> None:
    """Two items differ: a command that exceeds the memory or process limit ends its whole sandbox."""
    contract_run.passes(
        tmp_path, "-k", "bridge", BELLJAR_TEST_ENGINES="oci", BELLJAR_RUNTIME=str(RUNSC)
    )


@needs_runsc
@pytest.mark.root
async def test_a_command_finds_no_token_and_cannot_replace_the_init(
    gvisor: Host, workspace: Path
) -> None:
    (workspace / "prying.py").write_text(PRYING)
    async with belljar.Session(workspace, host=gvisor) as box:
        result = await box.run("python3 prying.py; uname -r; ls -A")
    *seen, refused, kernel, listed = result.stdout.splitlines()
    assert set(seen) == {"none"}
    assert refused == "Address already in use"
    assert (kernel, listed) == ("4.4.0", "prying.py")


@needs_runsc
@pytest.mark.root
def test_what_gvisor_cannot_do_is_reported_or_refused(
    gvisor: Host, workspace: Path
) -> None:
    engine = gvisor.connect()
    assert any("Landlock" in each for each in engine.describe().does_without)
    with pytest.raises(EngineError, match="--root needs a user namespace"):
        engine.user(1000, 1000, root=True)


def test_the_init_is_copied_into_the_state_directory_once(tmp_path: Path) -> None:
    binary = tmp_path / "binary"
    binary.write_bytes(b"an init")
    first, second = (
        own_kernel.install_init(binary, tmp_path / "state") for _ in range(2)
    )
    assert first == second
    assert [path.name for path in (tmp_path / "state").iterdir()] == [Path(first).name]
    assert os.stat(f"{first}/init").st_mode & 0o777 == 0o555


def test_a_bridge_process_has_neither_token_nor_user_id_of_the_sandbox(
    tmp_path: Path,
) -> None:
    config = {
        "process": {
            "env": ["BELLJAR_TOKEN=secret"],
            "user": {"uid": 1000, "gid": 1000},
            "args": ["init"],
        }
    }
    written = own_kernel.write_process(
        tmp_path, config, ["/init", "--bridge"]
    ).read_text()
    assert "secret" not in written
    assert "1000" not in written


def test_an_ordinary_user_cannot_use_runsc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(EngineUnavailable, match="needs root"):
        callers.current(own_kernel=True)


@needs_runsc
@pytest.mark.root
async def test_a_session_can_be_attached_without_naming_its_runtime(
    gvisor: Host, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with belljar.Session(workspace, host=gvisor, keep=True, lease=60) as box:
        id = box.id
    monkeypatch.delenv("BELLJAR_RUNTIME")
    plain = Host(engine="oci")
    assert id in [each.id for each in await belljar.Session.list(host=plain)]
    again = await belljar.Session.attach(id, host=plain)
    assert (await again.run("uname -r")).stdout == "4.4.0\n"
    name = again.sandbox.launched.id
    await again.stop()
    engine = plain.connect()
    assert isinstance(engine, OciEngine)
    await to_thread.run_sync(engine.destroy, name)
    assert name not in containers(engine._runtime_states) | set(engine._boxes.names())
    assert not [
        path for path in engine._runtime_states.glob("*/*") if name in path.name
    ]
