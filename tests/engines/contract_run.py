"""The engines' contract in a pytest of its own, with another engine or runtime chosen by variables."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
CONTRACT = "tests/engines/test_contract.py"


def passes(tmp_path: Path, *arguments: str, **variables: str) -> None:
    """Assert that it passes; `arguments` are further ones of pytest."""
    pytest = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n0",
        "-pno:cacheprovider",
        f"--basetemp={tmp_path}/contract",
    ]
    done = subprocess.run(
        [*pytest, *arguments, CONTRACT],
        cwd=CHECKOUT,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout
