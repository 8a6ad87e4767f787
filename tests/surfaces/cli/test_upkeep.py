"""`belljar images`, `doctor`, `prune`, and the parts of the console they share."""

from __future__ import annotations

import io
import json
import os

import pytest
from tests.surfaces.invoking import belljar

from belljar.surfaces.cli import console
from belljar.surfaces.cli.main import main


def test_images_are_listed(base_image: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["images", "list"]) == 0
    assert base_image in capsys.readouterr().out
    assert main(["images", "list", "--json"]) == 0
    (base,) = [image for image in json.loads(capsys.readouterr().out) if image["reference"] == base_image]
    assert base["current"] is True


def test_an_image_that_is_there_is_not_built_again(base_image: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["images", "build", "base"]) == 0
    assert capsys.readouterr().out.strip() == base_image
    assert main(["images", "build", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["reference"] == base_image


def test_doctor_goes_through_everything(base_image: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) in (0, 1)
    checks = json.loads(capsys.readouterr().out)
    assert {"engine", "seccomp", "a real sandbox"} <= {check["name"] for check in checks}
    assert all(check["ok"] or check["fix"] for check in checks)


def test_doctor_says_what_to_do_where_no_engine_answers() -> None:
    answer = belljar("doctor", env={"DOCKER_HOST": "unix:///does/not/exist.sock"})
    assert answer.status == 1
    assert "FAIL  engine" in answer.stdout
    assert "→" in answer.stdout


def test_prune_leaves_the_living_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prune", "--json"]) == 0
    assert isinstance(json.loads(capsys.readouterr().out)["removed"], list)


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_one_line_that_rewrites_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", screen := Screen())
    bar = console.Bar()
    bar(0.5, "half\nway")
    bar(None, "more")
    assert screen.getvalue() == "\r\x1b[K[##########          ]  50% half\\nway\r\x1b[Kmore"
    bar(1.0, "ready")
    assert screen.getvalue().endswith("100% ready\r\x1b[K")


def test_without_a_terminal_progress_is_a_line_at_the_start_and_one_at_the_end(
    capsys: pytest.CaptureFixture[str],
) -> None:
    bar = console.Bar()
    for fraction, text in [(0.0, "building it"), (0.5, "half"), (1.0, "it is ready")]:
        bar(fraction, text)
    assert capsys.readouterr().err == "belljar: building it …\nbelljar: it is ready\n"


def test_without_a_terminal_a_long_build_is_heard_of_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bar = console.Bar()
    bar(0.0, "building it")
    monkeypatch.setattr(console, "NEWS_SECONDS", 0.0)
    bar(0.5, "installing (12 s)")
    assert capsys.readouterr().err == "belljar: building it …\nbelljar: 50% installing (12 s) …\n"


def test_progress_says_nothing_where_there_was_nothing_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    console.Bar()(1.0, "it is ready")
    assert capsys.readouterr().err == ""


def test_what_we_say_on_a_terminal_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", screen := Screen())
    console.say("a\x1b]0;t\x07")
    assert screen.getvalue() == "a^[]0;t^G\n"


def test_a_note_is_one_masked_line(capsys: pytest.CaptureFixture[str]) -> None:
    console.note("failed:\nTOKEN=hunter2 \x1b[2J")
    assert capsys.readouterr().err == "belljar: failed:\\nTOKEN=*** ^[[2J\n"


def test_after_a_hang_up_nothing_more_is_written() -> None:
    pid = os.fork()
    if pid == 0:
        status = console.hang_up()
        os.write(1, b"into nowhere")
        os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 141
