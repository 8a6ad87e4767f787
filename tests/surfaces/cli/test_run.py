"""`belljar run`, in real containers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.surfaces.invoking import Answer, belljar, start


def run(workspace: Path, *args: str, **options: object) -> Answer:
    return belljar("run", "--workspace", workspace, *args, **options)  # type: ignore[arg-type]


def test_streams_stay_apart_and_the_status_is_the_command_s(workspace: Path) -> None:
    answer = run(workspace, "echo out; echo err >&2; exit 7")
    assert (answer.status, answer.stdout, answer.stderr) == (7, "out\n", "err\n")


def test_a_vector_is_run_without_a_shell(workspace: Path) -> None:
    assert run(workspace, "--", "echo", "$HOME", "a  b").stdout == "$HOME a  b\n"


def test_a_command_that_does_not_read_its_input_still_ends(workspace: Path) -> None:
    with start(
        "run", "--workspace", workspace, "echo done", stdin=subprocess.PIPE
    ) as process:
        assert process.stdout
        assert process.stdout.read() == b"done\n"
        assert process.wait(120) == 0


def test_options_reach_the_command(workspace: Path) -> None:
    (workspace / "sub").mkdir(mode=0o777)
    args = (
        "--env",
        "A=1 2",
        "--env",
        "B=x=y",
        "--cwd",
        "sub",
        "--memory",
        "64m",
        "--cpus",
        "0.5",
        "--pids",
        "32",
    )
    answer = run(workspace, *args, 'echo "$A|$B|$PWD"')
    assert answer.stdout == "1 2|x=y|/workspace/sub\n"


@pytest.mark.parametrize(
    ("command", "status"),
    [
        (["nosuchprogram"], 127),
        (["/etc/passwd"], 126),
        (["sh", "-c", "exit 200"], 200),
        (["sh", "-c", "kill -9 $$"], 137),
    ],
)
def test_statuses_of_vectors_are_exact(
    workspace: Path, command: list[str], status: int
) -> None:
    assert run(workspace, "--", *command).status == status


def test_a_missing_program_of_a_vector_is_named_with_the_image_that_has_it(
    workspace: Path,
) -> None:
    answer = run(workspace, "--", "pytest", "-q")
    assert (answer.status, answer.complaint) == (
        127, "belljar: Command not found: pytest; the image 'base' has none, 'python' has",
    )  # fmt: skip


def test_a_timeout_is_status_124_with_a_message(workspace: Path) -> None:
    answer = run(workspace, "--timeout", "0.5", "echo before; sleep 60")
    assert (answer.status, answer.stdout) == (124, "before\n")
    assert "timed out after 0.5 s" in answer.complaint


def test_running_out_of_memory_is_reported(workspace: Path) -> None:
    answer = run(
        workspace, "--memory", "32m", "--", "python3", "-c", "x = bytearray(200 << 20)"
    )
    assert answer.status == 137
    assert "out of memory" in answer.stderr


def test_a_denied_command_is_126_and_nothing_runs(workspace: Path) -> None:
    answer = run(workspace, "touch ran; rm -rf /")
    assert answer.status == 126
    assert "denied:" in answer.complaint
    assert "delete.root" in answer.complaint
    assert not (workspace / "ran").exists()


def test_what_needs_approval_is_denied_unless_yes(workspace: Path) -> None:
    answer = run(workspace, "sudo true; touch ran")
    assert answer.status == 126
    assert "--yes approves" in answer.complaint
    assert not (workspace / "ran").exists()
    assert run(workspace, "--yes", "sudo true; touch ran").status == 0
    assert (workspace / "ran").exists()


def test_json_is_one_document_with_everything(workspace: Path) -> None:
    answer = run(workspace, "--json", "echo out; echo err >&2; exit 3")
    assert answer.status == 3
    assert answer.stderr == ""
    told = answer.json
    assert (told["cause"], told["exit_code"], told["stdout"], told["stderr"]) == (
        "exited",
        3,
        "out\n",
        "err\n",
    )
    assert told["session"].startswith("bj-")
    assert told["verdict"]["decision"] == "allow"
    assert told["peak_memory"] > 0


def test_json_of_a_denial_holds_the_verdict(workspace: Path) -> None:
    answer = run(workspace, "--json", "rm -rf /")
    assert answer.status == 126
    assert answer.json["error"] == "policy_denied"
    assert answer.json["verdict"]["decision"] == "deny"
    assert "denied" in answer.complaint


def test_secrets_are_masked_in_json_and_real_for_the_command(workspace: Path) -> None:
    command = "PASSWORD=other0ne; echo $API_TOKEN $PASSWORD > seen; cat seen"
    answer = run(workspace, "--json", "--env", "API_TOKEN=hunter2secret", command)
    assert "hunter2secret" not in answer.stdout
    assert "other0ne" not in answer.stdout
    assert answer.json["stdout"] == "*** ***\n"
    assert (workspace / "seen").read_text() == "hunter2secret other0ne\n"


def test_secrets_are_masked_in_the_audit_trail_and_the_log(
    workspace: Path, tmp_path: Path
) -> None:
    env = {"BELLJAR_STATE": str(tmp_path / "state"), "BELLJAR_LOG": "debug"}
    answer = run(
        workspace, "--env", "MY_KEY=hunter2secret", "TOKEN=other0ne true", env=env
    )
    kept = (tmp_path / "state" / "audit.jsonl").read_text()
    assert '"kind":"start"' in kept
    assert '"MY_KEY":"***"' in kept
    for secret in ("hunter2secret", "other0ne"):
        assert secret not in kept
        assert secret not in answer.stderr


def test_a_report_holds_verdict_cause_timing_and_resources(
    workspace: Path, tmp_path: Path
) -> None:
    report = tmp_path / "report.json"
    assert (
        run(workspace, "--policy", "ci", "--report", str(report), "exit 4").status == 4
    )
    told = json.loads(report.read_text())
    assert (told["command"], told["policy"], told["cause"], told["exit_code"]) == (
        "exit 4",
        "ci",
        "exited",
        4,
    )
    assert told["verdict"]["decision"] == "allow"
    assert {
        "duration",
        "cpu_time",
        "peak_memory",
        "started",
        "ended",
        "limits",
        "network",
    } <= set(told)
    assert "stdout" not in told


def test_a_report_is_written_for_a_denial_too(workspace: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    assert (
        run(workspace, "--policy", "ci", "--report", str(report), "rm -rf /").status
        == 126
    )
    told = json.loads(report.read_text())
    assert (told["error"], told["exit_code"], told["verdict"]["decision"]) == (
        "policy_denied",
        126,
        "deny",
    )


@pytest.mark.parametrize(
    ("args", "title"),
    [
        (["rm -rf /"], "Command was denied"),
        (["--timeout", "0.3", "sleep 60"], "Command was stopped"),
    ],
)
def test_github_gets_an_annotation_and_stdout_stays_the_command_s(
    workspace: Path, args: list[str], title: str
) -> None:
    answer = run(workspace, "--policy", "ci", *args, env={"GITHUB_ACTIONS": "true"})
    notes = [line for line in answer.stderr.splitlines() if line.startswith("::error ")]
    assert len(notes) == 1
    assert notes[0].startswith(f"::error title={title}::")
    assert answer.stdout == ""


def test_an_ordinary_failure_is_no_annotation(workspace: Path) -> None:
    assert run(workspace, "exit 1", env={"GITHUB_ACTIONS": "true"}).stderr == ""


def test_a_command_runs_with_a_read_only_home(workspace: Path) -> None:
    env = {
        "HOME": "/proc/1",
        "XDG_STATE_HOME": "/proc/1/state",
        "XDG_CACHE_HOME": "/proc/1/cache",
    }
    answer = run(workspace, "echo fine", env=env)
    assert (answer.status, answer.stdout) == (0, "fine\n")
    assert "audit trail" in answer.stderr
    assert len(answer.stderr.splitlines()) == 1


def test_a_required_audit_trail_that_cannot_be_written_stops_the_run(
    workspace: Path,
) -> None:
    env = {"BELLJAR_STATE": "/proc/1/state", "BELLJAR_AUDIT": "required"}
    answer = run(workspace, "touch ran", env=env)
    assert answer.status == 125
    assert "audit trail" in answer.complaint
    assert not (workspace / "ran").exists()


def test_a_misspelt_audit_setting_is_refused(workspace: Path) -> None:
    answer = run(workspace, "touch ran", env={"BELLJAR_AUDIT": "requird"})
    assert (answer.status, answer.complaint) == (
        2,
        "belljar: BELLJAR_AUDIT is 'requird'; choose from on, off, required",
    )
    assert not (workspace / "ran").exists()
    assert run(workspace, "echo on", env={"BELLJAR_AUDIT": ""}).stdout == "on\n"


def test_a_run_leaves_nothing_behind(workspace: Path) -> None:
    answer = run(workspace, "--json", "sleep 60 & echo started")
    run_directory = Path(os.environ["BELLJAR_RUN"], answer.json["session"])
    assert answer.json["survivors_killed"] == 1
    assert not run_directory.exists()


def test_verbose_logs_to_stderr_and_only_there(workspace: Path) -> None:
    answer = run(workspace, "--verbose", "echo x")
    assert answer.stdout == "x\n"
    assert "info belljar" in answer.stderr


def test_a_failed_command_ends_with_a_hint(workspace: Path) -> None:
    answer = belljar(
        "run",
        "--workspace",
        workspace,
        "getent hosts example.com || curl -sS http://example.com/",
    )
    assert answer.status != 0
    last = answer.stderr.splitlines()[-1]
    assert last.startswith("belljar: hint: ")
    assert "network" in last


SELDOM = {
    "belljar.network.allow", "belljar.sandbox.caches", "belljar.session.background_shell", "belljar.session.pool",
    "belljar.staged.area", "belljar.staged.overlay", "belljar.tools", "datetime", "docker", "pydantic", "random",
    "secrets", "tempfile", "tomllib",
}  # fmt: skip
"""Modules that a plain command never needs. Each costs some tenths of a millisecond."""
LATER = {
    "anyio",
    "asyncio",
    "belljar.link",
    "belljar.policy",
    "belljar.session",
    "concurrent.futures",
    "logging",
}
"""Modules that are imported while the engine works."""


def loaded(program: str, names: set[str], *argv: str) -> str:
    """The modules among `names` that a new Python has loaded after running `program`."""
    env = {
        name: value for name, value in os.environ.items() if not name.startswith("COV")
    }
    program = f"import sys; {program}; print(*sorted({names} & sys.modules.keys()))"
    return subprocess.run(
        [sys.executable, "-c", program, *argv], env=env, capture_output=True, text=True
    ).stdout


def test_a_launch_starts_with_few_imports() -> None:
    assert (
        loaded(
            "import belljar.surfaces.cli.run, belljar.engines.oci.engine",
            SELDOM | LATER,
        )
        == "\n"
    )


def test_a_plain_command_imports_nothing_that_only_others_need(workspace: Path) -> None:
    program = "from belljar.surfaces.cli.main import main; main(sys.argv[1:])"
    argv = ("run", "--workspace", str(workspace), "--", "echo", "ran")
    at_first_use = {"random", "tempfile"}  # needed to install the init
    assert loaded(program, SELDOM - at_first_use, *argv) == "ran\n\n"


def test_a_wrong_working_directory_is_reported_as_text_and_as_json(
    workspace: Path,
) -> None:
    answer = run(workspace, "--cwd", "/missing", "--json", "true")
    assert (answer.status, answer.json["error"]) == (2, "working_directory_invalid")
    assert "Invalid working directory: /missing" in answer.stderr
