"""The state that the engine keeps of each sandbox, and when it trusts it later."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest
from tests.engines.oci.conftest import groups, needs_runc

from belljar.engines.kernel_facts import start_time
from belljar.engines.oci import OciEngine, boxes, runtime
from belljar.errors import EngineError
from belljar.host import Host
from belljar.options import SandboxOptions
from belljar.sandbox import rundir
from belljar.sandbox.launch import launch

pytestmark = needs_runc


def test_what_an_earlier_boot_left_is_cleared(
    host: Host, engine: OciEngine, workspace: Path
) -> None:
    made = launch(
        SandboxOptions(str(workspace), keep=True), rundir.new_session_id(), host
    )
    made.transport.close()
    name = made.launched.id
    path = engine._boxes.path(name) / "box.json"
    # As after a restart: the state is from an earlier boot, and the process is gone.
    os.kill(made.launched.pid, signal.SIGKILL)
    path.write_text(json.dumps({**json.loads(path.read_text()), "boot": "another"}))
    (engine._boxes.path(name) / "process.json").write_text(
        json.dumps({"pid": os.getpid(), "started": 1})
    )

    assert name not in {each.id for each in engine.list()}

    assert groups(engine) == set()
    assert engine._boxes.names() == []
    made.discard()


def test_what_an_uninstalled_runtime_left_is_cleared(
    host: Host, engine: OciEngine, workspace: Path
) -> None:
    made = launch(
        SandboxOptions(str(workspace), keep=True), rundir.new_session_id(), host
    )
    made.transport.close()
    name = made.launched.id
    path = engine._boxes.path(name) / "box.json"
    os.kill(made.launched.pid, signal.SIGKILL)
    path.write_text(
        json.dumps({**json.loads(path.read_text()), "runtime": "/opt/another/gone"})
    )
    (engine._runtime_states / "gone" / ".cache").mkdir(
        parents=True, exist_ok=True
    )  # crun makes such a directory of its own
    (engine._runtime_states / "gone" / name).mkdir()
    (engine._runtime_states / "gone" / "belljar-of-nobody").mkdir()

    while name in {each.id for each in engine.list()}:
        time.sleep(0.05)

    assert groups(engine) == set()
    assert engine._boxes.names() == []
    assert runtime.containers(engine._runtime_states) == set()
    assert (engine._runtime_states / "gone" / ".cache").is_dir()
    made.discard()


def test_a_running_sandbox_whose_state_file_is_lost_runs_on(
    host: Host, engine: OciEngine, workspace: Path
) -> None:
    """It is removed after it has ended."""
    made = launch(SandboxOptions(str(workspace)), rundir.new_session_id(), host)
    (engine._boxes.path(made.launched.id) / "box.json").unlink()

    engine.list()
    assert engine._caller.groups.processes(engine._group(made.launched.id))

    made.transport.close()
    os.kill(made.launched.pid, signal.SIGKILL)
    while groups(engine):
        engine.list()
        time.sleep(0.05)
    assert engine._boxes.names() == []
    made.discard()


def test_a_process_is_known_by_its_start_not_by_its_number_alone() -> None:
    started = start_time(os.getpid())
    assert started is not None
    assert boxes.Process(os.getpid(), started).alive
    assert not boxes.Process(os.getpid(), started + 1).alive


@pytest.mark.parametrize("name", ["../x", "", "a/b", ".", "x" * 200])
def test_a_container_name_that_is_a_path_is_refused(
    engine: OciEngine, name: str
) -> None:
    with pytest.raises(EngineError):
        engine.state(name)
