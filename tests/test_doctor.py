"""The doctor: what the engine says of itself, and what is really tried."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from belljar import doctor
from belljar.doctor import Check, examine, judge
from belljar.engines import docker
from belljar.engines.base import Description
from belljar.engines.docker.engine import DockerEngine
from belljar.errors import EngineError, ProtectionMissing

FINE = Description(
    version="20.10",
    cgroup_version="2",
    cgroup_driver="systemd",
    can_limit={"memory": True, "pids": True, "cpus": True, "swap": True},
    seccomp=True,
    access_control="apparmor",
    storage="overlay2",
)


def without(limit: str) -> dict[str, Any]:
    return {"can_limit": {**FINE.can_limit, limit: False}}


def failing(checks: list[Check]) -> set[str]:
    return {check.name for check in checks if not check.ok}


def test_a_capable_engine_passes() -> None:
    checks = judge(FINE, host_has_swap=True)
    assert failing(checks) == set()
    assert "apparmor" in next(check.detail for check in checks if check.name == "apparmor or selinux")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (without("memory"), "memory limit"),
        (without("pids"), "process limit"),
        (without("cpus"), "cpu limit"),
        (without("swap"), "swap limit"),
        ({"cgroup_driver": "none"}, "cgroups"),
        ({"seccomp": False}, "seccomp"),
        ({"user_remapping": True}, "user remapping"),
        ({"storage": "vfs"}, "storage"),
    ],
)
def test_what_an_engine_cannot_do_is_named_with_its_remedy(change: dict[str, Any], named: str) -> None:
    checks = judge(replace(FINE, **change), host_has_swap=True)
    assert failing(checks) == {named}
    assert all(check.fix for check in checks if not check.ok)


def test_swap_that_cannot_be_limited_matters_only_where_there_is_swap() -> None:
    assert failing(judge(replace(FINE, **without("swap")), host_has_swap=False)) == set()


def test_this_machine_passes_with_a_real_sandbox(engine: DockerEngine, base_image: str, workspace: Path) -> None:
    checks = examine(engine, str(workspace))
    assert failing(checks) == set(), [check for check in checks if not check.ok]
    assert checks[-1].name == "a real sandbox"


def test_an_engine_that_does_not_answer_is_the_first_item(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nobody.sock")
    monkeypatch.setattr(doctor.engines, "connect", docker.find)
    checks = examine(workspace=str(tmp_path))
    assert checks[0].name == "engine"
    assert not checks[0].ok
    assert "Docker" in checks[0].fix


def test_a_run_directory_that_cannot_be_used_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("BELLJAR_RUN", str(tmp_path / "file" / "run"))
    check = doctor._run_directory()
    assert not check.ok
    assert "BELLJAR_RUN" in check.fix


def test_a_workspace_that_cannot_be_mapped_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(doctor.os, "geteuid", lambda: 0)
    monkeypatch.setattr(doctor, "_try_idmap", refuse)
    check = doctor._owner_mapping(".")
    assert not check.ok
    assert "Invalid argument" in check.detail


def test_the_caller_who_is_not_root_runs_commands_as_himself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.os, "geteuid", lambda: 501)
    assert doctor._owner_mapping(".") == Check("workspace ownership", True, "commands run as you (uid 501)")


def test_a_crash_handler_of_the_host_is_mentioned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_first_line", lambda path: "|/usr/lib/systemd/systemd-coredump %P")
    assert "systemd-coredump" in doctor._crash_handler().detail


def test_a_check_can_be_printed_as_json() -> None:
    assert Check("a", True, "b").as_dict() == {"name": "a", "ok": True, "detail": "b", "fix": ""}


def test_an_init_or_an_image_that_is_missing_is_named(engine: DockerEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(machine: str) -> Path:
        raise EngineError("no init for this machine")

    monkeypatch.setattr(doctor.resources, "init_binary", missing)
    monkeypatch.setattr(doctor.catalog, "reference", lambda name: "belljar-test/no-such-image")
    checks = examine(engine)
    assert failing(checks) == {"init", "image base"}
    assert checks[-1].name == "image base", "no sandbox is tried without them"


def test_a_sandbox_that_cannot_be_launched_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(workspace: str) -> None:
        raise ProtectionMissing("not in force: the seccomp filter")

    monkeypatch.setattr(doctor, "_launch_and_destroy", refuse)
    assert doctor._probe().detail == "not in force: the seccomp filter"


def test_our_own_files_in_the_workspace_are_mentioned(tmp_path: Path) -> None:
    assert doctor._own_files(str(tmp_path)).detail == "outside the workspace"
    assert "where commands can change them" in doctor._own_files("/").detail


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's sandboxes get ids of their own")
def test_user_ids_that_cannot_be_had_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor._user_ids().ok
    monkeypatch.setenv("BELLJAR_UIDS", "0-5")
    check = doctor._user_ids()
    assert not check.ok
    assert "BELLJAR_UIDS" in check.fix
