"""Shell builtins that run text from their arguments, or give a dangerous program a harmless name."""

from __future__ import annotations

import pytest

from belljar.policy import Policy

RUNNING = [
    "fc -s",
    "compgen -C 'rm -rf /workspace/*' x",
    "compgen -W '$(rm -rf /workspace/*)'",
    "complete -C 'rm -rf /workspace/*' x; compgen x",
    "wait -n -p 'a[$(rm -rf /workspace/*)]'",
    "hash -p /bin/rm ls; ls -rf /workspace",
]
HARMLESS = [
    "fc -l",
    "compgen -c | head",
    "compgen -W 'start stop' -- s",
    "compgen -f /tmp/",
    "complete -p",
    "wait -n",
]


@pytest.mark.parametrize("command", RUNNING)
def test_a_command_that_a_builtin_runs_is_judged(command: str) -> None:
    assert Policy.load("default").judge(command).decision != "allow"


@pytest.mark.parametrize("command", HARMLESS)
def test_builtins_that_only_print_are_allowed(command: str) -> None:
    assert Policy.load("default").judge(command).decision == "allow"
