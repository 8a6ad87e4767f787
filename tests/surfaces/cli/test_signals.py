"""Ctrl-C, and signals that end Belljar."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import sys
import tempfile
import termios
import time
from pathlib import Path

import pytest
from tests.surfaces.invoking import start

from belljar.surfaces.cli.signals import interrupts_delayed


def test_ctrl_c_interrupts_the_command(workspace: Path) -> None:
    command = "trap 'echo caught; exit 9' INT; echo ready; sleep 60 & wait"
    with start("run", "--workspace", workspace, command) as process:
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.read() == b"caught\n"
        assert process.wait(120) in (9, 130)


def test_ctrl_c_twice_kills_it(workspace: Path) -> None:
    command = "trap 'echo caught' INT; echo ready; while :; do sleep 1; done"
    with start("run", "--workspace", workspace, command) as process:
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == b"caught\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == 130


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_ends_belljar_ends_the_command(workspace: Path, number: int) -> None:
    with start("run", "--workspace", workspace, "echo ready; sleep 60") as process:
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(number)
        assert process.wait(120) == 128 + number


def test_a_signal_ends_belljar_while_its_output_is_not_read(workspace: Path) -> None:
    with start("run", "--workspace", workspace, "yes") as process:
        assert process.stdout
        size, held = fcntl.fcntl(process.stdout, fcntl.F_GETPIPE_SZ), bytearray(4)
        while int.from_bytes(held, sys.byteorder) < size:
            fcntl.ioctl(process.stdout, termios.FIONREAD, held)
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 128 + signal.SIGTERM


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_the_launch_leaves_nothing(workspace: Path, tmp_path: Path, number: int) -> None:
    own = Path(tempfile.mkdtemp(prefix="bj", dir=Path(os.environ["BELLJAR_RUN"]).parent))
    with start("run", "--workspace", workspace, "sleep 60", env={"BELLJAR_RUN": str(own)}) as process:
        while not list(own.glob("bj-*")):
            assert process.poll() is None
            time.sleep(0.001)
        process.send_signal(number)
        assert process.wait(120) == 128 + number
    assert not list(own.glob("bj-*"))
    shutil.rmtree(own)


def test_ctrl_c_is_delayed_until_an_import_is_done() -> None:
    """Otherwise the import lock could stay held, and the launching thread would wait for it forever."""
    done = []

    def imports() -> None:
        with interrupts_delayed():
            signal.raise_signal(signal.SIGINT)
            done.append("all")

    with pytest.raises(KeyboardInterrupt):
        imports()
    assert done == ["all"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
