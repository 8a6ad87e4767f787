"""The program that runs containers: if it is missing, unsuitable or fails, the error is one clear line."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests import runtimes
from tests.engines import contract_run
from tests.engines.oci.conftest import groups, needs_runc
from tests.ordinary_user import account

from belljar.engines.oci import OciEngine, cgroups, runtime
from belljar.engines.oci.runtime import Runtime, Starting
from belljar.errors import EngineError, EngineUnavailable
from belljar.host import Host
from belljar.options import SandboxOptions
from belljar.sandbox import rundir
from belljar.sandbox.launch import launch

pytestmark = needs_runc
CRUN = runtimes.find("crun")
needs_crun = pytest.mark.skipif(CRUN is None, reason=f"needs crun: {runtimes.FETCH}")


def test_a_runtime_that_fails_is_one_clear_line(
    host: Host, engine: OciEngine, workspace: Path
) -> None:
    original = Runtime.begin

    def broken(
        self: Runtime, name: str, bundle: Path, ulimits: Mapping[str, int]
    ) -> Starting:
        document = json.loads((bundle / "config.json").read_text())
        document["process"]["args"] = ["/no/such/program"]
        (bundle / "config.json").write_text(json.dumps(document))
        return original(self, name, bundle, ulimits)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Runtime, "begin", broken)
        with pytest.raises(EngineError, match=r"(?i)no such file") as failed:
            launch(SandboxOptions(str(workspace)), rundir.new_session_id(), host)

    assert "\n" not in str(failed.value)
    assert groups(engine) == set()
    assert engine._boxes.names() == []


def test_without_a_runtime_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(EngineUnavailable, match="install it, or use runc"):
        OciEngine(tmp_path, "no-such-runtime")
    monkeypatch.setattr(runtime.shutil, "which", lambda *_, **__: None)
    with pytest.raises(EngineUnavailable, match="install runc"):
        OciEngine(tmp_path, "runc")


@pytest.mark.parametrize("name", ["kata", "/usr/bin/kata-runtime"])
def test_a_runtime_that_was_never_tested_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(EngineUnavailable, match="never tried"):
        OciEngine(tmp_path, name)


@needs_crun
def test_crun_keeps_the_contract_and_is_root_inside(tmp_path: Path) -> None:
    """Also on hybrid control groups, which crun refuses if it sees them."""
    root_inside = "tests/engines/oci/test_root.py"
    contract_run.passes(
        tmp_path, root_inside, BELLJAR_TEST_ENGINES="oci", BELLJAR_RUNTIME=str(CRUN)
    )


@needs_crun
def test_no_escape_attempt_succeeds_with_crun(tmp_path: Path) -> None:
    """With control groups version 1 it left /sys/fs/cgroup itself writable."""
    attempts = "tests/attacks/test_walls.py::test_an_escape_attempt_is_refused"
    contract_run.passes(
        tmp_path,
        attempts,
        BELLJAR_TEST_ENGINES="oci",
        BELLJAR_ENGINE="oci",
        BELLJAR_RUNTIME=str(CRUN),
    )


@needs_crun
def test_the_cgroup_mounts_hidden_from_crun_stay_visible_to_others(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert CRUN is not None
    monkeypatch.setenv("BELLJAR_RUNTIME", CRUN)
    hidden = OciEngine(workspace.parent, CRUN)._runtime(CRUN).hidden()
    assert hidden == cgroups.unified_beside_version_1()
    assert OciEngine(workspace.parent, "runc")._runtime("runc").hidden() == ()
    made = launch(
        SandboxOptions(str(workspace)), rundir.new_session_id(), Host(engine="oci")
    )
    try:
        assert all((Path(point) / "cgroup.procs").exists() for point in hidden)
    finally:
        made.discard()


def test_crun_is_preferred_where_it_is_installed_and_has_no_profile_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    profiles = tmp_path / "profiles"
    monkeypatch.setattr(runtime, "APPARMOR", str(profiles))
    installed = {"runc", "crun"}
    monkeypatch.setattr(
        runtime, "_program", lambda name: f"/bin/{name}" if name in installed else None
    )
    assert runtime.preferred() == "crun"
    assert OciEngine(tmp_path).runtime == "crun"
    assert OciEngine(tmp_path, "runc").runtime == "runc"
    profiles.write_text("docker-default (enforce)\ncrun (unconfined)\n")
    assert runtime.preferred() == "runc"
    profiles.unlink()
    monkeypatch.setattr(runtime.os, "geteuid", lambda: 1000)
    assert runtime.preferred() == "runc"
    monkeypatch.undo()
    monkeypatch.setattr(runtime, "_program", lambda name: None)
    assert runtime.preferred() == "runc"


@pytest.mark.root
def test_a_user_s_systemd_is_found_where_no_variable_says_so() -> None:
    """After `su`, in cron jobs. runc asks it for the sandbox's scope."""
    with account("bus") as user:
        place = Path(f"/run/user/{user.uid}")
        show = ("-c", "from belljar.engines.oci.runtime import environment as e; print(e())")  # fmt: skip
        assert "XDG_RUNTIME_DIR" not in user.python(*show).stdout
        place.mkdir(parents=True)
        (place / "bus").touch()
        try:
            assert f"'XDG_RUNTIME_DIR': '{place}'" in user.python(*show).stdout
            told = user.python(*show, XDG_RUNTIME_DIR="/elsewhere").stdout
            assert "'XDG_RUNTIME_DIR': '/elsewhere'" in told
        finally:
            shutil.rmtree(place)
