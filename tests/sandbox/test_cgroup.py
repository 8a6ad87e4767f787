"""What a process's control group uses."""

import os

from belljar.sandbox import cgroup


def test_a_living_process_has_a_usage_and_a_dead_one_none() -> None:
    assert all(value >= 0 for value in cgroup.usage(os.getpid()).values())
    assert cgroup.oom_kills(os.getpid()) >= 0
    assert cgroup.usage(2**22 + 1) == {}
    assert cgroup.oom_kills(2**22 + 1) == 0
