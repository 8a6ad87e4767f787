"""The doctor's checks of the machine."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from belljar.audit import elsewhere
from belljar.doctor import Check, machine_items
from belljar.doctor.machine_items import (
    disk,
    landlock,
    own_files,
    owner_mapping,
    run_directory,
    state_directory,
    trail_places,
)
from belljar.host import Host


def test_a_run_directory_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    check = run_directory(tmp_path / "file" / "run")
    assert not check.ok
    assert "BELLJAR_RUN" in check.fix


def test_a_run_directory_where_nothing_may_be_executed_is_fine_if_the_init_has_another_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    monkeypatch.setattr(
        machine_items, "files_root", lambda root: tmp_path / "elsewhere"
    )
    assert "noexec" in run_directory(run).detail
    monkeypatch.setattr(machine_items, "forbids_execution", lambda directory: True)
    check = run_directory(run)
    assert not check.ok
    assert "BELLJAR_RUN" in check.fix


def test_a_workspace_that_cannot_be_mapped_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object) -> None:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(machine_items.os, "geteuid", lambda: 0)
    monkeypatch.setattr(machine_items, "_try_idmap", refuse)
    check = owner_mapping(tmp_path, ".")
    assert not check.ok
    assert "Invalid argument" in check.detail


def test_an_ordinary_caller_runs_commands_under_his_own_uid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_items.os, "geteuid", lambda: 501)
    assert owner_mapping(tmp_path, ".") == Check(
        "workspace ownership", True, "commands run as you (uid 501)"
    )


def test_a_crash_handler_of_the_host_is_mentioned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        machine_items,
        "first_line",
        lambda path: "|/usr/lib/systemd/systemd-coredump %P",
    )
    assert "systemd-coredump" in machine_items.crash_handler().detail


def test_belljar_s_own_files_inside_the_workspace_are_mentioned(tmp_path: Path) -> None:
    assert own_files(str(tmp_path)).detail == "outside the workspace"
    assert "where commands can change them" in own_files("/").detail


@pytest.mark.parametrize(
    ("version", "remark"),
    [(0, "lsm="), (1, "lsm="), (2, "signals"), (5, "signals"), (7, "")],
)
def test_a_kernel_without_landlock_is_mentioned(
    version: int, remark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_items, "landlock_version", lambda: version)
    check = landlock()
    assert check.ok
    assert remark in check.fix
    assert bool(check.fix) == bool(remark)


def test_the_landlock_version_of_this_kernel_is_read() -> None:
    assert machine_items.landlock_version() >= 0


def test_a_full_disk_is_named_with_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert disk(tmp_path, str(tmp_path)).ok
    monkeypatch.setattr(machine_items, "LOW_DISK", 1 << 60)
    check = disk(tmp_path, str(tmp_path))
    assert not check.ok
    assert str(tmp_path) in check.detail


def test_missing_user_namespaces_are_reported_with_the_setting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(machine_items.os, "geteuid", lambda: 1000)
    monkeypatch.setattr(
        machine_items, "first_line", lambda path: "1" if "apparmor" in path else ""
    )
    assert (
        "apparmor_restrict_unprivileged_userns=0" in machine_items.user_namespaces().fix
    )


def test_the_default_limits_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BELLJAR_PATIENCE", "3")
    detail = machine_items.default_limits().detail
    assert "memory" in detail
    assert "deadlines × 3" in detail


@pytest.mark.skipif(
    os.geteuid() != 0, reason="only root's sandboxes get ids of their own"
)
def test_a_range_of_user_ids_that_cannot_be_used_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert machine_items.user_ids(tmp_path).ok
    monkeypatch.setenv("BELLJAR_UIDS", "0-5")
    check = machine_items.user_ids(tmp_path)
    assert not check.ok
    assert "BELLJAR_UIDS" in check.fix


def test_a_state_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    assert state_directory(Host(state=tmp_path / "state")) == Check(
        "state directory", True, str(tmp_path / "state")
    )
    (tmp_path / "file").touch()
    check = state_directory(Host(state=tmp_path / "file" / "state"))
    assert not check.ok
    assert "no audit trail" in check.detail
    assert "BELLJAR_STATE" in check.fix
    (tmp_path / "open").mkdir(mode=0o777)
    (tmp_path / "open").chmod(0o777)
    assert "only you can enter" in state_directory(Host(state=tmp_path / "open")).detail


@pytest.mark.root
def test_a_state_directory_without_room_is_named(tmp_path: Path) -> None:
    """For real: a small file system that is full, in its own mount namespace."""
    tried = (
        "mount -t tmpfs -o size=64k,mode=700 none . && cd . && exec "
        + sys.executable
        + " -m belljar doctor --json"
    )
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", tried], cwd=tmp_path, capture_output=True, text=True,
        env={**os.environ, "BELLJAR_STATE": str(tmp_path), "DOCKER_HOST": "unix:///nobody.sock"},
    )  # fmt: skip
    found = {check["name"]: check for check in json.loads(done.stdout)}
    assert not found["state directory"]["ok"]
    assert "No space left" in found["state directory"]["detail"]


def test_the_places_of_the_trail_are_asked_and_get_no_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = Path(tempfile.mkdtemp())
    monkeypatch.setattr(elsewhere, "JOURNAL", str(short / "nobody"))
    monkeypatch.setattr(elsewhere, "SYSLOG", str(short / "log"))
    monkeypatch.setenv("BELLJAR_TRAIL", "syslog, journald")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as daemon:
        daemon.bind(str(short / "log"))
        there, away = trail_places(Host(state=tmp_path / "a"))
        daemon.setblocking(False)
        with pytest.raises(BlockingIOError):
            daemon.recv(1)
    shutil.rmtree(short)
    assert (there.ok, away.ok) == (True, True), "nobody requires them"
    assert "journald" in away.detail
    assert away.fix
    monkeypatch.setenv("BELLJAR_AUDIT", "required")
    assert not trail_places(Host(state=tmp_path / "b"))[1].ok
