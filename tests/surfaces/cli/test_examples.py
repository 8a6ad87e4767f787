"""Each command's help has examples, and they are accepted as they stand."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
from pathlib import Path

import pytest

from belljar.surfaces.cli import examples
from belljar.surfaces.cli.main import main
from belljar.surfaces.cli.parser import build, parse

STUB = """#!/bin/bash
printf '%s\\0' "$@" > "$CALLS/$(date +%s%N)"
echo bj-0123456789ab
"""


def _commands(parser: argparse.ArgumentParser) -> list[str]:
    families = [
        action
        for action in parser._actions
        if isinstance(action, argparse._SubParsersAction)
    ]
    below = [
        name
        for family in families
        for each in family.choices.values()
        for name in _commands(each)
    ]
    return below or [parser.prog.removeprefix("belljar ")]


COMMANDS = _commands(build())
TYPED = [
    line
    for text in examples.by_command().values()
    for line in text.splitlines()
    if line
]


def test_every_command_has_examples_and_no_unknown_one() -> None:
    assert sorted(examples.by_command()) == sorted(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_ends_with_its_examples(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert f"belljar {command}" in examples.by_command()[command]
    assert main([*command.split(), "--help"]) == 0
    assert capsys.readouterr().out.endswith(f"{examples.of(command)}\n")


def test_a_command_group_shows_the_examples_of_its_members() -> None:
    shown = examples.of("session")
    assert "belljar session start" in shown
    assert "belljar session stop" in shown


@pytest.mark.parametrize("line", TYPED)
def test_an_example_is_accepted(line: str, tmp_path: Path) -> None:
    """A real bash reads the example. The arguments that `belljar` gets from it must parse."""
    typed = re.split(" {2,}", line)[0]
    programs, calls = tmp_path / "bin", tmp_path / "calls"
    programs.mkdir()
    calls.mkdir()
    for name in ("belljar", "man", "less"):
        (programs / name).write_text(STUB if name == "belljar" else "#!/bin/sh\n")
        (programs / name).chmod(0o755)
    environment = {"PATH": f"{programs}:{os.environ['PATH']}", "CALLS": str(calls)}
    subprocess.run(
        ["bash", "-c", typed], cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL
    )
    made = sorted(calls.iterdir())
    assert made
    for call in made:
        parse(call.read_text().split("\0")[:-1])
