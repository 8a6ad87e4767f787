"""Completion in bash and the other usual shells."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.surfaces.cli.test_parser import COMMANDS
from tests.surfaces.real_terminal import Terminal

from belljar.surfaces.cli import completion
from belljar.surfaces.cli.main import main


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_call_belljar_for_the_answers(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", shell]) == 0
    assert "__complete" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("", set(COMMANDS)),
        ("session st", {"start", "stop"}),
        ("run --mem", {"--memory"}),
        ("run --network ", {"none", "full"}),
        ("run --image py", {"python"}),
        ("check --policy p", {"permissive"}),
        ("call Ba", {"Bash", "BashOutput"}),
        ("help doc", {"doctor"}),
        ("run --timeout ", set()),
    ],
)
def test_commands_options_and_values_are_completed(
    typed: str, offered: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["__complete", *typed.split(" ")]) == (0 if offered else 1)
    assert {
        line.split("\t")[0] for line in capsys.readouterr().out.splitlines()
    } == offered


def test_bash_completes_commands_actions_and_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["completion", "bash"])
    script = tmp_path / "completion"
    script.write_text(capsys.readouterr().out)
    (tmp_path / "belljar").write_text(
        f'#!/bin/sh\nexec {sys.executable} -m belljar "$@"\n'
    )
    (tmp_path / "belljar").chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    tries = {
        "session st": "start stop",
        "run --mem": "--memory",
        "doc": "doctor",
        "images b": "build",
    }
    for typed, completed in tries.items():
        words = f"belljar {typed}".split()
        ask = f"COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; _belljar; echo ${{COMPREPLY[@]}}"
        done = subprocess.run(
            ["bash", "-c", f"source {script}; {ask}"],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PATH": path},
        )
        assert done.stdout.split() == completed.split()


@pytest.fixture
def person(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[[str, str], Terminal]:
    """A shell on a terminal, set up as a user of Belljar would do it."""

    def shell(name: str, setup: str) -> Terminal:
        if shutil.which(name) is None:
            pytest.skip(f"{name} is not installed: apt-get install {name}")
        main(["completion", name])
        (tmp_path / "completion").write_text(capsys.readouterr().out)
        (tmp_path / "belljar").write_text(
            f'#!/bin/sh\nexec {sys.executable} -m belljar "$@"\n'
        )
        (tmp_path / "belljar").chmod(0o755)
        path = f"{tmp_path}:{os.environ['PATH']}"
        options = {"bash": ["--norc"], "zsh": ["-f"], "fish": ["--no-config"]}[name]
        terminal = Terminal(
            name,
            *options,
            cols=120,
            cwd=tmp_path,
            PATH=path,
            HOME=str(tmp_path),
            TERM="xterm",
        )
        terminal.type(f"{setup.format(script=tmp_path / 'completion')}; echo re'ady'\r")
        terminal.until("ready\r\n")
        return terminal

    return shell


@pytest.mark.parametrize(
    ("name", "setup"),
    [
        ("bash", "bind 'set enable-bracketed-paste off'; source {script}"),
        ("zsh", "autoload -U compinit; compinit -u -D; source {script}"),
        ("fish", "source {script}"),
    ],
)
def test_tab_completes_with_descriptions(
    person: Callable[[str, str], Terminal], name: str, setup: str
) -> None:
    terminal = person(name, setup)
    terminal.type("belljar session st\t")
    terminal.insist("\t", "start a session and print its id")
    terminal.signal(signal.SIGKILL)
    terminal.status()


def test_descriptions_in_completions_hold_no_control_characters(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(
        completion._KINDS,
        "ids",
        lambda: iter([("shell_1", "running: \x1b]52;c;aGk=\x07\x9b2J\ny")]),
    )
    assert completion.answer(["kill", "sh"]) == 0
    assert capsys.readouterr().out == "shell_1\trunning: ^[]52;c;aGk=^G<U+009B>2J y\n"
