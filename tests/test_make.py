"""`make` as a person or a CI job runs it, in this checkout."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TARGETS = [
    "setup",
    "engine",
    "images",
    "sandbox",
    "test",
    "lint",
    "format",
    "lock",
    "bench",
    "soak",
    "fuzz",
    "mutants",
    "deb",
    "sbom",
    "clean",
]

WAITED = "belljar: another `make` is setting up here; waiting for it\n"


def make(*arguments: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
    stdin = {"input": text} if text is not None else {"stdin": subprocess.DEVNULL}
    command = ["make", "-C", ROOT, "--no-print-directory", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, **stdin)
    done.stderr = done.stderr.replace(
        WAITED, ""
    )  # another test may use the same checkout
    return done


def test_make_alone_lists_the_targets() -> None:
    listed = make().stdout
    assert [target for target in TARGETS if f"make {target} " not in listed] == []


def test_one_part_of_the_fuzzing_can_be_asked_for() -> None:
    assert make("--dry-run", "fuzz", "FUZZ=10 link").stdout.endswith(
        "-m tests.fuzz 10 link\n"
    )


def test_a_part_of_the_mutants_can_be_asked_for() -> None:
    assert make("--dry-run", "mutants", "MUTANTS=20 staged").stdout.endswith(
        "-m tests.mutants 20 staged\n"
    )


def test_a_second_setup_has_nothing_to_do() -> None:
    assert make("setup").returncode == 0
    again = make("setup")
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")


def test_make_engine_leaves_an_engine_that_answers_alone() -> None:
    done = make("engine")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_make_sandbox_prints_only_the_output_and_reports_the_status(
    workspace: Path,
) -> None:
    done = make("sandbox", "CMD=echo $HOME; exit 3", f"WORKSPACE={workspace}")
    assert done.stdout == "/home/sandbox\n"
    # make has only one exit status for "a command failed".
    assert done.returncode == 2
    assert "Error 3" in done.stderr


@pytest.mark.parametrize(
    "command",
    [
        """printf '%s\\n' "a  b" 'c"d' $((1+1)) # x""",
        "echo $(echo $PWD) `echo é`",
        "echo one\necho 'two\\' \\\n three",
    ],
)
def test_a_command_arrives_exactly_as_typed(command: str, workspace: Path) -> None:
    native = subprocess.run(
        ["bash", "-c", f"PWD=/workspace\n{command}"], capture_output=True, text=True
    )
    done = make("sandbox", f"CMD={command}", f"WORKSPACE={workspace}")
    assert (done.stdout, done.returncode) == (native.stdout, 0), done.stderr


def test_make_never_expands_the_command_on_the_host(
    workspace: Path, tmp_path: Path
) -> None:
    make(
        "sandbox", f"CMD=echo $(shell touch {tmp_path}/here)", f"WORKSPACE={workspace}"
    )
    assert not (tmp_path / "here").exists()


def test_lines_on_stdin_run_in_one_shell(workspace: Path) -> None:
    done = make("sandbox", f"WORKSPACE={workspace}", text="cd /tmp\npwd\n")
    assert (done.stdout, done.returncode) == ("/tmp\n", 0), done.stderr


def test_a_workspace_with_spaces_is_mounted(tmp_path: Path) -> None:
    odd = tmp_path / "my work $HOME"
    odd.mkdir()
    (odd / "note").write_text("here\n")
    done = make("sandbox", "CMD=cat note", f"WORKSPACE={odd}")
    assert (done.stdout, done.returncode) == ("here\n", 0), done.stderr


@pytest.mark.root
def test_a_second_clone_that_is_read_only_and_has_spaces_in_its_path_works_with_another_venv(
    workspace: Path, tmp_path: Path
) -> None:
    clone, venv = tmp_path / "second clone", tmp_path / "its venv"
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    for name in filter(None, listed.split("\0")):
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, clone / name)
    script = """
mount --make-rprivate /
mount --bind "$0" "$0"
mount -o remount,bind,ro "$0"
cd "$0"
exec make --no-print-directory images VENV="$1"
"""
    done = subprocess.run(
        ["unshare", "--mount", "bash", "-euc", script, clone, venv],
        stdin=subprocess.DEVNULL, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "fetching the C compiler" not in done.stderr, (
        "the init of the same sources is in the cache"
    )
    assert not (clone / ".venv").exists()
    command = [
        venv / "bin/belljar",
        "run",
        "--workspace",
        workspace,
        "echo from the second",
    ]
    ran = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert (ran.stdout, ran.returncode) == ("from the second\n", 0), ran.stderr
