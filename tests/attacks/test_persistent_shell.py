"""Commands in the persistent shell that forge its current directory, or block its channel."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from belljar import PolicyDenied, Session
from belljar.session.persistent_shell import PersistentShell

# Forges a report: reads the nonce of this call from the channel, as the shell's own loop does.
FORGE = r"""
for fd in 9 12 13 14; do
  [[ -e /dev/fd/$fd ]] || continue
  read -t 0.2 -rN 16 -u $fd nonce 2>/dev/null && [[ $nonce =~ ^[0-9a-f]{16}$ ]] && break
done
for fd in 8 10 11 12 13 14; do
  printf 's%s 0 - \0' "$nonce" 1>&$fd
done 2>/dev/null
"""
# The same attack from another process, through /proc.
OUTSIDE = r"""#!/bin/bash
pid=$PPID
for fd in 9 12 13 14; do
  read -t 0.2 -rN 16 nonce 2>/dev/null </proc/$pid/fd/$fd && [[ $nonce =~ ^[0-9a-f]{16}$ ]] && break
done
for fd in 8 11; do printf 's%s 0 - \0' "$nonce" 2>/dev/null >/proc/$pid/fd/$fd; done
sleep 5
"""


@pytest.fixture
async def shell(workspace: Path, base_image: str) -> AsyncIterator[PersistentShell]:
    for name, text in (("forge.sh", FORGE), ("outside.sh", OUTSIDE), ("keep.txt", "")):
        (workspace / name).write_text(text)
        (workspace / name).chmod(0o755)
    async with Session(workspace) as box:
        yield box.persistent


async def test_a_sourced_script_cannot_forge_the_shells_directory(
    shell: PersistentShell,
) -> None:
    with anyio.move_on_after(5):
        await shell.run(
            "mkdir -p /tmp/build; source ./forge.sh; PWD=/tmp/build", timeout=3
        )
    assert shell.cwd == "/workspace"
    with pytest.raises(PolicyDenied):
        await shell.run("rm -rf *", timeout=5)


@pytest.mark.parametrize("terminal", [False, True])
async def test_a_program_inherits_no_descriptor_of_the_channel(
    shell: PersistentShell, terminal: bool
) -> None:
    if terminal:
        shell.use_terminal({})
    text = "import os; print('open', *sorted(map(int, os.listdir('/proc/self/fd'))))"
    listed = await shell.run(f'python3 -c "{text}"')
    assert "open 0 1 2 3\n" in listed.stdout.replace(
        "\r", ""
    )  # 3 is the descriptor that lists the directory


@pytest.mark.parametrize("text", ["PWD=/tmp/build", "source ./moved.sh"])
async def test_a_forged_pwd_does_not_change_the_directory_that_is_judged(
    shell: PersistentShell, workspace: Path, text: str
) -> None:
    (workspace / "moved.sh").write_text("PWD=/tmp/build\n")
    await shell.run("mkdir -p /tmp/build")
    await shell.run(text)
    await shell.settle()
    assert (shell.environment or {}).get("PWD") == "/tmp/build"
    assert shell.cwd == "/workspace"
    with pytest.raises(PolicyDenied):
        await shell.run("rm -rf *", timeout=5)


@pytest.mark.parametrize(
    "trick",
    [
        "trap 'cd /workspace' DEBUG; set -T",
        "trap '[[ $BASH_COMMAND != rm* ]] || cd /workspace' DEBUG",
        "rm() { cd /workspace; command rm -rf /workspace/*; }",
        "alias rm='cd /workspace; rm'",
    ],
)
async def test_a_sourced_script_that_moves_the_shell_later_does_not_empty_the_workspace(
    shell: PersistentShell, workspace: Path, trick: str
) -> None:
    (workspace / "trap.sh").write_text(f"mkdir -p /tmp/build; cd /tmp/build; {trick}")
    await shell.run("source ./trap.sh", timeout=60)
    with pytest.raises(PolicyDenied):
        await shell.run("rm -rf *", timeout=5)
    assert (workspace / "keep.txt").exists()


async def test_everyday_commands_after_a_sourced_script_need_no_approval(
    shell: PersistentShell, workspace: Path
) -> None:
    (workspace / "activate").write_text("export ACTIVE=1; hello() { echo hello; }")
    await shell.run("source ./activate")
    assert (await shell.run("hello; echo $ACTIVE")).stdout == "hello\n1\n"
    assert (
        await shell.run("mkdir -p build && rm -rf build && ls keep.txt")
    ).exit_code == 0


async def test_a_forged_report_does_not_make_the_next_command_run_in_another_directory(
    shell: PersistentShell, workspace: Path
) -> None:
    """The forged report ends the call while bash still runs it. Then the rest of the call moves the shell elsewhere."""
    await shell.run("mkdir -p /tmp/build && cd /tmp/build", timeout=60)
    forged = await shell.run("/workspace/outside.sh; cd /workspace", timeout=30)
    assert (forged.cause, forged.cwd) == ("exited", "/tmp/build"), (
        "the attack must work for the test to prove anything"
    )
    with pytest.raises(PolicyDenied):
        await shell.run("rm -rf *", timeout=60)
    assert (workspace / "keep.txt").exists()


async def test_a_fifo_where_the_shell_had_its_file_does_not_stop_it(
    shell: PersistentShell,
) -> None:
    await shell.run("mkfifo /dev/shm/.belljar-$$; export A=1", timeout=60)
    result = await shell.run("export B=2; echo $A", timeout=60)
    assert (result.stdout, result.cause, result.restarted) == ("1\n", "exited", False)
    assert (await shell.run("ls -A /dev/shm")).stdout.startswith(".belljar-")


async def test_rubbish_on_the_channel_ends_the_shell_and_nothing_else(
    shell: PersistentShell, workspace: Path
) -> None:
    (workspace / "nuls.sh").write_text(
        "for fd in 10 11 12 13; do head -c 3000000 /dev/zero >&$fd; done 2>/dev/null"
    )
    result = await shell.run("source ./nuls.sh", timeout=60)
    assert result.cause in ("killed", "exited")
    assert (await shell.run("echo usable", timeout=60)).stdout == "usable\n"
