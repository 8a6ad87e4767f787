"""The policy must see what bash runs: harmless scripts that start a program called `zmark` in odd ways."""

import os
import subprocess
from pathlib import Path

from belljar.policy import Policy

POLICY = Policy.load("default")
OWN = f"ws_zz_{os.getpid()}"  # a unique name, because other test runs use /tmp too
TEXT = (
    (Path(__file__).parent / "scripts_that_run_zmark.txt")
    .read_text()
    .replace("ws_zz", OWN)
)
SCRIPTS = TEXT.rstrip("\n").split("\n%%\n")


def seen_or_refused(script: str) -> bool:
    verdict = POLICY.judge(script)
    return verdict.decision != "allow" or any(
        effect.program == "zmark" for effect in verdict.effects
    )


def test_every_program_that_bash_runs_is_found_by_the_policy(tmp_path: Path) -> None:
    mark, log = tmp_path / "zmark", tmp_path / "log"
    mark.write_text('#!/bin/sh\necho ran >> "$Z"\n')
    mark.chmod(0o755)
    env = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "Z": str(log),
        "HOME": str(tmp_path),
    }
    overlooked, idle = [], []
    for script in SCRIPTS:
        log.unlink(missing_ok=True)
        subprocess.run(
            ["bash", "-c", script],
            env=env,
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=30,
        )
        if not log.exists():
            idle.append(script)
        elif not seen_or_refused(script):
            overlooked.append(script)
    Path("/tmp", OWN).unlink(missing_ok=True)
    assert overlooked == []
    assert idle == []
