"""What the kernel's tables in /proc report of a process."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.sandbox.test_verification import LIMITS

from belljar.engines import kernel_facts
from belljar.engines.kernel_facts import (
    MountFact,
    gather,
    parse_limits,
    parse_mounts,
    parse_status,
)
from belljar.engines.spec import Protections


def test_a_path_is_found_by_device_and_place_in_its_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = "1 0 8:1 / / rw - ext4 x rw\n2 1 8:2 /@home /home rw - btrfs x rw\n3 2 8:1 /data /home/me/data rw - ext4 x rw\n"
    monkeypatch.setattr(kernel_facts, "read", lambda path: table)
    assert kernel_facts.place_of("/srv/a b") == ("8:1", "/srv/a b")
    assert kernel_facts.place_of("/home/me") == ("8:2", "/@home/me")
    assert kernel_facts.place_of("/home/me/data/x") == ("8:1", "/data/x")
    assert kernel_facts.place_of("/home") == ("8:2", "/@home")
    assert kernel_facts.place_of("/homely") == ("8:1", "/homely")


def test_a_process_that_is_gone_has_no_facts() -> None:
    assert gather(2**22 + 1) is None


@pytest.mark.parametrize(
    ("membership", "mounts", "unified"),
    [
        (
            "4:memory:/docker/1\n3:cpu,cpuacct:/docker/1\n2:pids:/docker/1\n",
            {"memory": "m", "cpu": "c", "pids": "p"},
            False,
        ),
        ("0::/docker/1\n", {"": "u"}, True),
    ],
)
def test_both_versions_of_cgroups_are_read(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    membership: str,
    mounts: dict[str, str],
    unified: bool,
) -> None:
    for name in mounts.values():
        (tmp_path / name / "docker/1").mkdir(parents=True)
    first = {"m": {"memory.limit_in_bytes": "1", "memory.memsw.limit_in_bytes": "2"}, "p": {"pids.max": "3"},
             "c": {"cpu.cfs_quota_us": "4", "cpu.cfs_period_us": "5"}}  # fmt: skip
    second = {
        "u": {
            "memory.max": "1",
            "memory.swap.max": "2",
            "pids.max": "3",
            "cpu.max": "4 5",
        }
    }
    for directory, files in (second if unified else first).items():
        for name, text in files.items():
            (tmp_path / directory / "docker/1" / name).write_text(text + "\n")
    monkeypatch.setattr(
        kernel_facts,
        "_cgroup_mounts",
        lambda: {key: str(tmp_path / at) for key, at in mounts.items()},
    )
    values, found_unified = kernel_facts.gather_cgroup(membership)
    assert values == {
        "memory": "1",
        "swap": "2",
        "pids": "3",
        "quota": "4",
        "period": "5",
    }
    assert found_unified == unified


def test_the_kernel_s_tables_are_read_by_their_columns() -> None:
    limits = Path("/proc/self/limits").read_text()
    assert set(LIMITS) <= set(parse_limits(limits))
    assert parse_status("Name:\tbash\nUid:\t1\t2\n") == {"Name": "bash", "Uid": "1\t2"}
    line = "36 35 98:0 /mnt1 /a\\040b rw,noatime master:1 - ext4 /dev/root ro,errors=continue\n"
    assert parse_mounts(line) == {
        "/a b": MountFact("98:0", "/mnt1", True, "ext4", "ro,errors=continue")
    }


def test_limits_are_read_from_the_kernel_s_control_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = Protections(memory=1 << 30, pids=100, cpus=1.0, user="1:1")
    group = {
        "memory": str(1 << 30),
        "pids": "100",
        "quota": "100000",
        "period": "100000",
    }
    monkeypatch.setattr(kernel_facts, "gather_cgroup", lambda _: (group, False))
    assert kernel_facts.limited_by_its_group(told, 1) == told
    group |= {"memory": str(8 << 30), "pids": "max", "quota": "-1"}
    found = kernel_facts.limited_by_its_group(told, 1)
    assert (found.memory, found.pids, found.cpus, found.user) == (
        8 << 30,
        None,
        None,
        "1:1",
    )
