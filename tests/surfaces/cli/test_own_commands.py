"""Safe mode's own commands."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.surfaces.cli.test_safe_mode import terminal as terminal
from tests.surfaces.real_terminal import Terminal

from belljar.policy import Policy
from belljar.surfaces.cli import own_commands


def test_colon_commands_of_safe_mode_answer(terminal: Terminal) -> None:
    terminal.line(":help")
    terminal.until("Ctrl+C interrupts")
    terminal.line(":polcy")
    terminal.until("did you mean :policy?")
    terminal.line(":policy")
    terminal.until("default (")
    terminal.until("delete.root")
    terminal.line(":shells")
    terminal.until("STATUS")
    terminal.line("for i in 1 2; do")
    terminal.until(">")
    terminal.type("echo n$((i + 5)); done\r")
    terminal.until("n7")
    terminal.line("exit 5")
    assert terminal.status() == 5


def test_the_policy_command_shows_each_rule_s_decision(
    capsys: pytest.CaptureFixture[str],
) -> None:
    policy = Policy.load("ci", prove=False)
    mode: Any = SimpleNamespace(box=SimpleNamespace(policy=policy, is_staged=False))
    own_commands.carry_out(mode, ":policy")
    shown = {
        line.split()[1]: line.split()[0]
        for line in capsys.readouterr().out.splitlines()[2:]
    }
    assert shown == {rule.id: policy.decides(rule) for rule in policy.rules}
    assert shown["delete.unknown"] == "deny", "it denies what others ask about"


def test_an_unknown_option_is_not_taken_for_a_path(workspace: Path) -> None:
    terminal = Terminal.belljar("shell", "--staged", "--workspace", workspace)
    for line, answer in (
        (":apply -p", "-p is not an option of :apply; it has --merge"),
        (":discard --all", "--all is not an option of :discard; it has none"),
        (":diff -u", "-u is not an option of :diff"),
    ):
        terminal.line(line)
        terminal.until(answer)
    terminal.line(":quit")
    assert terminal.status() == 0
