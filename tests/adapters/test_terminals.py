"""A bash on a terminal, as adapters use it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import belljar
from belljar.adapters import terminals
from belljar.adapters.terminals import INTERRUPT, SUSPEND, Terminal, plain

pytestmark = pytest.mark.engine


@pytest.fixture(params=["near", "far"])
async def terminal(
    workspace: Path, request: pytest.FixtureRequest
) -> AsyncIterator[Terminal]:
    near = request.param == "near"
    options = {} if near else {"host": request.getfixturevalue("far")}
    async with belljar.Session(**{"workspace": workspace} if near else options) as box:
        opened = Terminal(box)
        await opened.open()
        yield opened
        await opened.close()


async def test_commands_share_one_shell(terminal: Terminal) -> None:
    terminal.begin("cd /tmp; x=5")
    assert (await terminal.wait()).result
    terminal.begin('echo "$x"; test -t 0; false')
    seen = await terminal.wait()
    assert seen.result is not None
    assert (seen.output, seen.result.exit_code, seen.result.cwd) == ("5\n", 1, "/tmp")
    assert not terminal.is_busy


async def test_a_program_is_waited_for_typed_to_and_ended(terminal: Terminal) -> None:
    terminal.begin("echo begun; read line; echo got $line; read line")
    assert (await terminal.wait(["begun\r\n"], timeout=20)).matched == "begun\r\n"
    await terminal.type(b"this\n")
    seen = await terminal.wait(["never", "got \\w+"], timeout=20)
    assert (seen.matched, seen.output) == ("got \\w+", "")
    with pytest.raises(belljar.BelljarError, match="running"):
        terminal.begin("echo no")
    assert (await terminal.wait(idle=0.2, timeout=20)).is_idle
    late = await terminal.wait(idle=20, timeout=0.2)
    assert not late.is_idle
    assert late.result is None
    await terminal.type(INTERRUPT)
    assert (await terminal.wait(timeout=20)).result


async def test_keys_are_not_shown_twice_and_settings_of_the_terminal_hold(
    terminal: Terminal,
) -> None:
    terminal.begin("stty -a | grep -ow -- -echo; echo ready; read line; echo $line")
    assert (await terminal.wait(["ready\r\n"], timeout=20)).output == "-echo\n"
    await terminal.type(b"typed\n")
    assert (await terminal.wait(timeout=20)).output == "typed\n"
    terminal.begin("stty echo")
    await terminal.wait(timeout=20)
    terminal.begin("echo ready; read line; echo got $line")
    await terminal.wait(["ready\r\n"], timeout=20)
    await terminal.type(b"typed\n")
    assert (await terminal.wait(timeout=20)).output == "typed\ngot typed\n"


async def test_ctrl_c_ends_a_program_and_the_shell_goes_on(terminal: Terminal) -> None:
    terminal.begin("x=6; cd /tmp; echo set; sleep 600")
    await terminal.wait(["set"], timeout=20)
    await terminal.type(INTERRUPT)
    seen = await terminal.wait(timeout=20)
    assert seen.result is not None
    assert seen.result.exit_code == 130
    terminal.begin('echo "$x $PWD"')
    assert (await terminal.wait(timeout=20)).output.endswith("6 /tmp\n")


@pytest.mark.parametrize("terminal", ["near"], indirect=True)
async def test_what_ignores_ctrl_c_is_suspended_and_killed(terminal: Terminal) -> None:
    """Only a shell that lasts has jobs."""
    terminal.begin("bash -c 'trap \"\" INT; echo set; while :; do read -t 600; done'")
    await terminal.wait(["set"], timeout=20)
    await terminal.type(INTERRUPT)
    assert (await terminal.wait(timeout=0.3)).result is None
    await terminal.type(SUSPEND)
    assert (await terminal.wait(timeout=20)).result
    await terminal.kill_suspended()
    terminal.begin("echo free")
    assert (await terminal.wait(timeout=20)).output.endswith("free\n")


async def test_at_last_the_shell_is_replaced(terminal: Terminal) -> None:
    terminal.begin("trap '' INT; while :; do read -t 600; done")
    await terminal.wait(timeout=0.2)
    await terminal.interrupt()
    seen = await terminal.wait()
    assert seen.result is not None
    assert seen.result.cause == "interrupted"


async def test_of_much_output_the_middle_is_left_out(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminals, "MOST_OUTPUT", 1000)
    monkeypatch.setattr(terminals, "OVERLAP", 100)
    terminal.begin("echo first; seq 100000; echo last; read line; seq 500")
    seen = await terminal.wait(["la[s]t\r\n"], timeout=60)
    assert seen.matched is not None
    assert seen.output.startswith("first\n1\n2\n")
    assert seen.output.endswith("99999\n100000\n")
    assert "bytes are left out here]" in seen.output
    assert len(seen.output) < 1100
    await terminal.type(b"\n")
    assert (await terminal.wait(timeout=60)).output.endswith("\n499\n500\n")


async def test_a_denied_command_is_told_by_the_wait(
    terminal: Terminal, tmp_path: Path
) -> None:
    (tmp_path / "rm.txt").write_text("rm -rf /")
    terminal.begin((tmp_path / "rm.txt").read_text())
    with pytest.raises(belljar.PolicyDenied):
        await terminal.wait()
    assert not terminal.is_busy


def test_plain_text_has_no_control_sequences() -> None:
    assert (
        plain(b"\x1b]777;0123456789abcdef\x07\x1b[31mred\x1b[0m\r\n\xff")
        == "red\n\\xff"
    )
