"""A command's streams are passed through byte for byte."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.surfaces.cli.test_run import run
from tests.surfaces.invoking import start


def test_output_is_byte_exact_in_a_pipe(workspace: Path) -> None:
    command = "printf '\\033]0;t\\007\\000\\377\\r'; head -c 3000000 /dev/zero"
    done = subprocess.run(
        [*start_args(workspace), command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
    )
    assert done.stdout == b"\x1b]0;t\x07\x00\xff\r" + bytes(3_000_000)


def start_args(workspace: Path) -> list[str]:
    from tests.surfaces.invoking import PROGRAM

    return [*PROGRAM, "run", "--workspace", str(workspace)]


def test_what_is_piped_in_is_passed_on(workspace: Path) -> None:
    data = b"line\n" * 100_000
    assert run(workspace, "wc -c", stdin=data).stdout.split() == [str(len(data))]
    assert run(workspace, "cat", stdin=b"").stdout == ""


def test_a_plain_file_can_be_stdin(workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"from a file")
    with open(tmp_path / "in") as file:
        done = subprocess.run(
            [*start_args(workspace), "cat"], stdin=file, capture_output=True, check=True
        )
    assert done.stdout == b"from a file"


def test_a_broken_pipe_is_quiet_and_ends_the_command(workspace: Path) -> None:
    with start("run", "--workspace", workspace, "yes") as process:
        assert process.stdout
        assert process.stderr
        assert process.stdout.readline() == b"y\n"
        process.stdout.close()
        assert process.wait(120) == 141
        assert process.stderr.read() == b""


def test_output_arrives_while_the_command_runs(workspace: Path) -> None:
    with start(
        "run",
        "--workspace",
        workspace,
        "echo first; read line; echo $line",
        stdin=subprocess.PIPE,
    ) as process:
        assert process.stdout
        assert process.stdin
        assert process.stdout.readline() == b"first\n"
        process.stdin.write(b"second\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"second\n"


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_command_runs_with_closed_streams(workspace: Path, closed: str) -> None:
    script = f'"$@" {closed}'
    command = [*start_args(workspace), "cat; echo out > made; echo err >&2; exit 5"]
    assert (
        subprocess.run(
            ["sh", "-c", script, "sh", *command], capture_output=True, check=False
        ).returncode
        == 5
    )
    assert (workspace / "made").read_text() == "out\n"


def test_a_full_disk_behind_stdout_is_one_line(workspace: Path) -> None:
    with (
        open("/dev/full", "w") as full,
        start("run", "--workspace", workspace, "echo x", stdout=full) as process,
    ):
        assert process.stderr
        assert process.stderr.read() == b"belljar: [Errno 28] No space left on device\n"
        assert process.wait(120) == 125
