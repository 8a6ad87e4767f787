"""Ctrl+C, and signals that end Belljar, while a command runs."""

from __future__ import annotations

import fcntl
import signal
import sys
import termios
from pathlib import Path

import pytest
from tests.surfaces.invoking import start


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
def test_a_signal_that_ends_belljar_ends_the_command(
    workspace: Path, number: int
) -> None:
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
