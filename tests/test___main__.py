"""`python -m belljar` is the command line."""

import os
import subprocess
import sys
from pathlib import Path

import belljar


def test_python_m_belljar_is_the_command_line() -> None:
    said = subprocess.run(
        [sys.executable, "-m", "belljar", "--version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert belljar.__version__ in said.stdout


def test_no_module_of_the_directory_it_is_called_in_is_loaded(tmp_path: Path) -> None:
    for name in ("json", "argparse", "anyio", "pydantic", "regex"):
        (tmp_path / f"{name}.py").write_text(f"open('{tmp_path}/ran', 'w').close()")
    said = subprocess.run(
        [sys.executable, "-m", "belljar", "check", "--json", "ls"], cwd=tmp_path, capture_output=True, check=True,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTHON")},
    )  # fmt: skip
    assert b'"allow"' in said.stdout
    assert not (tmp_path / "ran").exists()
