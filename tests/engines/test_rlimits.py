"""Limits set on a tree of processes from outside."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

from belljar.engines.rlimits import impose

TREE = """
import os, sys
ready, tell = os.pipe()
if os.fork() == 0:
    os.write(tell, b"x")
    sys.stdin.read()
    os._exit(0)
os.read(ready, 1)
print(flush=True)
sys.stdin.read()
"""
ASKED = {"core": 0, "nofile": 64, "fsize": 1 << 20, "memlock": 4096}


def test_a_process_and_its_children_are_limited() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", TREE], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as top:
        assert top.stdout is not None
        assert top.stdin is not None
        top.stdout.readline()
        impose(top.pid, ASKED)
        with open(f"/proc/{top.pid}/task/{top.pid}/children") as listing:
            [child] = listing.read().split()
        for pid in (top.pid, int(child)):
            assert resource.prlimit(pid, resource.RLIMIT_NOFILE) == (64, 64)
            assert resource.prlimit(pid, resource.RLIMIT_FSIZE) == (1 << 20, 1 << 20)
        impose(top.pid, {**ASKED, "nofile": 5000})
        assert resource.prlimit(top.pid, resource.RLIMIT_NOFILE) == (64, 64), (
            "never raised"
        )
        top.stdin.close()


def test_a_process_that_is_gone_is_left_alone() -> None:
    impose(2**22 + 1, ASKED)


@pytest.mark.parametrize("name", ASKED)
def test_each_limit_has_its_number(name: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE
    ) as process:
        impose(process.pid, {name: 8192})
        process.communicate(b"\n")
