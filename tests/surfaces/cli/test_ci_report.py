"""Output for CI systems, and the workflow that the manual shows."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.surfaces.invoking import belljar

from belljar.surfaces.cli.ci_report import annotate
from belljar.surfaces.cli.main import main

README = Path(__file__).parents[3] / "src" / "belljar" / "surfaces" / "README.md"


def test_an_annotation_cannot_break_out_of_its_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    annotate("a:b,c", "100%\n::set-output name=x::y\rTOKEN=hunter2")
    assert (
        capsys.readouterr().err
        == "::error title=a%3Ab%2Cc::100%25%0A::set-output name=x::y%0DTOKEN=***\n"
    )


def test_outside_github_actions_there_are_no_annotations(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    annotate("title", "message")
    assert capsys.readouterr().err == ""


def workflow_steps() -> list[list[str]]:
    workflow = "".join(
        re.findall(r"^```yaml\n(.*?)^```", README.read_text(), re.DOTALL | re.MULTILINE)
    )
    return [shlex.split(line) for line in re.findall(r"- run: belljar (.*)", workflow)]


def test_the_readme_s_workflow_does_what_it_says(workspace: Path) -> None:
    task = workspace / "agent-task.sh"
    task.write_text("#!/bin/sh\necho worked in $PWD\n")
    task.chmod(0o755)
    (step,) = workflow_steps()
    answer = belljar(*step, cwd=workspace, env={"GITHUB_ACTIONS": "true", "CI": "true"})
    assert (answer.status, answer.stdout, answer.stderr) == (
        0,
        "worked in /workspace\n",
        "",
    )
    report = json.loads((workspace / "belljar.json").read_text())
    assert (report["cause"], report["exit_code"], report["policy"]) == (
        "exited",
        0,
        "ci",
    )


def test_a_report_lists_the_hosts_that_were_contacted(
    workspace: Path, tmp_path: Path
) -> None:
    report = tmp_path / "report.json"
    options = ("--workspace", workspace, "--allow", "good.example", "--report", report)
    belljar("run", *options, "curl -sS http://evil.example/")
    told = json.loads(report.read_text())
    assert [(visit["host"], visit["verdict"]) for visit in told["network"]] == [
        ("evil.example", "refused")
    ]
    assert (told["network_mode"], told["allow"]) == ("none", ["good.example"])


def test_the_readme_s_workflow_fails_when_the_task_does(workspace: Path) -> None:
    (workspace / "agent-task.sh").write_text("#!/bin/sh\nexit 9\n")
    (workspace / "agent-task.sh").chmod(0o755)
    (step,) = workflow_steps()
    assert belljar(*step, cwd=workspace, env={"GITHUB_ACTIONS": "true"}).status == 9


@pytest.mark.parametrize("report", [".", "..", "sub", "/"])
def test_a_report_that_is_a_directory_is_refused_in_one_line(
    workspace: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    report: str,
) -> None:
    (workspace / "sub").mkdir()
    monkeypatch.chdir(workspace)
    assert main(["run", "--report", report, "true"]) == 2
    assert capsys.readouterr().err.startswith(f"belljar: --report {report}: ")


def test_a_denial_is_told_apart_from_a_program_s_own_126(
    workspace: Path, tmp_path: Path
) -> None:
    report = tmp_path / "report.json"
    for command, cause in (("rm -rf /", "denied"), ("exit 126", "exited")):
        answer = belljar("run", "--workspace", workspace, "--report", report, command)
        told = json.loads(report.read_text())
        assert (answer.status, told["exit_code"], told["cause"]) == (126, 126, cause)


def test_a_report_for_junit_says_how_it_ended(workspace: Path, tmp_path: Path) -> None:
    ends = {"true": None, "exit 3": "failure", "rm -rf /": "error", "sleep 9": "error"}
    for command, state in ends.items():
        report = tmp_path / "report.xml"
        belljar(
            "run",
            "--workspace",
            workspace,
            "--timeout",
            "1",
            "--policy",
            "ci",
            "--report-junit",
            report,
            command,
        )
        suite = ElementTree.parse(report).getroot()
        (case,) = suite
        assert (case.get("name"), case.get("classname")) == (command, "belljar.ci")
        assert [child.tag for child in case] == ([state] if state else [])
        counted = (suite.get("tests"), suite.get("failures"), suite.get("errors"))
        assert counted == (
            "1",
            str(int(state == "failure")),
            str(int(state == "error")),
        )
    assert case[0].get("type") == "timeout"


def test_a_command_with_control_characters_is_still_xml(
    workspace: Path, tmp_path: Path
) -> None:
    report = tmp_path / "report.xml"
    belljar(
        "run",
        "--workspace",
        workspace,
        "--report-junit",
        report,
        "--",
        "echo",
        "\x1b[1m<&\x01",
    )
    assert "\ufffd[1m<&\ufffd" in str(
        ElementTree.parse(report).getroot()[0].get("name")
    )


def test_the_summary_is_a_table_that_a_command_cannot_leave(
    workspace: Path, tmp_path: Path
) -> None:
    page = tmp_path / "summary"
    env = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(page)}
    belljar(
        "run",
        "--workspace",
        workspace,
        "echo '| <img src=x> [a](b)\n# new'; exit 4",
        env=env,
    )
    head, _, row, *_ = page.read_text().splitlines()
    assert head == "| `belljar run` | outcome | time |"
    assert row.count("|") == 4
    assert not set("<[#") & set(row.replace("&#", ""))
    assert "exit status 4" in row
