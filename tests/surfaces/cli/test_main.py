"""What can be asked without a sandbox, and every kind of bad input: one clear line, the right status."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from base64 import b64decode
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator, validate
from tests.surfaces.invoking import belljar

from belljar import __version__
from belljar.errors import UsageError
from belljar.surfaces.cli import settings
from belljar.surfaces.cli.main import main
from belljar.surfaces.cli.parser import GROUPS, build, parse
from belljar.surfaces.cli.schemas import SCHEMAS

COMMANDS = [name for group in GROUPS for name in group.names]


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BELLJAR_CONFIG", os.devnull)


def test_help_names_every_command_and_gives_examples() -> None:
    answer = belljar("--help")
    assert answer.status == 0
    assert all(f"    {name} " in answer.stdout for name in COMMANDS)
    assert all(f"\n{group.title}:\n" in answer.stdout for group in GROUPS)
    assert "belljar run 'python3 -V" in answer.stdout
    for same in ([], ["help"]):
        assert belljar(*same).stdout == answer.stdout


def test_the_first_example_of_the_help_works(workspace: Path) -> None:
    line = next(line for line in belljar("help").stdout.splitlines() if "belljar run '" in line)
    text = line.split("'")[1]
    answer = belljar("run", "--workspace", workspace, f"set -eo pipefail; {text}")
    assert (answer.status, answer.stderr) == (0, "")


def test_help_for_one_command_is_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", "session", "start"]) == 0
    assert capsys.readouterr().out.startswith("usage: belljar session start")


@pytest.mark.parametrize(
    ("args", "meant"),
    [
        (["rnu", "ls"], "did you mean 'run'?"),
        (["session", "lst"], "did you mean 'list'?"),
        (["run", "--memroy", "1g", "ls"], "did you mean '--memory'?"),
        (["run", "--network", "none ", "ls"], "did you mean 'none'?"),
        (["schema", "runs"], "did you mean 'run'?"),
    ],
)
def test_a_slip_is_answered_with_what_was_meant(args: list[str], meant: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(args) == 2
    assert meant in capfd.readouterr().err


@pytest.mark.parametrize(
    "args", [["run", "--json", "--bogus", "ls"], ["run", "--json"], ["check", "--json", "--policy", "nonsense", "ls"]]
)
def test_a_usage_error_is_a_document_too(args: list[str]) -> None:
    answer = belljar(*args)
    assert answer.status == 2
    validate(answer.json, SCHEMAS["error"])


def test_check_tells_by_its_status() -> None:
    assert [main(["check", text]) for text in ("ls", "sudo ls", "rm -rf /")] == [0, 3, 126]


def test_what_json_prints_is_what_the_schemas_say(workspace: Path) -> None:
    here = ("--workspace", workspace)
    validate(belljar("run", "--json", *here, "echo hi").json, SCHEMAS["run"])
    validate(belljar("run", "--json", *here, "rm -rf /").json, SCHEMAS["error"])
    validate(belljar("check", "--json", "sudo ls").json, SCHEMAS["check"])
    validate(belljar("config", "--json").json, SCHEMAS["config"])
    for args in (["help"], ["help", "run"], ["completion", "fish"], ["man"]):
        validate(belljar(*args, "--json").json, SCHEMAS["text"])
    validate(belljar("version", "--json").json, SCHEMAS["version"])
    validate(belljar("images", "list", "--json").json, SCHEMAS["images"])
    started = belljar("session", "start", "--json", *here).json
    try:
        validate(started, SCHEMAS["session-start"])
        id = started["session"]
        validate(belljar("session", "list", "--json").json, SCHEMAS["session-list"])
        validate(belljar("stats", "--json").json, SCHEMAS["stats"])
        shell = belljar("start", "--session", id, "--json", "echo hi").json
        validate(shell, SCHEMAS["shell"])
        validate(belljar("wait", "--json", shell["id"]).json, SCHEMAS["shell"])
        validate(belljar("shells", "--json").json, SCHEMAS["shells"])
        validate(belljar("logs", "--json", shell["id"]).json, SCHEMAS["logs"])
        validate(belljar("kill", "--json", shell["id"]).json, SCHEMAS["kill"])
    finally:
        validate(belljar("session", "stop", "--json", started["session"]).json, SCHEMAS["session-stop"])


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_schema_is_published_and_is_one(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", name]) == 0
    Draft202012Validator.check_schema(json.loads(capsys.readouterr().out))


def test_bytes_that_are_no_text_are_not_lost(workspace: Path) -> None:
    document = belljar("run", "--json", "--workspace", workspace, r"printf 'a\377b'; echo fine >&2").json
    assert b64decode(document["stdout_base64"]) == b"a\xffb"
    assert "stderr_base64" not in document


def test_variables_come_from_files_too(tmp_path: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "vars"
    file.write_text("# a comment\n\nONE=1 and a half\nTWO=2\nOURS\nNOBODY_HAS_THIS\n")
    monkeypatch.setenv("OURS", "from here")
    told = 'echo "$ONE|$TWO|$OURS|${NOBODY_HAS_THIS-unset}"'
    answer = belljar("run", "--workspace", workspace, "--env-file", file, "-e", "TWO=two", told)
    assert answer.stdout == "1 and a half|two|from here|unset\n"
    file.write_text("ONE =1\n")
    assert "line 1" in belljar("run", "--env-file", file, "ls").complaint
    assert belljar("run", "--env-file", tmp_path / "none", "ls").status == 2


class TestSettings:
    @pytest.fixture(autouse=True)
    def _files(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.user, self.operator = tmp_path / "user.toml", tmp_path / "operator.toml"
        monkeypatch.setenv("BELLJAR_CONFIG", str(self.user))
        monkeypatch.setattr(settings, "OPERATOR", self.operator)

    def write(self, path: Path, text: str) -> None:
        path.write_text(text)
        path.chmod(0o600)

    def test_options_win_over_the_user_s_file_and_that_over_the_operator_s(self) -> None:
        self.write(self.operator, 'image = "node"\nmemory = "1g"\n')
        self.write(self.user, 'image = "python"\ntimeout = "5m"\n')
        args = parse(["run", "ls"])
        assert (args.image, args.memory, args.timeout) == ("python", "1g", 300)
        assert parse(["run", "--image", "base", "ls"]).image == "base"

    def test_what_the_operator_enforces_holds(self) -> None:
        self.write(self.operator, '[enforce]\npolicy = "strict"\nnetwork = "none"\ntimeout = 60\n')
        self.write(self.user, 'policy = "permissive"\n')
        assert parse(["run", "ls"]).policy == "strict"
        assert parse(["run", "--policy", "strict", "--timeout", "1m", "ls"]).timeout == 60
        for more in (["--policy", "default"], ["--network", "full"], ["--timeout", "2m"]):
            with pytest.raises(UsageError, match="on this machine"):
                parse(["run", *more, "ls"])

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("imge = 'x'", "did you mean 'image'?"),
            ("image = [1]", "must be text or a number"),
            ("network = 'some'", "choose from none, full"),
            ("image", "user.toml"),
            ("workspace = '/'", "no setting 'workspace'"),
        ],
    )
    def test_a_mistake_is_named_with_its_file(self, text: str, said: str) -> None:
        self.write(self.user, text)
        with pytest.raises(UsageError, match=r"user\.toml") as raised:
            parse(["run", "ls"])
        assert said in str(raised.value)

    def test_a_file_that_others_can_write_is_refused(self) -> None:
        self.write(self.user, 'policy = "permissive"')
        self.user.chmod(0o666)
        with pytest.raises(UsageError, match="can be written by other users"):
            parse(["run", "ls"])

    def test_a_file_inside_the_workspace_is_not_read(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.write(self.user, 'policy = "permissive"')
        args = parse(["run", "--workspace", str(self.user.parent), "ls"])
        assert args.policy == "default"
        assert "inside the workspace" in capsys.readouterr().err

    def test_config_says_where_each_comes_from(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.write(self.operator, 'image = "node"\n[enforce]\nnetwork = "none"\n')
        self.write(self.user, 'memory = "3g"\n')
        assert main(["config"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert any(line.split() == ["memory", "3g", str(self.user)] for line in lines)
        assert any("network" in line and "(enforced)" in line for line in lines)


def test_the_manual_page_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["man"]) == 0
    page = capsys.readouterr().out
    assert page.startswith(".TH BELLJAR 1")
    assert all(f'.SS "belljar {name}' in page for name in COMMANDS)
    assert r"\fB\-\-workspace\fR \fIDIR\fR" in page


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
        (["bogus"], "there is no command 'bogus'"),
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
        (["prune", "--", "x"], "nothing after --"),
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
def test_completion_scripts_ask_us(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
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
    assert {line.split("\t")[0] for line in capsys.readouterr().out.splitlines()} == offered


def test_bash_completes_commands_actions_and_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["completion", "bash"])
    script = tmp_path / "completion"
    script.write_text(capsys.readouterr().out)
    (tmp_path / "belljar").write_text(f'#!/bin/sh\nexec {sys.executable} -m belljar "$@"\n')
    (tmp_path / "belljar").chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    tries = {"session st": "start stop", "run --mem": "--memory", "doc": "doctor", "images b": "build"}
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


def test_the_parser_has_no_abbreviations() -> None:
    with pytest.raises(Exception, match="--work"):
        build().parse_args(["run", "--work", ".", "ls"])
