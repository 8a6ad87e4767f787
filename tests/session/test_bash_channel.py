"""The private channel of the persistent shell: commands in, reports out."""

from __future__ import annotations

import asyncio

import pytest
from tests.session.test_persistent_shell import box as box
from tests.session.test_persistent_shell import shell as shell

from belljar.link import frames
from belljar.session.bash_channel import MOST_UNEXPECTED, Bash, exported
from belljar.session.persistent_shell import PersistentShell


async def test_nothing_that_a_command_prints_is_taken_for_a_status(
    shell: PersistentShell,
) -> None:
    forged = "printf 's%s 0 - /forged\\0' 0123456789abcdef"
    result = await shell.run(
        f"{forged} >&8; {forged}; for fd in 10 11 12; do {forged} >&$fd; done 2>/dev/null; (exit 9)"
    )
    assert (result.exit_code, result.cwd) == (9, "/workspace")


async def test_a_command_larger_than_a_pipe_runs(shell: PersistentShell) -> None:
    await shell.run(
        "true"
    )  # starts bash: the next command then goes through the channel
    text = "x" * 130_000
    assert (await shell.run(f"a={text}; echo ${{#a}}")).stdout == "130000\n"


async def test_a_flood_comes_before_the_status_that_follows_it(
    shell: PersistentShell,
) -> None:
    for _ in range(5):
        result = await shell.run(
            "head -c 3000000 /dev/zero | tr '\\0' x; echo end; echo err >&2; (exit 7)"
        )
        assert (result.exit_code, result.stdout_bytes[-5:], result.stderr) == (
            7,
            b"xend\n",
            "err\n",
        )


async def test_a_cancelled_settle_harms_no_later_call(shell: PersistentShell) -> None:
    for _ in range(3):
        await shell.restart()
        shell._begin()
        settling = asyncio.ensure_future(shell.settle())
        await asyncio.sleep(0)
        settling.cancel()
        await asyncio.wait([settling])
        assert (await shell.run("echo ran >> /tmp/ran")).exit_code == 0
    result = await shell.run("cat /tmp/ran; rm /tmp/ran")
    assert (result.stdout, result.restarted) == (3 * "ran\n", False)


def test_exported_variables_are_read_exactly() -> None:
    text = """declare -x A="x \\"y\\" \\$z \\`w\\` \\\\ q"
declare -x B=$'new\\nline \\' \\E \\001 \\377'
declare -x EMPTY=""
declare -x UNSET
declare -rx R="1"
export P="posix"
declare -- NOT="exported"
"""
    assert exported(text) == {
        "A": 'x "y" $z `w` \\ q', "B": "new\nline ' \x1b \x01 \udcff", "EMPTY": "", "R": "1", "P": "posix",
    }  # fmt: skip


async def test_only_a_few_messages_of_a_flood_on_the_channel_are_handled(
    shell: PersistentShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    await shell.run("true")
    bash, handled = shell._bash, []
    assert bash is not None
    handle = Bash._handle
    monkeypatch.setattr(
        Bash,
        "_handle",
        lambda bash, message: (handled.append(message), handle(bash, message)),
    )
    bash._take(frames.CONTROL, bytes(1 << 20))
    assert 0 < len(handled) <= MOST_UNEXPECTED + 2
