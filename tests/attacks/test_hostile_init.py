"""The host against a hostile init that runs in a process of its own. `make fuzz` does it at length."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# A process of its own, so that the measured memory is only the link's.
ROUNDS = """
from tests.fuzz.host import GROWTH, fuzz
found = fuzz(80, 20261117)
assert found.rounds == 80
assert not found.errors, found.errors
assert found.growth < GROWTH, found
assert len(found.ends) > 5, found.ends
"""


def test_a_hostile_init_cannot_crash_or_exhaust_the_host() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", ROUNDS],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
