"""`belljar serve --local`: starting, stopping, its unit (serving.py)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.surfaces.invoking import environment
from tests.surfaces.local.conftest import Local

import belljar
from belljar.surfaces.local import serving


def test_a_detached_server_answers_when_the_command_returns_and_stops_when_told(
    local: Local,
) -> None:
    started = local.run("serve", "--local", "--detach")
    assert (started.status, started.stdout, started.stderr) == (0, "", "")
    assert "not by the local server" not in local.run("check", "-v", "ls").stderr
    second = local.run("serve", "--local", "--detach")
    assert second.status == 2
    assert "a local server runs already" in second.stderr
    assert local.run("serve", "--stop").status == 0
    assert not (local.place / "socket").exists()
    again = local.run("serve", "--stop")
    assert (again.status, again.complaint) == (0, "belljar: no local server runs")


def test_a_socket_of_a_dead_server_is_replaced(local: Local) -> None:
    local.start()
    assert local.server is not None
    local.server.kill()
    local.server.wait()
    assert local.server.stderr is not None
    local.server.stderr.close()
    assert local.run("check", "ls").stdout == "allow (low)\n"
    local.start()
    assert "not by the local server" not in local.run("check", "-v", "ls").stderr


@pytest.mark.parametrize("mode", [0o755, 0o710])
def test_a_meeting_place_that_others_can_enter_is_refused(
    local: Local, mode: int
) -> None:
    local.place.mkdir()
    local.place.chmod(mode)
    answer = local.run("serve", "--local", "--detach")
    assert answer.status == 2
    assert "only you can enter" in answer.complaint


def test_a_link_instead_of_the_meeting_place_is_refused(local: Local) -> None:
    (local.root / "elsewhere").mkdir(mode=0o700)
    local.place.symlink_to("elsewhere")
    assert local.run("serve", "--local", "--detach").status != 0
    assert os.listdir(local.root / "elsewhere") == []


def test_the_unit_starts_this_belljar(local: Local) -> None:
    printed = local.run("serve", "--local-unit").stdout
    assert f"ExecStart={sys.executable} -P -m belljar serve --local\n" in printed
    assert printed.splitlines()[0].startswith("# belljar serve --local-unit")
    assert (
        printed.rstrip()
        == serving.UNIT.format(python=sys.executable, path=os.environ["PATH"]).rstrip()
    )


@pytest.mark.parametrize("what", ["--local", "--stop", "--local-unit"])
def test_options_of_the_service_are_refused(local: Local, what: str) -> None:
    for option in (["--print-unit"], ["--listen", "127.0.0.1:0"]):
        answer = local.run("serve", what, *option)
        assert answer.status == 2
        assert f"{option[0]}: not of the local server" in answer.complaint
    assert not local.place.exists()


def test_the_first_thing_on_a_machine_may_be_the_server(local: Local) -> None:
    local.env["BELLJAR_RUN"] = str(local.root / "new")
    assert local.run("serve", "--local", "--detach").status == 0
    try:
        assert "not by the local server" not in local.run("check", "-v", "ls").stderr
    finally:
        assert local.run("serve", "--stop").status == 0


def test_a_belljar_that_is_only_in_the_directory_where_it_is_started_does_not_serve(
    local: Local, tmp_path: Path
) -> None:
    shutil.copytree(
        Path(belljar.__file__).parent,
        tmp_path / "belljar",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    ran = subprocess.run(
        [sys.executable, "-m", "belljar", "serve", "--local", "--detach"],
        cwd=tmp_path,
        env=environment(**local.env),
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 2
    assert f"{tmp_path}/belljar/__init__.py is not what" in ran.stderr


@pytest.mark.engine
def test_with_resident_auto_the_first_run_starts_the_server(
    local: Local, workspace: Path, tmp_path: Path
) -> None:
    settings = tmp_path / "config.toml"
    settings.write_text('resident = "auto"\n')
    settings.chmod(0o600)
    local.env["BELLJAR_CONFIG"] = str(settings)
    try:
        assert local.run("run", "echo hi", cwd=workspace).stdout == "hi\n"
        local.until((local.place / "socket").exists)
        local.warm(workspace)
    finally:
        assert local.run("serve", "--stop").status == 0
