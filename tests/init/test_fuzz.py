"""Mutated input for the frame parser and the ring, with sanitizers; and the init itself, built with one."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.init.client import CONTROL, IN_BACKGROUND, KILL, PTY, STDIN, Box
from tests.init.conftest import ROOT

SOURCES = ROOT / "sandbox-images" / "init"
ROUNDS = 50_000


def compiler() -> list[str]:
    """gcc with the address sanitizer if it is installed, else zig, which only has the other sanitizer."""
    if shutil.which("gcc"):
        return ["gcc", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    return [sys.executable, "-m", "ziglang", "cc", "-fsanitize=undefined"]


def test_mutated_frames_and_any_bytes_are_parsed_within_bounds(tmp_path: Path) -> None:
    target = tmp_path / "fuzz"
    sources = [
        ROOT / "tests/init/fuzz_frame.c",
        SOURCES / "frame.c",
        SOURCES / "ring.c",
    ]
    subprocess.run(
        [
            *compiler(),
            "-g",
            "-O1",
            "-DSTANDALONE",
            f"-I{SOURCES}",
            *map(str, sources),
            "-o",
            str(target),
        ],
        check=True,
    )
    subprocess.run([target, str(ROUNDS)], check=True, timeout=60)


@pytest.mark.soak
def test_the_sanitizers_find_no_fault_in_the_init(make_box: Callable[..., Box]) -> None:
    built = subprocess.run(
        [sys.executable, SOURCES / "build.py", "sanitize"],
        check=True,
        capture_output=True,
        text=True,
    )
    init = Path(built.stdout.split(":")[0])
    box = make_box(init=init)
    link = box.connect()
    for i in range(50):
        assert link.run(f"echo {i}").out == b"%d\n" % i
    for flags in (0, STDIN, PTY, CONTROL, IN_BACKGROUND):
        run = link.shell("sleep 0.01; seq 10000; sleep 60", flags)
        link.until(lambda run=run: run.pid)
        link.tell(KILL, run, 0)
        if not flags & IN_BACKGROUND:
            link.finish(run)
    link.run("sleep 60 & kill -9 $PPID; sleep 60", deadline=2000)
    assert len(link.list()) == 1
    link.ping()
