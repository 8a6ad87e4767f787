"""What can be asked without a sandbox, and every kind of bad input: one clear line, the right status."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from tests.surfaces.invoking import belljar

from belljar import __version__
from belljar.surfaces.cli.main import build, main, parse

COMMANDS = ["run", "shell", "check", "session", "start", "shells", "logs", "kill", "tools", "call", "mcp", "images"]
COMMANDS += ["doctor", "prune", "audit", "policy", "completion"]


def test_help_names_every_command_and_gives_examples() -> None:
    answer = belljar("--help")
    assert answer.status == 0
    assert all(f"    {name} " in answer.stdout or f"    {name}\n" in answer.stdout for name in COMMANDS)
    assert "belljar run 'pytest" in answer.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    assert capsys.readouterr().out.startswith(f"usage: belljar {command}")


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"belljar {__version__}\n"


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ([], "COMMAND"),
        (["bogus"], "invalid choice: 'bogus'"),
        (["run", "--bogus", "ls"], "--bogus"),
        (["run"], "no command given"),
        (["run", "--"], "no command given"),
        (["run", "--timeout", "soon", "ls"], "'soon' is not a time"),
        (["run", "--timeout", "-1", "ls"], "'-1' is not a time"),
        (["run", "--env", "NAME", "ls"], "'NAME' is not a variable"),
        (["run", "--network", "some", "ls"], "invalid choice: 'some'"),
        (["run", "--memory", "12 bananas", "ls"], "'12 bananas' is not a size"),
        (["run", "--memory", "1k", "ls"], "out of bounds"),
        (["run", "--cpus", "many", "ls"], "--cpus"),
        (["run", "--pids", "1", "ls"], "--pids"),
        (["run", "--workspace", "/does/not/exist", "ls"], "does not exist"),
        (["run", "--workspace", "/etc/passwd", "ls"], "/etc/passwd"),
        (["run", "--policy", "nonsense", "ls"], "nonsense"),
        (["run", "--policy", "/does/not/exist.toml", "ls"], "/does/not/exist.toml"),
        (["run", "--session", "bj-000000000000", "ls"], "no session bj-000000000000"),
        (["run", "--session", "../../etc", "ls"], "is not a session id"),
        (["run", "--cwd", "../..", "ls"], "outside the workspace"),
        (["run", "--report", "/does/not/exist.json", "ls"], "--report"),
        (["session"], "ACTION"),
        (["session", "stop", "bj-000000000000"], "no session"),
        (["logs", "shell_00000000"], "Shell not found: shell_00000000"),
        (["kill", "shell_00000000"], "Shell not found: shell_00000000"),
        (["kill", "bj-000000000000"], "belljar session stop"),
        (["call", "Bash", "{not json"], "not JSON"),
        (["call", "Nonsense", "{}"], "Nonsense"),
        (["images", "build", "nonsense"], "no recipe for 'nonsense'"),
        (["audit", "show", "--since", "yesterday"], "--since"),
        (["policy", "test", "/does/not/exist.jsonl"], "/does/not/exist.jsonl"),
        (["prune", "--", "x"], "behind --"),
    ],
)
def test_bad_input_is_one_line_and_status_2(args: list[str], said: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(args) == 2
    out, err = capfd.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    assert line.startswith("belljar: ")
    assert said in line


def test_a_missing_image_says_what_to_do(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--image", "nobody/has:this", "ls"]) == 125
    assert "docker pull nobody/has:this" in capfd.readouterr().err


def test_a_policy_file_with_a_mistake_names_file_and_line(tmp_path: Path, workspace: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('name = "mine"\n[[rule]]\nnonsense = [\n')
    answer = belljar("run", "--policy", file, "--workspace", workspace, "ls")
    assert answer.status == 2
    assert str(file) in answer.complaint


def test_an_engine_that_does_not_answer_is_said_in_one_line(tmp_path: Path) -> None:
    answer = belljar("run", "true", env={"DOCKER_HOST": f"unix://{tmp_path}/none.sock"})
    assert answer.status == 125
    assert "engine" in answer.complaint


def test_an_unexpected_error_is_one_line_with_a_hint(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("belljar.surfaces.cli.policy_commands.check", lambda _: 1 / 0)
    assert main(["check", "ls"]) == 125
    assert "ZeroDivisionError" in (said := capfd.readouterr().err)
    assert "BELLJAR_DEBUG=1" in said
    monkeypatch.setenv("BELLJAR_DEBUG", "1")
    main(["check", "ls"])
    assert "Traceback" in capfd.readouterr().err


def test_text_and_vectors_are_told_apart() -> None:
    assert parse(["run", "ls | wc"]).command == "ls | wc"
    assert parse(["run", "--", "ls"]).command == ["ls"]
    assert parse(["run", "--json", "--", "ls", "--json"]).command == ["ls", "--json"]
    assert parse(["run", "ls", "-la"]).command == ["ls", "-la"]
    assert parse(["run", "sh", "-c", "x", "--", "y"]).command == ["sh", "-c", "x", "--", "y"]


@pytest.mark.parametrize(("text", "seconds"), [("5", 5), ("90s", 90), ("1.5m", 90), ("1h", 3600), ("2d", 172800)])
def test_times_are_read_as_people_write_them(text: str, seconds: float) -> None:
    assert parse(["run", "--timeout", text, "ls"]).timeout == seconds


def test_check_gives_the_verdict_as_a_document() -> None:
    answer = belljar("check", "--json", "rm -rf /")
    assert answer.status == 126
    assert answer.json["decision"] == "deny"
    assert {"decision", "risk", "reason", "rules", "canonical"} <= set(answer.json)
    assert {"id", "decision", "risk", "reason"} == set(answer.json["rules"][0])


def test_check_is_readable_and_explains(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "ls"]) == 0
    assert capsys.readouterr().out.startswith("allow (low)")
    assert main(["check", "--explain", "--", "rm", "-rf", "/"]) == 126
    assert "effects:" in capsys.readouterr().out


def test_check_masks_secrets(capsys: pytest.CaptureFixture[str]) -> None:
    main(["check", "--json", "API_TOKEN=hunter2 ls"])
    assert "hunter2" not in capsys.readouterr().out


def test_policy_test_counts_what_came_out_otherwise(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "cases.jsonl"
    cases = [{"command": "ls", "expect": "allow"}, {"command": "rm -rf /", "expect": "deny"}]
    file.write_text("".join(json.dumps(case) + "\n" for case in cases))
    assert main(["policy", "test", str(file)]) == 0
    assert "2 of 2 as expected" in capsys.readouterr().out
    file.write_text(json.dumps({"command": "ls", "expect": "deny"}))
    assert main(["policy", "test", "--json", str(file)]) == 1
    assert json.loads(capsys.readouterr().out)["wrong"][0]["command"] == "ls"


def test_policy_test_checks_a_policy_s_own_examples(capsys: pytest.CaptureFixture[str]) -> None:
    shipped = Path(__file__).parents[3] / "policies" / "default.toml"
    assert main(["policy", "test", str(shipped)]) == 0
    assert "its examples hold" in capsys.readouterr().out


def test_tools_are_listed_and_described(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tools"]) == 0
    assert "KillShell" in capsys.readouterr().out
    assert main(["tools", "--format", "openai"]) == 0
    assert {each["type"] for each in json.loads(capsys.readouterr().out)} == {"function"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_every_command(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(name in script for name in COMMANDS)


def test_bash_completes_commands_actions_and_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["completion", "bash"])
    script = tmp_path / "completion"
    script.write_text(capsys.readouterr().out)
    tries = {"session st": "start stop", "run --mem": "--memory", "doc": "doctor", "images b": "build"}
    for typed, completed in tries.items():
        words = f"belljar {typed}".split()
        ask = f"COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; _belljar; echo ${{COMPREPLY[@]}}"
        done = subprocess.run(
            ["bash", "-c", f"source {script}; {ask}"], capture_output=True, text=True, check=True, env=os.environ
        )
        assert done.stdout.split() == completed.split()


def test_the_parser_has_no_abbreviations() -> None:
    with pytest.raises(Exception, match="--work"):
        build().parse_args(["run", "--work", ".", "ls"])
