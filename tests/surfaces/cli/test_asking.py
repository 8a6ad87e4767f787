"""Questions to a person at the terminal."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.surfaces.cli.test_run_on_a_terminal import run
from tests.surfaces.real_terminal import Terminal

from belljar import Verdict
from belljar.session.judging import host_verdict
from belljar.surfaces.cli import asking

pytestmark = pytest.mark.usefixtures("base_image")


def test_a_person_at_a_terminal_is_asked_and_may_agree(workspace: Path) -> None:
    terminal = run(workspace, "sudo id; touch asked")
    shown = terminal.until("allow it? ")
    assert "it would run as root: sudo id" in shown
    assert not (workspace / "asked").exists()
    terminal.type("y\n")
    assert terminal.status() == 0
    assert (workspace / "asked").exists()


def test_a_tool_call_by_hand_asks_too(workspace: Path) -> None:
    terminal = Terminal.belljar(
        "call", "--workspace", workspace, "Bash", '{"command": "sudo id; touch asked"}'
    )
    terminal.until("allow it? ")
    terminal.type("n\n")
    terminal.until("Declined by a person")
    assert terminal.status() == 126


def test_ctrl_c_at_the_question_ends_its_line(workspace: Path) -> None:
    terminal = run(workspace, "sudo id; touch asked")
    terminal.until("[n]o: ")
    terminal.type("\x03")
    assert terminal.rest().endswith("\n")
    assert not (workspace / "asked").exists()


@pytest.mark.parametrize("answer", ["n\n", "\n", "\x04", "yesterday\n"])
def test_any_answer_but_yes_is_a_no(workspace: Path, answer: str) -> None:
    terminal = run(workspace, "sudo id; touch asked")
    terminal.until("allow it? ")
    terminal.type(answer)
    terminal.until("not run: declined")
    assert terminal.status() == 126
    assert not (workspace / "asked").exists()


def test_a_question_mark_explains_the_answers(workspace: Path) -> None:
    terminal = run(workspace, "sudo id; touch asked")
    terminal.until("allow it? ")
    terminal.type("?\n")
    terminal.until("y - run it, this once")
    terminal.until("allow it? ")
    terminal.type("y\n")
    assert terminal.status() == 0
    assert (workspace / "asked").exists()


@pytest.mark.parametrize("forced", ["-t", "-T"])
def test_a_host_is_asked_about_while_the_program_runs(
    workspace: Path, forced: str
) -> None:
    command = "curl -s -o /dev/null -w 'code-%{http_code}' http://b.example; read name; echo hello $name"
    terminal = run(workspace, forced, "--ask-hosts", "--allow", "a.example", command)
    assert "wants to reach b.example on port 80" in terminal.until("allow it? ")
    terminal.type("n\n")
    terminal.until("code-403")
    terminal.insist("Ada\n", "hello Ada")  # keys go to the program again
    assert terminal.status() == 0


def test_what_was_typed_before_the_question_is_no_answer_to_it(workspace: Path) -> None:
    terminal = run(workspace, "sudo id")
    terminal.type("y\n" * 3)
    terminal.until("allow it? ")
    terminal.type("n\n")
    terminal.until("declined")
    assert terminal.status() == 126


def test_a_question_about_changes_shows_them_and_their_target(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asking.show(
        Verdict(
            "ask",
            "critical",
            "why",
            (),
            "~ a.txt  +1 −1\n\x1b[2J",
            "",
            "default",
            about="changes",
        )
    )
    said = capsys.readouterr().err
    assert "| ~ a.txt  +1 −1\n" in said
    assert "\x1b" not in said
    assert "into the real workspace" in said


def test_a_host_verdict_is_asked_about_as_a_host() -> None:
    assert host_verdict("a.example", 80, "default").about == "host"
