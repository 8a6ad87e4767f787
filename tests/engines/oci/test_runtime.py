"""The program that runs containers: missing, unsuitable or failing, it is one clear line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.engines.oci.conftest import groups, needs_runc

from belljar.engines.oci import OciEngine
from belljar.engines.oci.runtime import Runtime, Starting
from belljar.errors import EngineError, EngineUnavailable
from belljar.host import Host
from belljar.sandbox import rundir
from belljar.sandbox.launch import Plan, launch

pytestmark = needs_runc


def test_a_runtime_that_fails_is_one_clear_line(host: Host, engine: OciEngine, workspace: Path) -> None:
    original = Runtime.begin

    def broken(self: Runtime, name: str, bundle: Path, ulimits: Mapping[str, int]) -> Starting:
        document = json.loads((bundle / "config.json").read_text())
        document["process"]["args"] = ["/no/such/program"]
        (bundle / "config.json").write_text(json.dumps(document))
        return original(self, name, bundle, ulimits)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Runtime, "begin", broken)
        with pytest.raises(EngineError, match="no such file") as failed:
            launch(Plan(str(workspace)), rundir.new_session_id(), host)

    assert "\n" not in str(failed.value)
    assert groups(engine) == set()
    assert engine._boxes.names() == []


def test_without_a_runtime_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(EngineUnavailable, match="install"):
        OciEngine(tmp_path, "no-such-runtime")


@pytest.mark.parametrize("name", ["kata", "/usr/bin/kata-runtime"])
def test_an_untried_runtime_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(EngineUnavailable, match="never tried"):
        OciEngine(tmp_path, name)
