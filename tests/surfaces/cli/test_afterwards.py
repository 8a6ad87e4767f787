"""Work that is done after the exit status and the output have been delivered."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.surfaces.invoking import PROGRAM as BELLJAR

from belljar.engines.oci import OciEngine
from belljar.errors import EngineError
from belljar.host import Host
from belljar.images import catalog
from belljar.surfaces.cli import afterwards
from belljar.surfaces.cli.main import main

PROGRAM = """
import os, signal, sys
from belljar.surfaces.cli import afterwards

def work():
    open("go").read()
    bounded = signal.alarm(0) > 0 and signal.getsignal(signal.SIGALRM) == signal.SIG_DFL
    open("done", "w").write(f"{os.getppid() == parent} {os.getsid(0) == os.getpid()} {bounded}")

parent = os.getpid()
os.set_inheritable(int(sys.argv[1]), True)
afterwards.later(work)
print("out", flush=True)
afterwards.leave(7)
"""


def test_deferred_work_runs_after_the_command_line_has_ended(tmp_path: Path) -> None:
    for name in ("go", "done"):
        os.mkfifo(tmp_path / name)
    reader, writer = os.pipe()
    argv = [sys.executable, "-c", PROGRAM, str(writer)]
    ended = subprocess.run(
        argv, cwd=tmp_path, capture_output=True, text=True, pass_fds=[writer]
    )
    os.close(writer)
    assert (ended.returncode, ended.stdout, ended.stderr) == (7, "out\n", "")
    (tmp_path / "go").write_text("")  # waits until the deferred work reads it
    assert os.read(reader, 1) == b""  # it holds no inherited descriptor
    os.close(reader)
    assert (tmp_path / "done").read_text() == "False True True"


def test_deferred_work_runs_last_in_first_out_and_survives_a_failure() -> None:
    done: list[str] = []

    def fails() -> None:
        raise EngineError("no engine")

    for work in (lambda: done.append("first"), fails, lambda: done.append("last")):
        afterwards.later(work)
    afterwards.finish()
    assert done == ["last", "first"]


def test_deferred_work_is_done_before_main_returns_to_a_caller(
    capsys: pytest.CaptureFixture[str],
) -> None:
    done: list[str] = []
    afterwards.later(lambda: done.append("done"))
    assert main(["version"]) == 0
    assert done == ["done"]


@pytest.mark.parametrize(
    "alone",
    ["def fork(): raise BlockingIOError\nos.fork = fork", "os.getpid = lambda: 1"],
)
def test_without_a_fork_deferred_work_is_done_at_once(
    alone: str, tmp_path: Path
) -> None:
    program = (
        f"import os\nfrom belljar.surfaces.cli import afterwards\n{alone}\n"
        "afterwards.later(lambda: open('done', 'w')); afterwards.leave(3)"
    )
    assert subprocess.run([sys.executable, "-c", program], cwd=tmp_path).returncode == 3
    assert (tmp_path / "done").exists()


# A parent process that adopts orphans, and stays until the last of them has ended.
PARENT = """
import ctypes, os, subprocess, sys
ctypes.CDLL(None).prctl(36, 1)
subprocess.run(sys.argv[1:], check=True, stdin=subprocess.DEVNULL)
while True:
    try: os.wait()
    except ChildProcessError: break
"""


@pytest.mark.oci
@pytest.mark.root
def test_an_ended_sandbox_is_removed(workspace: Path) -> None:
    engine = Host(engine="oci").connect()
    assert isinstance(engine, OciEngine)
    catalog.ensure(engine.images, "base")
    run = [
        *BELLJAR,
        "run",
        "--engine",
        "oci",
        "--json",
        "--workspace",
        str(workspace),
        "--",
        "true",
    ]
    done = subprocess.run(
        [sys.executable, "-c", PARENT, *run], capture_output=True, check=True
    )
    id = json.loads(done.stdout)["session"]
    assert f"belljar-{id}" not in engine._boxes.names()
    assert not any(
        map(
            os.path.exists, engine._caller.groups._paths(engine._group(f"belljar-{id}"))
        )
    )
    assert not any(id in held for held in engine._store.held())
