"""A sandbox's options, from the command line and from files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.surfaces.invoking import belljar

from belljar.errors import UsageError
from belljar.surfaces.cli.main import main
from belljar.surfaces.cli.parser import parse


def test_variables_come_from_files_too(
    tmp_path: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "vars"
    file.write_text("# a comment\n\nONE=1 and a half\nTWO=2\n")
    monkeypatch.setenv("OURS", "from here")
    told = 'echo "$ONE|$TWO|$OURS"'
    answer = belljar(
        "run",
        "--workspace",
        workspace,
        "--env-file",
        file,
        "-e",
        "TWO=two",
        "-e",
        "OURS",
        told,
    )
    assert answer.stdout == "1 and a half|two|from here\n"
    file.write_text("ONE =1\n")
    assert "line 1" in belljar("run", "--env-file", file, "ls").complaint
    assert belljar("run", "--env-file", tmp_path / "none", "ls").status == 2


def test_an_env_file_cannot_take_variables_from_the_host(
    tmp_path: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repository's `.env` may name a token. Only the command line may pass it on."""
    monkeypatch.setenv("CLOUD_TOKEN", "s3cretvalue")
    (workspace / ".env").write_text("ONE=1\nCLOUD_TOKEN\n")
    answer = belljar(
        "run", "--workspace", workspace, "--env-file", workspace / ".env", "env"
    )
    assert (answer.status, answer.stdout) == (2, "")
    assert (
        "line 2: CLOUD_TOKEN has no value; `-e CLOUD_TOKEN` takes" in answer.complaint
    )
    assert "s3cretvalue" not in f"{answer}"


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["bogus"], "there is no command 'bogus'"),
        (["run", "--bogus", "ls"], "--bogus"),
        (["run"], "no command given"),
        (["run", "--"], "no command given"),
        (["run", " \n"], "no command given; it comes last: `belljar run … 'ls -la'`"),
        (["check"], "no command given; it comes last: `belljar check … 'ls -la'`"),
        (["run", "--timeout", "soon", "ls"], "'soon' is not a time"),
        (["run", "--timeout", "-1", "ls"], "'-1' is not a time"),
        (
            ["run", "--env", "NO_SUCH_NAME", "ls"],
            "NO_SUCH_NAME is not set here, so there is no value to take; write",
        ),
        (["run", "--env", "=x", "ls"], "'=x' is not a variable; write NAME=value"),
        (
            ["run", "--session", "", "ls"],
            "the session's name is empty; `belljar ps` lists",
        ),
        (["start", "--session", " ", "ls"], "the session's name is empty"),
        (["run", "--network", "some", "ls"], "invalid choice: 'some'"),
        (["run", "--memory", "12 bananas", "ls"], "'12 bananas' is not a size"),
        (["run", "--memory", "1k", "ls"], "out of bounds; at least 16 MiB"),
        (["session"], "say what to do: start, list, stop"),
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
        (["session"], "say what to do: "),
        (["session", "stop", "bj-000000000000"], "no session"),
        (["logs", "shell_00000000"], "Shell not found: shell_00000000"),
        (["kill", "shell_00000000"], "Shell not found: shell_00000000"),
        (
            ["kill", "bj-000000000000"],
            "`belljar ps --all`" if os.geteuid() == 0 else "belljar session stop",
        ),
        (["call", "Bash", "{not json"], "not JSON"),
        (["call", "Nonsense", "{}"], "Nonsense"),
        (["images", "build", "nonsense"], "no recipe for 'nonsense'"),
        (["audit", "show", "--since", "yesterday"], "--since"),
        (["policy", "test", "/does/not/exist.jsonl"], "/does/not/exist.jsonl"),
        (["prune", "--", "x"], "nothing after --"),
    ],
)
def test_bad_input_is_one_line_and_status_2(
    args: list[str], said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(args) == 2
    out, err = capfd.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    assert line.startswith("belljar: ")
    assert said in line


@pytest.mark.docker
def test_more_processors_than_there_are_is_a_usage_error(workspace: Path) -> None:
    answer = belljar(
        "run", "--workspace", workspace, "--engine", "docker", "--cpus", "640", "true"
    )
    assert (answer.status, "cpus" in answer.complaint) == (2, True)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("5", 5), ("90s", 90), ("1.5m", 90), ("1h", 3600), ("2d", 172800)],
)
def test_times_are_read_as_people_write_them(text: str, seconds: float) -> None:
    assert parse(["run", "--timeout", text, "ls"]).timeout == seconds


def test_a_file_of_variables_that_is_a_named_pipe_or_too_large_is_refused(
    tmp_path: Path,
) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="named pipe"):
        parse(["run", "--env-file", str(tmp_path / "pipe"), "ls"])
    (tmp_path / "large").write_text("A=1\n" * (1 << 18) + "B=2\n")
    with pytest.raises(UsageError, match="larger than 1 MiB"):
        parse(["run", "--env-file", str(tmp_path / "large"), "ls"])
