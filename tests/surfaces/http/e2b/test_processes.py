"""Commands and terminals, through E2B's own client."""

from __future__ import annotations

import asyncio
import time

import e2b
import pytest
from e2b import AsyncSandbox, CommandExitException, PtySize, Sandbox, TimeoutException

pytestmark = pytest.mark.engine


def test_a_command_runs_as_user_at_home(shared: Sandbox) -> None:
    result = shared.commands.run('whoami; pwd; echo "$HOME"; echo wrong >&2')
    assert (result.stdout, result.stderr, result.exit_code) == (
        "user\n/home/user\n/home/user\n",
        "wrong\n",
        0,
    )


def test_variables_and_directory_are_the_command_s(shared: Sandbox) -> None:
    assert (
        shared.commands.run('pwd; echo "$A"', cwd="/tmp", envs={"A": "one two"}).stdout
        == "/tmp\none two\n"
    )


def test_a_failed_command_raises_with_its_status(shared: Sandbox) -> None:
    with pytest.raises(CommandExitException) as failed:
        shared.commands.run("echo told >&2; exit 7")
    assert (failed.value.exit_code, failed.value.stderr) == (7, "told\n")


def test_a_denied_command_ends_with_126_and_the_reason(shared: Sandbox) -> None:
    with pytest.raises(CommandExitException) as denied:
        shared.commands.run("cat /proc/self/status; mkfs.ext4 /dev/sda")
    assert denied.value.exit_code == 126
    assert denied.value.stderr
    assert not denied.value.stdout


def test_output_that_is_no_text_is_replaced_not_lost(shared: Sandbox) -> None:
    assert (
        shared.commands.run(f"printf '{'a' * 8191}\\xe2'").stdout
        == "a" * 8191 + "\ufffd"
    )


def test_a_command_that_takes_too_long_is_ended(shared: Sandbox) -> None:
    with pytest.raises(TimeoutException):
        shared.commands.run("sleep 60", timeout=1)
    until = time.monotonic() + 20  # the client's own clock may be first
    while [
        each for each in shared.commands.list() if "sleep 60" in each.args
    ] and time.monotonic() < until:
        time.sleep(0.1)
    assert not [each for each in shared.commands.list() if "sleep 60" in each.args]


def test_a_background_command_is_listed_fed_and_ended(shared: Sandbox) -> None:
    cat = shared.commands.run("cat", background=True, stdin=True)
    assert cat.pid in [each.pid for each in shared.commands.list()]
    shared.commands.send_stdin(cat.pid, "one\n")
    shared.commands.send_stdin(cat.pid, b"two\n")
    shared.commands.close_stdin(cat.pid)
    assert cat.wait().stdout == "one\ntwo\n"
    assert cat.pid not in [each.pid for each in shared.commands.list()]


def test_a_killed_command_says_so(shared: Sandbox) -> None:
    sleeper = shared.commands.run("sleep 600", background=True)
    assert shared.commands.kill(sleeper.pid) is True
    with pytest.raises(CommandExitException) as killed:
        sleeper.wait()
    assert killed.value.exit_code == 137
    assert shared.commands.kill(sleeper.pid) is False


def test_a_second_client_connects_to_a_running_command(shared: Sandbox) -> None:
    cat = shared.commands.run("cat", background=True, stdin=True)
    again = shared.commands.connect(cat.pid)
    shared.commands.send_stdin(cat.pid, "seen by both\n")
    shared.commands.close_stdin(cat.pid)
    assert again.wait().stdout == "seen by both\n"
    assert cat.wait().stdout == "seen by both\n"


def test_a_terminal_takes_input_and_a_size(shared: Sandbox) -> None:
    shown: list[bytes] = []
    terminal = shared.pty.create(PtySize(rows=24, cols=80), envs={"A": "123"})
    shared.pty.resize(terminal.pid, PtySize(rows=40, cols=100))
    shared.pty.send_stdin(terminal.pid, b"echo A=$A; stty size; exit 3\n")
    with pytest.raises(CommandExitException) as ended:
        terminal.wait(on_pty=shown.append)
    assert ended.value.exit_code == 3
    assert b"A=123\r\n40 100\r\n" in b"".join(shown)


def test_a_terminal_is_killed(shared: Sandbox) -> None:
    terminal = shared.pty.create(PtySize(rows=24, cols=80))
    assert shared.pty.kill(terminal.pid) is True


async def test_many_commands_at_once_through_the_asynchronous_client(
    shared: Sandbox,
) -> None:
    sandbox = await AsyncSandbox.connect(shared.sandbox_id)
    results = await asyncio.gather(
        *(sandbox.commands.run(f"echo {n}") for n in range(10))
    )
    assert [result.stdout for result in results] == [f"{n}\n" for n in range(10)]


async def test_a_reader_that_leaves_does_not_end_the_command(shared: Sandbox) -> None:
    sandbox = await AsyncSandbox.connect(shared.sandbox_id)
    sleeper = await sandbox.commands.run("sleep 600", background=True)
    await sleeper.disconnect()
    assert sleeper.pid in [each.pid for each in await sandbox.commands.list()]
    assert await sandbox.commands.kill(sleeper.pid)


def test_no_command_runs_as_a_user_that_is_not_there(shared: Sandbox) -> None:
    with pytest.raises(e2b.SandboxException):
        shared.commands.run("id", user="root")
