"""Control groups of version 2 and of ordinary users, on fake trees. The contract tests real ones."""

from __future__ import annotations

import os
import secrets
import subprocess
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from belljar.engines import kernel_facts
from belljar.engines.oci import cgroups
from belljar.errors import EngineUnavailable

UID = 1234
SERVICE = f"user.slice/user-{UID}.slice/user@{UID}.service"


@pytest.fixture
def unified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fake machine that has only version 2, mounted here."""
    monkeypatch.setattr(cgroups, "_hierarchies", lambda: (("cgroup2", str(tmp_path)),))
    monkeypatch.setattr(cgroups, "_mounts", lambda: (str(tmp_path),))
    monkeypatch.delenv(cgroups.VARIABLE, raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    return tmp_path


def user_manager(root: Path, controllers: str) -> None:
    (root / SERVICE).mkdir(parents=True)
    (root / SERVICE / "cgroup.controllers").write_text(controllers)
    (root / "run").mkdir()
    (root / "run/bus").touch()


def test_a_user_s_own_systemd_makes_the_groups(unified: Path) -> None:
    user_manager(unified, "cpu memory pids\n")
    place = cgroups.delegated(UID)
    assert place.systemd
    assert place.path("belljar-0123abcd-belljar-bj-000000000001.scope") == (
        "user.slice:belljar-0123abcd-belljar-bj:000000000001"
    )
    assert place.controllers() == {"cpu", "memory", "pids"}
    made = (
        unified / SERVICE / "user.slice/belljar-0123abcd-belljar-bj-000000000001.scope"
    )
    made.mkdir(parents=True)
    (made / "below").mkdir()
    assert place.clear(made.name)
    assert not made.exists()


def test_controllers_that_systemd_keeps_are_named_with_the_setting(
    unified: Path,
) -> None:
    user_manager(unified, "memory pids\n")
    with pytest.raises(
        EngineUnavailable, match=f"does not give you cpu: .*setup-user {UID}"
    ):
        cgroups.delegated(UID)


def test_without_a_user_systemd_the_error_says_how_to_get_one(unified: Path) -> None:
    with pytest.raises(EngineUnavailable, match=f"belljar setup-user {UID}"):
        cgroups.delegated(UID)


def test_the_group_named_by_the_variable_is_used(
    unified: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (unified / "mine").mkdir()
    monkeypatch.setenv(cgroups.VARIABLE, "mine")
    assert cgroups.delegated(UID) == cgroups.Place("/mine")


def test_swap_is_counted_where_a_group_says_so(unified: Path) -> None:
    assert cgroups.Place().counts_swap() is None
    (unified / "some.slice").mkdir()
    assert cgroups.Place().counts_swap() is False
    (unified / "some.slice/memory.swap.max").touch()
    assert cgroups.Place().counts_swap() is True


def test_limits_of_version_2_are_read_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = tmp_path / "belljar-x"
    group.mkdir()
    for name, text in {
        "memory.max": "67108864", "memory.swap.max": "0", "pids.max": "32", "cpu.max": "50000 100000",
    }.items():  # fmt: skip
        (group / name).write_text(text + "\n")
    monkeypatch.setattr(kernel_facts, "_cgroup_mounts", lambda: {"": str(tmp_path)})
    values, unified = kernel_facts.gather_cgroup("0::/belljar-x\n")
    assert unified
    assert values == {
        "memory": "67108864",
        "swap": "0",
        "pids": "32",
        "quota": "50000",
        "period": "100000",
    }


def test_an_unlimited_group_of_version_2_is_no_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cpu.max").write_text("max 100000\n")
    monkeypatch.setattr(kernel_facts, "_cgroup_mounts", lambda: {"": str(tmp_path)})
    values, _ = kernel_facts.gather_cgroup("0::/\n")
    assert values == {"quota": "max", "period": "100000"}


def test_old_empty_groups_of_lost_states_go_and_all_others_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Directories stand in for control groups: both can be removed only when they are empty."""
    monkeypatch.setattr(cgroups, "_mounts", lambda: (str(tmp_path),))
    names = ["belljar-00000000-belljar-bj-000000000001", "belljar-00000000-belljar-bj-000000000002", "belljar-mine",
             "belljar-00000000-belljar-bj-000000000003", "docker"]  # fmt: skip
    old, busy, foreign, young, docker = (tmp_path / name for name in names)
    for path in (old, busy, foreign, young, docker):
        path.mkdir()
    (busy / "process").touch()
    for path in (old, busy, foreign, docker):
        os.utime(path, (1, 1))

    cgroups.Place().remove_abandoned()

    assert set(tmp_path.iterdir()) == {busy, foreign, young, docker}


def test_easing_a_join_leaves_the_process_in_its_groups() -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        groups = Path(f"/proc/{process.pid}/cgroup").read_text()
        cgroups.ease_joining(process.pid)
        assert Path(f"/proc/{process.pid}/cgroup").read_text() == groups
        assert process.stdin
        process.stdin.close()
        process.wait()
        cgroups.ease_joining(process.pid)  # the process has ended: no error


def test_easing_a_join_writes_to_the_one_group_of_version_2(unified: Path) -> None:
    group = (
        Path("/proc/self/cgroup").read_text().rpartition("0::")[2].strip().lstrip("/")
    )
    (unified / group).mkdir(parents=True, exist_ok=True)
    cgroups.ease_joining(os.getpid())
    assert (unified / group / "cgroup.procs").read_text() == str(os.getpid())


@pytest.mark.root
def test_a_group_is_cleared_with_what_runs_in_it_and_no_other_is_touched() -> None:
    place = cgroups.Place()
    names = [f"belljar-test-{secrets.token_hex(4)}" for _ in range(2)]
    made = [Path(path) for name in names for path in place._paths(name)]
    sleepers = [subprocess.Popen(["sleep", "600"]) for _ in names]
    try:
        for path in made:
            path.mkdir()
            with suppress(
                OSError
            ):  # a cpuset group accepts no process before it has processors
                (path / "cgroup.procs").write_text(
                    str(sleepers[names.index(path.name)].pid)
                )
        assert place.processes(names[0]) == {sleepers[0].pid}
        threading.Thread(
            target=sleepers[0].wait
        ).start()  # a group stays busy until its processes are reaped
        assert place.clear(names[0])
        assert [path for path in made if path.exists()] == [
            path for path in made if path.name == names[1]
        ]
        assert sleepers[1].poll() is None
    finally:
        for each in sleepers:
            each.kill()
            each.wait()
        for name in names:
            place.clear(name)
