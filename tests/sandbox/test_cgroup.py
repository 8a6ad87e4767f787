"""What a process's control group uses, and how much memory its sockets may use."""

import os
from pathlib import Path

import pytest

from belljar.engines import kernel_facts
from belljar.sandbox import cgroup


def test_usage_is_read_of_a_living_process_and_not_of_a_dead_one() -> None:
    assert all(value >= 0 for value in cgroup.usage(os.getpid()).values())
    assert cgroup.oom_kills(os.getpid()) >= 0
    assert cgroup.usage(2**22 + 1) == {}
    assert cgroup.oom_kills(2**22 + 1) == 0


@pytest.mark.parametrize("unified", [False, True])
def test_sockets_are_limited_where_they_are_counted_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unified: bool
) -> None:
    monkeypatch.setattr(
        kernel_facts,
        "_cgroup_mounts",
        lambda: {"memory": str(tmp_path), "": str(tmp_path)},
    )
    monkeypatch.setattr(
        cgroup, "read", lambda path: "0::/group\n" if unified else "4:memory:/group\n"
    )
    (tmp_path / "group").mkdir()
    cgroup.limit_sockets(1, 4096)
    written = {path.name: path.read_text() for path in (tmp_path / "group").iterdir()}
    assert written == ({} if unified else {"memory.kmem.tcp.limit_in_bytes": "4096"})


@pytest.mark.parametrize(
    ("name", "text", "unified"),
    [
        ("cpuacct.usage", "2500000000\n", False),
        ("cpu.stat", "usage_usec 2500000\nuser_usec 1\n", True),
    ],
)
def test_processor_time_is_read_in_both_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str, unified: bool
) -> None:
    group = "0::/group\n" if unified else "4:memory:/group\n5:cpuacct,cpu:/group\n"
    mounts = {"cpuacct": str(tmp_path), "memory": str(tmp_path), "": str(tmp_path)}
    monkeypatch.setattr(kernel_facts, "_cgroup_mounts", lambda: mounts)
    monkeypatch.setattr(cgroup, "read", lambda path: group)
    (tmp_path / "group").mkdir()
    (tmp_path / "group" / name).write_text(text)
    assert cgroup.cpu_time(1) == 2.5
    (tmp_path / "group" / name).write_text("")
    assert cgroup.cpu_time(1) is None
