"""The channel beside the output: texts in, states out."""

from __future__ import annotations

import asyncio

import pytest
from tests.session.test_persistent_shell import box as box
from tests.session.test_persistent_shell import shell as shell

from belljar import Output, PolicyDenied, Session
from belljar.link import frames
from belljar.session.bash_channel import STRANGERS, Bash, exported
from belljar.session.persistent_shell import PersistentShell


async def test_nothing_that_a_command_prints_is_taken_for_a_status(shell: PersistentShell) -> None:
    forged = "printf 's%s 0 - /forged\\0' 0123456789abcdef"
    result = await shell.run(
        f"{forged} >&8; {forged}; for fd in 10 11 12; do {forged} >&$fd; done 2>/dev/null; (exit 9)"
    )
    assert (result.exit_code, result.cwd) == (9, "/workspace")


async def test_a_text_that_no_pipe_holds_runs_whole(shell: PersistentShell) -> None:
    await shell.run("true")  # the first goes to a bash that is not there yet
    text = "x" * 130_000
    assert (await shell.run(f"a={text}; echo ${{#a}}")).stdout == "130000\n"


async def test_a_flood_comes_before_the_status_that_follows_it(shell: PersistentShell) -> None:
    for _ in range(5):
        result = await shell.run("head -c 3000000 /dev/zero | tr '\\0' x; echo end; echo err >&2; (exit 7)")
        assert (result.exit_code, result.stdout_bytes[-5:], result.stderr) == (7, b"xend\n", "err\n")


async def test_what_was_judged_with_old_variables_is_refused_and_judged_again(
    shell: PersistentShell, box: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The variables reach the host only after it has sent the next command."""
    noted: list[object] = []
    note = box._ledger.record
    monkeypatch.setattr(
        box._ledger, "record", lambda kind, **facts: (noted.append(facts.get("cause")), note(kind, **facts))
    )

    async def at_once(_: Bash) -> bool:
        return True

    held: list[bytes] = []
    hear = Bash._hear

    def late(bash: Bash, message: bytes) -> None:
        if message.startswith(b"e"):
            held[:] = [message]
            return
        if message.startswith(b"r"):
            hear(bash, held.pop())
        hear(bash, message)

    await shell.run("true")
    await shell.settle()
    monkeypatch.setattr(Bash, "is_idle", at_once)
    monkeypatch.setattr(Bash, "_hear", late)
    await shell.run("mkdir -p /tmp/gone; export DIR=/tmp/gone")
    assert (await shell.run('rm -rf "$DIR"; echo once')).stdout == "once\n"
    assert noted.count("refused") == 1
    await shell.run("export DIR=/")
    with pytest.raises(PolicyDenied):
        await shell.run('rm -rf "$DIR"')
    assert noted.count("refused") == 2
    await shell.run("export DIR=/tmp")
    shell.export({"GROWN": "yes"})
    assert (await shell.run("echo $GROWN")).stdout == "yes\n", "what goes ahead was refused with it, and comes again"
    assert noted.count("refused") == 3


async def test_a_question_about_the_variables_that_nobody_waits_for_harms_no_text(shell: PersistentShell) -> None:
    """Its answer comes ahead of the next text's, and is not taken for that one's refusal."""
    for _ in range(3):
        await shell.run("export A=$((A + 1))")
        asked = asyncio.ensure_future(shell.settle())
        await asyncio.sleep(0)  # it waits for the answer now
        asked.cancel()
        await asyncio.wait([asked])
        assert asked.cancelled()
        assert (await shell.run("echo ran >> /tmp/ran; echo $A")).exit_code == 0
    result = await shell.run("cat /tmp/ran; rm /tmp/ran")
    assert (result.stdout, result.restarted) == (3 * "ran\n", False)


async def test_a_shell_that_refuses_what_it_must_take_is_replaced(shell: PersistentShell) -> None:
    def lie(_: Output) -> None:
        assert shell._bash is not None
        shell._bash._hear(b"r" + shell._bash._expected[0][0])

    result = await shell.run("echo; sleep 60", on_output=lie)
    assert (result.cause, result.restarted) == ("killed", True)
    assert (await shell.run("echo well")).stdout == "well\n"


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


async def test_of_a_flood_on_the_channel_a_few_messages_are_heard(
    shell: PersistentShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    await shell.run("true")
    bash, heard = shell._bash, []
    assert bash is not None
    hear = Bash._hear
    monkeypatch.setattr(Bash, "_hear", lambda bash, message: (heard.append(message), hear(bash, message)))
    bash._take(frames.CONTROL, bytes(1 << 20))
    assert 0 < len(heard) <= STRANGERS + 2
