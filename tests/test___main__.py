"""`python -m belljar` is the command line."""

import subprocess
import sys

import belljar


def test_python_m_belljar_is_the_command_line() -> None:
    said = subprocess.run([sys.executable, "-m", "belljar", "--version"], capture_output=True, text=True, check=True)
    assert belljar.__version__ in said.stdout
